"""Texts: tokens, an encoder of Hugging Face with random weights, and networks that stand on it."""

import json

import pytest
import torch

from randomset import Budget, RandomSetNetwork
from randomset.errors import RandomSetError
from randomset.nn import backbones
from randomset.nn.tokens import TokenEncoder, load_tokenizer, most_tokens, tokenised
from tests.texts import tiny_bert

pytestmark = pytest.mark.slow  # transformers takes seconds to import


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


TEXTS = ["cats purr", "dogs bark and dogs run", "cats"]


class TestTokens:
    def test_rows_are_filled_up_and_cut(self, folder):
        tokenizer = load_tokenizer(folder)
        tokens = tokenised(TEXTS, tokenizer, 6)
        assert tokens.shape == (3, 6)  # the longest, with its two ends, has 7
        assert (tokens[2] >= 0).sum() == 3
        assert tokens[0, :4].tolist() == tokenizer("cats purr")["input_ids"]
        assert tokens[0, 4:].tolist() == [-1, -1]
        assert tokenised(TEXTS, tokenizer).shape == (3, 256)

    def test_an_empty_document(self, folder):
        with pytest.raises(RandomSetError, match="a document is empty; got row 1 and 1 more"):
            tokenised(["cats", "", " \n"], load_tokenizer(folder))

    def test_a_folder_that_is_none(self, tmp_path):
        with pytest.raises(RandomSetError, match="holds no model"):
            load_tokenizer(tmp_path)

    def test_a_model_that_is_nowhere(self, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(RandomSetError, match="not on this machine") as error:
            load_tokenizer("nobody/no-such-model")
        assert "hf:FOLDER" in str(error.value)


class TestEncoder:
    def test_the_mean_over_the_tokens_of_each_text(self, folder):
        backbone = backbones.build(f"hf:{folder}").eval()
        tokens = tokenised(TEXTS, load_tokenizer(folder))
        features = backbone(tokens)
        assert features.shape == (3, backbone.num_features) == (3, 16)
        encoder = backbone.layers
        assert isinstance(encoder, TokenEncoder)
        for row, feature in zip(tokens, features, strict=True):
            alone = encoder.model(input_ids=row[row >= 0][None]).last_hidden_state[0].mean(0)
            assert torch.allclose(feature, alone, atol=1e-5)

    def test_what_is_filled_up_does_not_count(self, folder):
        backbone = backbones.build(f"hf:{folder}").eval()
        tokens = tokenised(TEXTS, load_tokenizer(folder))
        wider = torch.nn.functional.pad(tokens, (0, 5), value=-1)
        assert torch.allclose(backbone(tokens), backbone(wider), atol=1e-6)

    def test_weights_and_random_ones(self, folder):
        trained = backbones.build(f"hf:{folder}", weights="default").eval()
        again = backbones.build(f"hf:{folder}", weights="default").eval()
        other = backbones.build(f"hf:{folder}").eval()
        tokens = tokenised(TEXTS, load_tokenizer(folder))
        assert torch.equal(trained(tokens), again(tokens))
        assert not torch.allclose(trained(tokens), other(tokens))

    def test_a_network_is_kept_without_the_folder(self, folder, tmp_path):
        budget = Budget.from_sets([{"a", "b"}], ["a", "b", "c"])
        network = RandomSetNetwork(backbones.build(f"hf:{folder}"), budget, dropout=0.1).eval()
        network.save(tmp_path)
        spec = network.backbone.spec
        assert "_name_or_path" not in spec["options"]["config"]
        json.dumps(spec)
        moved = folder.rename(folder.with_name("elsewhere"))
        try:
            again = RandomSetNetwork.load(tmp_path)
        finally:
            moved.rename(folder)
        tokens = tokenised(TEXTS, load_tokenizer(folder))
        assert torch.equal(again.predict(tokens).mass, network.predict(tokens).mass)

    def test_it_learns(self, folder):
        network = RandomSetNetwork(backbones.build(f"hf:{folder}"), Budget.singletons(3)).train()
        tokens, loss = tokenised(TEXTS, load_tokenizer(folder)), network.default_loss()
        loss(network(tokens), torch.tensor([0, 1, 2])).backward()
        gradients = [p.grad for p in network.parameters() if p.requires_grad]
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["x:model", "timm:", "hf:"])
def test_names_that_mean_nothing(name):
    with pytest.raises(RandomSetError, match="unknown backbone"):
        backbones.build(name)


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"model_type": "bert", "max_position_embeddings": 32}, 32),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "t5"}, None),
    ],
)
def test_how_long_a_text_may_be(settings, most, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert most_tokens(tmp_path) == most
