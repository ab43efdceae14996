"""Texts: tokens and the encoder that averages them."""

import json
from pathlib import Path

import pytest
import torch

from randomset import backbones
from randomset.backbones.text import TokenEncoder, load_tokenizer, max_tokens, tokenize
from randomset.errors import RandomSetError
from tests.backbones.conftest import TEXTS

pytestmark = pytest.mark.slow  # transformers takes seconds to import


class TestTokenize:
    def test_rows_are_padded_and_truncated(self, bert):
        tokenizer = load_tokenizer(bert)
        tokens = tokenize(TEXTS, tokenizer, 6)
        assert tokens.shape == (3, 6)  # the longest text has 7 tokens with its start and end
        assert (tokens[2] >= 0).sum() == 3
        assert tokens[0, :4].tolist() == tokenizer("cats purr")["input_ids"]
        assert tokens[0, 4:].tolist() == [-1, -1]
        assert tokenize(TEXTS, tokenizer).shape == (3, 256)

    def test_an_empty_document(self, bert):
        with pytest.raises(RandomSetError, match="a document is empty; got row 1 and 1 more"):
            tokenize(["cats", "", " \n"], load_tokenizer(bert))


class TestLoadTokenizer:
    def test_a_folder_without_tokenizer_files(self, bert, tmp_path):
        (tmp_path / "config.json").write_bytes((bert / "config.json").read_bytes())
        with pytest.raises(RandomSetError, match="has no tokenizer"):
            load_tokenizer(tmp_path)

    def test_a_path_is_never_a_model_name(self):
        with pytest.raises(RandomSetError, match="tokenizer not found; got run/tokenizer"):
            load_tokenizer(Path("run") / "tokenizer")


class TestTokenEncoder:
    def test_features_are_the_mean_over_the_tokens(self, bert):
        backbone = backbones.build(f"hf:{bert}").eval()
        tokens = tokenize(TEXTS, load_tokenizer(bert))
        features = backbone(tokens)
        assert features.shape == (3, backbone.num_features) == (3, 16)
        encoder = backbone.layers
        assert isinstance(encoder, TokenEncoder)
        for row, feature in zip(tokens, features, strict=True):
            alone = encoder.model(input_ids=row[row >= 0][None]).last_hidden_state[0].mean(0)
            assert torch.allclose(feature, alone, atol=1e-5)

    def test_padding_does_not_count(self, bert):
        backbone = backbones.build(f"hf:{bert}").eval()
        tokens = tokenize(TEXTS, load_tokenizer(bert))
        wider = torch.nn.functional.pad(tokens, (0, 5), value=-1)
        assert torch.allclose(backbone(tokens), backbone(wider), atol=1e-6)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "bert", "max_position_embeddings": 32}, 32),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "t5"}, None),
    ],
)
def test_max_tokens(config, expected, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert max_tokens(tmp_path) == expected
