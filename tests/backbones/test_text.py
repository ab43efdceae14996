"""Texts: tokens, an encoder of Hugging Face with random weights, and networks that stand on it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from randomset import Budget, RandomSetNetwork, backbones
from randomset.backbones.text import TokenEncoder, load_tokenizer, most_tokens, tokenised
from randomset.errors import RandomSetError
from tests.backbones.test_weights import Evil
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


class TestDamage:
    """A folder in which something is missing or wrong says so; nothing is trained on random weights."""

    @pytest.fixture
    def copy(self, folder, tmp_path):
        return Path(shutil.copytree(folder, tmp_path / "copy"))

    def test_no_tokenizer(self, copy):
        for file in copy.glob("tokenizer*"):
            file.unlink()
        with pytest.raises(RandomSetError, match="has no tokenizer"):
            load_tokenizer(copy)

    def test_weights_of_another_network(self, copy, capsys):
        save_file({"x.weight": torch.zeros(2)}, copy / "model.safetensors", {"format": "pt"})
        with pytest.raises(
            RandomSetError, match=r"another architecture.*missing \(.*unknown to it \(x.weight\)"
        ):
            backbones.build(f"hf:{copy}", weights="default")
        assert "newly initialized" not in capsys.readouterr().err

    def test_weights_that_are_cut_short(self, copy):
        whole = (copy / "model.safetensors").read_bytes()
        (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(RandomSetError, match="cannot be loaded from its folder"):
            backbones.build(f"hf:{copy}", weights="default")

    def test_weights_of_another_size(self, copy):
        settings = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**settings, "hidden_size": 24}))
        with pytest.raises(RandomSetError, match="cannot be loaded from its folder"):
            backbones.build(f"hf:{copy}", weights="default")

    def test_weights_that_run_code(self, copy, capsys):
        (copy / "model.safetensors").unlink()
        torch.save({"x": Evil()}, copy / "pytorch_model.bin")
        with pytest.raises(RandomSetError, match="cannot be loaded from its folder"):
            backbones.build(f"hf:{copy}", weights="default")
        assert "never" not in capsys.readouterr().out

    def test_its_own_file_by_name(self, folder, tmp_path):
        tokens = tokenised(TEXTS, load_tokenizer(folder))
        expected = backbones.build(f"hf:{folder}", weights="default").eval()(tokens)
        state = {**load_file(folder / "model.safetensors"), "embeddings.position_ids": torch.arange(32)[None]}
        save_file(state, tmp_path / "old.safetensors")  # older files hold what newer networks compute
        for file in (folder / "model.safetensors", tmp_path / "old.safetensors"):
            assert torch.equal(backbones.build(f"hf:{folder}", weights=file).eval()(tokens), expected)
        torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "other.pt")
        with pytest.raises(RandomSetError, match="another architecture"):
            backbones.build(f"hf:{folder}", weights=tmp_path / "other.pt")


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """A vision transformer of one layer."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    place = tmp_path_factory.mktemp("vit")
    ViTModel(ViTConfig(image_size=16, patch_size=8, **sizes)).save_pretrained(str(place))
    return place


class TestImages:
    def test_grey_images_are_repeated_for_trained_weights(self, transformer, tmp_path):
        backbone = backbones.build(
            f"hf:{transformer}", weights="default", in_channels=1, image_size=16
        ).eval()
        grey = torch.rand(2, 1, 16, 16)
        assert torch.equal(backbone(grey), backbone(grey.expand(-1, 3, -1, -1)))
        assert "0.5" in backbone.habits.remark
        network = RandomSetNetwork(backbone, Budget.singletons(3)).eval()
        network.save(tmp_path)
        assert torch.equal(RandomSetNetwork.load(tmp_path)(grey), network(grey))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"in_channels": 4, "weights": "default"}, "for images of 3 channels; got 4"),
            ({"image_size": 32, "weights": "default"}, "one size only.*expected 16 × 16.*--size 16"),
            ({"image_size": 20}, "cannot be cut into.*expected a multiple of 8.*--size 16"),
        ],
    )
    def test_images_that_do_not_fit(self, transformer, options, message):
        with pytest.raises(RandomSetError, match=message):
            backbones.build(f"hf:{transformer}", **options)


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
