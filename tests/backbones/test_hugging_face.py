"""Hugging Face encoders, and texts as tokens."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from randomset import Budget, RandomSetNetwork, backbones
from randomset.backbones.base import PretrainedInputs
from randomset.backbones.hugging_face import (
    TokenEncoder,
    default_image_size,
    load_tokenizer,
    max_tokens,
    tokenize,
)
from randomset.errors import RandomSetError
from tests.backbones.conftest import TEXTS, RunsCode

pytestmark = pytest.mark.slow  # transformers takes seconds to import


@pytest.fixture(scope="module")
def tokens(bert):
    return tokenize(TEXTS, load_tokenizer(bert))


class TestDamagedFolders:
    """Missing or wrong files raise an error; no network is left with random weights."""

    @pytest.fixture
    def copy(self, bert, tmp_path):
        return Path(shutil.copytree(bert, tmp_path / "copy"))

    def test_weights_of_another_network(self, copy, capsys):
        save_file({"x.weight": torch.zeros(2)}, copy / "model.safetensors", {"format": "pt"})
        with pytest.raises(
            RandomSetError, match=r"different architecture.*missing \(.*1 unexpected \(x.weight\)"
        ):
            backbones.build(f"hf:{copy}", weights="default")
        assert "newly initialized" not in capsys.readouterr().err

    def test_truncated_weights(self, copy):
        content = (copy / "model.safetensors").read_bytes()
        (copy / "model.safetensors").write_bytes(content[: len(content) // 2])
        with pytest.raises(RandomSetError, match="cannot be loaded from its folder"):
            backbones.build(f"hf:{copy}", weights="default")

    def test_weights_of_another_size(self, copy):
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, "hidden_size": 24}))
        with pytest.raises(RandomSetError, match="cannot be loaded from its folder"):
            backbones.build(f"hf:{copy}", weights="default")

    def test_weights_that_run_code(self, copy, capsys):
        (copy / "model.safetensors").unlink()
        torch.save({"x": RunsCode()}, copy / "pytorch_model.bin")
        with pytest.raises(RandomSetError, match="cannot be loaded from its folder"):
            backbones.build(f"hf:{copy}", weights="default")
        assert "never" not in capsys.readouterr().out


class TestWeights:
    def test_published_and_random(self, bert, tokens):
        trained = backbones.build(f"hf:{bert}", weights="default").eval()
        again = backbones.build(f"hf:{bert}", weights="default").eval()
        random = backbones.build(f"hf:{bert}").eval()
        assert torch.equal(trained(tokens), again(tokens))
        assert not torch.allclose(trained(tokens), random(tokens))

    def test_a_file(self, bert, tokens, tmp_path):
        expected = backbones.build(f"hf:{bert}", weights="default").eval()(tokens)
        state = {**load_file(bert / "model.safetensors"), "embeddings.position_ids": torch.arange(32)[None]}
        save_file(state, tmp_path / "old.safetensors")  # older files store what newer networks compute
        for file in (bert / "model.safetensors", tmp_path / "old.safetensors"):
            assert torch.equal(backbones.build(f"hf:{bert}", weights=file).eval()(tokens), expected)
        torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "other.pt")
        with pytest.raises(RandomSetError, match="different architecture"):
            backbones.build(f"hf:{bert}", weights=tmp_path / "other.pt")
        with pytest.raises(RandomSetError, match="weights file not found"):
            backbones.build(f"hf:{bert}", weights=tmp_path / "missing.pt")


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """A vision transformer of one layer."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    folder = tmp_path_factory.mktemp("vit")
    ViTModel(ViTConfig(image_size=16, patch_size=8, **sizes)).save_pretrained(str(folder))
    return folder


class TestImages:
    def test_grey_images_are_repeated_for_pretrained_weights(self, vit, tmp_path):
        backbone = backbones.build(f"hf:{vit}", weights="default", in_channels=1, image_size=16).eval()
        grey = torch.rand(2, 1, 16, 16)
        assert torch.equal(backbone(grey), backbone(grey.expand(-1, 3, -1, -1)))
        assert "0.5" in backbone.pretrained_inputs.remark
        network = RandomSetNetwork(backbone, Budget.singletons(3)).eval()
        network.save(tmp_path)
        assert torch.equal(RandomSetNetwork.load(tmp_path)(grey), network(grey))

    def test_statistics_come_from_the_preprocessor(self, vit, tmp_path):
        folder = Path(shutil.copytree(vit, tmp_path / "copy"))
        statistics = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
        (folder / "preprocessor_config.json").write_text(json.dumps(statistics))
        inputs = backbones.build(f"hf:{folder}", weights="default").pretrained_inputs
        assert inputs == PretrainedInputs((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 16)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"in_channels": 4, "weights": "default"}, "expect images with 3 channels; got 4"),
            ({"image_size": 32, "weights": "default"}, "single image size.*expected 16 × 16.*--size 16"),
            ({"image_size": 20}, "patch size.*expected a multiple of 8.*--size 16"),
        ],
    )
    def test_unsupported_images(self, vit, options, message):
        with pytest.raises(RandomSetError, match=message):
            backbones.build(f"hf:{vit}", **options)

    def test_default_image_size(self, vit, bert):
        assert default_image_size(str(vit)) == 16
        assert default_image_size(str(bert)) is None


class TestNetworks:
    def test_a_saved_network_does_not_need_the_folder(self, bert, tokens, tmp_path):
        budget = Budget.from_sets([{"a", "b"}], ["a", "b", "c"])
        network = RandomSetNetwork(backbones.build(f"hf:{bert}"), budget, dropout=0.1).eval()
        network.save(tmp_path)
        spec = network.backbone.spec
        assert "_name_or_path" not in spec["options"]["config"]
        json.dumps(spec)
        moved = bert.rename(bert.with_name("elsewhere"))
        try:
            again = RandomSetNetwork.load(tmp_path)
        finally:
            moved.rename(bert)
        assert torch.equal(again.predict(tokens).mass, network.predict(tokens).mass)

    def test_every_weight_gets_a_gradient(self, bert, tokens):
        network = RandomSetNetwork(backbones.build(f"hf:{bert}"), Budget.singletons(3)).train()
        loss = network.default_loss()
        loss(network(tokens), torch.tensor([0, 1, 2])).backward()
        gradients = [p.grad for p in network.parameters() if p.requires_grad]
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


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
