"""Published weights and models: local files first, and errors that name what is missing."""

import pytest
import torch

from randomset.backbones.hub import download_weights, first_line, load_from_hub
from randomset.errors import RandomSetError


class TestDownloadWeights:
    URL = "https://example.com/models/weights-0123.pth"

    @pytest.fixture
    def cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # no network
        folder = tmp_path / "hub" / "checkpoints"
        folder.mkdir(parents=True)
        return folder

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


def test_first_line():
    assert first_line(ValueError("\na\nb")) == "a"
    assert first_line(ValueError()) == "ValueError"
