"""Weights and models of other libraries: local files first, what is read, what is rejected, and matching."""

import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from randomset import backbones
from randomset.backbones.weights import (
    download_weights,
    load_from_hub,
    load_weights_into,
    read_weights,
)
from randomset.errors import FileFormatError, RandomSetError
from tests.backbones.conftest import RunsCode


def classifier(outputs=3):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))


class TestReading:
    @pytest.mark.parametrize("kind", ["safetensors", "pt", "state_dict", "model", "module."])
    def test_all_formats_hold_the_same_tensors(self, kind, tmp_path):
        state = classifier().state_dict()
        path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pt")
        if kind == "safetensors":
            save_file(state, path)
        elif kind == "module.":
            torch.save({f"module.{name}": tensor for name, tensor in state.items()}, path)
        else:
            torch.save(state if kind == "pt" else {kind: state, "epoch": 3}, path)
        weights = read_weights(path)
        assert list(weights) == list(state) or kind == "safetensors"
        assert all(torch.equal(weights[name], tensor) for name, tensor in state.items())

    def test_a_pickle_is_rejected_and_not_run(self, tmp_path, capsys):
        for number, content in enumerate((RunsCode(), {"weights": RunsCode()})):
            path = tmp_path / f"{number}.pth"
            torch.save(content, path)
            with pytest.raises(FileFormatError, match=r"does not contain only weights.*would call print"):
                read_weights(path)
            path.write_bytes(pickle.dumps(content))
            with pytest.raises(FileFormatError, match="does not contain only weights"):
                read_weights(path)
        assert "never" not in capsys.readouterr().out

    @pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04]."])
    def test_files_in_another_format(self, content, tmp_path):
        for name in ("w.pt", "w.safetensors"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(FileFormatError):
                read_weights(tmp_path / name)

    def test_other_contents(self, tmp_path):
        for content in ([torch.zeros(1)], {"a": 1.0}, {}, torch.zeros(3)):
            torch.save(content, tmp_path / "w.pt")
            with pytest.raises(FileFormatError, match="does not contain named tensors"):
                read_weights(tmp_path / "w.pt")
        with pytest.raises(FileFormatError, match="weights file not found"):
            read_weights(tmp_path / "nothing.pt")


class TestLoading:
    def test_by_name_without_the_classifier(self):
        trained, model = classifier(1000), classifier()
        before = model[3].weight.clone()
        assert load_weights_into(model, trained.state_dict(), "3", "file") == ""
        assert torch.equal(model[0].weight, trained[0].weight)
        assert torch.equal(model[3].weight, before)

    def test_by_order_if_no_name_matches(self):
        trained, model = classifier(), classifier()
        renamed = {f"layer_{number}": t for number, t in enumerate(trained.state_dict().values())}
        assert "by order" in load_weights_into(model, renamed, "3", "file")
        assert torch.equal(model[0].weight, trained[0].weight)

    def test_another_architecture_is_reported_by_tensor_names(self):
        state = classifier().state_dict()
        del state["0.bias"]
        state["9.weight"] = torch.zeros(2)
        state["0.weight"] = torch.zeros(8, 5)
        with pytest.raises(FileFormatError, match="different architecture") as error:
            load_weights_into(classifier(), state, "3", "file.pt")
        for part in (
            "1 missing (0.bias)",
            "1 unexpected (9.weight)",
            "1 with a different shape (0.weight)",
            "file.pt",
        ):
            assert part in str(error.value)

    def test_two_classifiers(self):
        trained, model = classifier(1000), classifier()
        assert load_weights_into(model, trained.state_dict(), ("3", "4"), "file") == ""
        assert torch.equal(model[0].weight, trained[0].weight)

    def test_weights_with_nan(self):
        state = classifier().state_dict()
        state["0.bias"][2] = float("nan")
        with pytest.raises(FileFormatError, match=r"NaN or infinite values; got file: 0.bias"):
            load_weights_into(classifier(), state, "3", "file")

    def test_one_of_our_backbones(self, tmp_path):
        from randomset.training.preparation import backbone_for

        torch.manual_seed(0)
        trained, images = backbones.small_cnn(image_size=8), torch.zeros(2, 1, 8, 8)
        torch.save(trained.state_dict(), tmp_path / "w.pt")
        backbone = backbone_for("small_cnn", images, weights=str(tmp_path / "w.pt"))
        assert torch.equal(backbone(images), trained(images))
        with pytest.raises(FileFormatError, match="different architecture"):
            backbone_for("resnet18", images, 16, weights=str(tmp_path / "w.pt"))


class TestDownloadWeights:
    URL = "https://example.com/models/weights-0123.pth"

    def test_cached_files_come_first(self, cache):
        torch.save({}, cache / "weights-0123.pth")
        assert download_weights(self.URL, "torchvision:net") == cache / "weights-0123.pth"

    def test_a_failed_download_names_file_and_folder(self, cache):
        with pytest.raises(RandomSetError, match=r"not on this machine.*torchvision:net") as error:
            download_weights(self.URL, "torchvision:net")
        assert f"weights-0123.pth in {cache}" in str(error.value)
        assert "--weights FILE" in str(error.value)


class TestLoadFromHub:
    def load(self, calls):
        def load(name, **options):
            calls.append(options["local_files_only"])
            assert options["trust_remote_code"] is False
            raise OSError("\nno such file\nmore lines")

        return load

    def test_a_folder_without_a_model(self, tmp_path):
        with pytest.raises(RandomSetError, match="does not contain a Hugging Face model"):
            load_from_hub(self.load([]), str(tmp_path), "tokenizer.json")

    @pytest.mark.parametrize(("offline", "expected"), [("1", [True]), ("0", [True, False])])
    def test_the_hub_is_asked_last_and_never_offline(self, monkeypatch, offline, expected):
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
        calls = []
        with pytest.raises(RandomSetError, match=r"not on this machine.*\(no such file\)") as error:
            load_from_hub(self.load(calls), "nobody/no-such-model", "tokenizer.json")
        assert calls == expected
        assert "hf:FOLDER" in str(error.value)

    def test_folders_are_only_local(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        (tmp_path / "config.json").touch()
        calls = []
        with pytest.raises(RandomSetError, match="cannot be loaded from its folder"):
            load_from_hub(self.load(calls), str(tmp_path), "tokenizer.json")
        assert calls == [True]

    def test_invalid_names_are_never_looked_up(self):
        calls = []
        with pytest.raises(RandomSetError, match="neither a folder nor a valid model name"):
            load_from_hub(self.load(calls), "https://huggingface.co/x/y", "config.json")
        assert not calls
