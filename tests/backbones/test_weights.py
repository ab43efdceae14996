"""Weights in files: what is read, what is refused, and how they find their places."""

import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from randomset import backbones
from randomset.backbones.weights import fill, read_weights
from randomset.errors import FileFormatError


def classifier(outputs=3):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))


class Evil:
    def __reduce__(self):
        return (print, ("this must never be seen",))


class TestReading:
    @pytest.mark.parametrize("kind", ["safetensors", "pt", "state_dict", "model", "module."])
    def test_the_same_tensors_whatever_the_wrapping(self, kind, tmp_path):
        state = classifier().state_dict()
        path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pt")
        if kind == "safetensors":
            save_file(state, path)
        elif kind == "module.":
            torch.save({f"module.{name}": tensor for name, tensor in state.items()}, path)
        else:
            torch.save(state if kind == "pt" else {kind: state, "epoch": 3}, path)
        found = read_weights(path)
        assert list(found) == list(state) or kind == "safetensors"
        assert all(torch.equal(found[name], tensor) for name, tensor in state.items())

    def test_a_pickle_is_refused_and_not_run(self, tmp_path, capsys):
        for number, content in enumerate((Evil(), {"weights": Evil()})):
            path = tmp_path / f"{number}.pth"
            torch.save(content, path)
            with pytest.raises(FileFormatError, match=r"more than weights.*calls print when"):
                read_weights(path)
            path.write_bytes(pickle.dumps(content))
            with pytest.raises(FileFormatError, match="no weights, or more than weights"):
                read_weights(path)
        assert "never" not in capsys.readouterr().out

    @pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04]."])
    def test_files_that_are_none(self, content, tmp_path):
        for name in ("w.pt", "w.safetensors"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(FileFormatError):
                read_weights(tmp_path / name)

    def test_other_contents(self, tmp_path):
        for content in ([torch.zeros(1)], {"a": 1.0}, {}, torch.zeros(3)):
            torch.save(content, tmp_path / "w.pt")
            with pytest.raises(FileFormatError, match="no weights by name"):
                read_weights(tmp_path / "w.pt")
        with pytest.raises(FileFormatError, match="there is no file of weights"):
            read_weights(tmp_path / "nothing.pt")


class TestFilling:
    def test_by_name_without_the_classifier(self):
        trained, model = classifier(1000), classifier()
        before = model[3].weight.clone()
        assert fill(model, trained.state_dict(), "3", "file") == ""
        assert torch.equal(model[0].weight, trained[0].weight)
        assert torch.equal(model[3].weight, before)

    def test_by_order_where_all_names_are_others(self):
        trained, model = classifier(), classifier()
        renamed = {f"layer_{number}": t for number, t in enumerate(trained.state_dict().values())}
        assert "by their order" in fill(model, renamed, "3", "file")
        assert torch.equal(model[0].weight, trained[0].weight)

    def test_another_architecture_is_told_by_its_keys(self):
        state = classifier().state_dict()
        del state["0.bias"]
        state["9.weight"] = torch.zeros(2)
        state["0.weight"] = torch.zeros(8, 5)
        with pytest.raises(FileFormatError, match="another architecture") as error:
            fill(classifier(), state, "3", "file.pt")
        for part in ("missing (0.bias)", "unknown to it (9.weight)", "another shape (0.weight)", "file.pt"):
            assert part in str(error.value)

    def test_two_classifiers(self):
        trained, model = classifier(1000), classifier()
        assert fill(model, trained.state_dict(), ("3", "4"), "file") == ""
        assert torch.equal(model[0].weight, trained[0].weight)

    def test_weights_that_are_no_numbers(self):
        state = classifier().state_dict()
        state["0.bias"][2] = float("nan")
        with pytest.raises(FileFormatError, match=r"not all finite numbers; got file: 0.bias"):
            fill(classifier(), state, "3", "file")

    def test_a_backbone_of_ours(self, tmp_path):
        from randomset.training.preparation import backbone_for

        torch.manual_seed(0)
        trained, images = backbones.small_cnn(image_size=8), torch.zeros(2, 1, 8, 8)
        torch.save(trained.state_dict(), tmp_path / "w.pt")
        found = backbone_for("small_cnn", images, weights=str(tmp_path / "w.pt"))
        assert torch.equal(found(images), trained(images))
        with pytest.raises(FileFormatError, match="another architecture"):
            backbone_for("resnet18", images, 16, weights=str(tmp_path / "w.pt"))
