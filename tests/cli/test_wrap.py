"""`randomset wrap`: a softmax run becomes a random-set run, and every command works on it."""

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch

import randomset as rs
from randomset import backbones
from randomset.backbones.hugging_face import load_tokenizer, tokenize
from randomset.data import load_source
from randomset.errors import FileFormatError, LabelError, RandomSetError
from randomset.models import Softmax, load
from tests.commands import run, run_here
from tests.serving.conftest import served
from tests.texts import WORDS, documents, tiny_bert


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A softmax run, and the same wrapped."""
    folder = tmp_path_factory.mktemp("wrap")
    rng = np.random.default_rng(0)
    np.savez(folder / "noise.npz", images=rng.random((60, 8, 8)))
    out = run("train", "digits", "--method", "softmax", "--epochs", 5, "--out", "softmax", cwd=folder)
    assert out.returncode == 0, out.stderr
    out = run("wrap", "softmax", "--out", "run", cwd=folder)
    assert out.returncode == 0, out.stderr
    (folder / "printed").write_text(out.stdout, encoding="utf-8")
    return folder


@pytest.mark.slow
class TestWrap:
    def test_the_run_folder(self, folder):
        printed = (folder / "printed").read_text(encoding="utf-8")
        assert "1168 samples to take features from, 180 to validate" in printed
        assert "Calibrated on 180 samples by SoftmaxTemperature" in printed
        assert "Reliability (auto) fitted on 180 validation samples" in printed
        assert printed.splitlines()[-2].startswith("Wrote model.safetensors, budget.json")
        assert printed.splitlines()[-1].startswith("Next: randomset evaluate run")
        tests = [json.loads((folder / name / "test.json").read_text()) for name in ("softmax", "run")]
        assert tests[0]["accuracy"] == tests[1]["accuracy"]
        splits = [json.loads((folder / name / "split.json").read_text()) for name in ("softmax", "run")]
        assert splits[0] == splits[1]
        found = rs.Run(folder / "run")
        assert found.config.method == "wrapped"
        assert (found.seconds or 0) > (rs.Run(folder / "softmax").seconds or 0) > 0
        digits = load_source("digits").inputs
        model, base = found.model, load(folder / "softmax")
        assert torch.equal(model.predict(digits).labels, base.predict(digits).labels)
        assert model.classes == base.classes

    def test_evaluate_and_report(self, folder):
        out = run("evaluate", "run", "--ood", "noise=noise.npz", "--no-sweeps", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert (folder / "run" / "report.html").exists()
        numbers = json.loads((folder / "run" / "evaluation.json").read_text())
        assert "1 - reliability" in numbers["ood"]["noise"]["scores"]

    def test_predict(self, folder):
        out = run("predict", "run", "noise.npz", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert len(out.stdout.splitlines()) == 61
        assert "credal_width" in out.stdout.splitlines()[0]

    def test_export(self, folder):
        out = run("export", "run", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "reliability, familiar, known" in out.stdout
        assert float(out.stdout.split("within ")[1].split()[0]) < 1e-5

    def test_serve(self, folder):
        with served(folder / "run") as client:
            assert client.get("/model").json()["method"] == "wrapped"
            answer = client.post("/predict", json={"inputs": np.full((1, 8, 8), 0.5).tolist()})
            assert answer.status_code == 200, answer.text

    def test_compare_wraps_the_softmax_run(self, folder):
        options = ("--methods", "softmax,wrapped", "--seeds", 1, "--epochs", 2, "--no-figures")
        out = run("compare", "digits", *options, "--out", "comparison", cwd=folder)
        assert out.returncode == 0, out.stderr
        runs = [folder / "comparison" / name / "seed-0" for name in ("softmax", "wrapped")]
        accuracies = [json.loads((path / "test.json").read_text())["accuracy"] for path in runs]
        assert accuracies[0] == accuracies[1]

    def test_other_data_than_the_training_data(self, folder):
        """Samples that the classifier was trained on are not held out, whatever their file."""
        digits = load_source("digits")
        images, labels = digits.inputs.numpy(), digits.labels.numpy()
        extra = np.flip(images, -1).copy()
        np.savez(
            folder / "more.npz",
            images=np.concatenate([images, extra]),
            labels=np.concatenate([labels, labels]),
        )
        rs.Run.wrap(folder / "softmax", folder / "other", folder / "more.npz", validation=0.2, seed=1)
        split = json.loads((folder / "softmax" / "split.json").read_text())
        used = {*range(1797)} - set(split["test"])
        stored = json.loads((folder / "other" / "split.json").read_text())
        held = [*stored["validation"], *stored["calibration"], *stored["test"]]
        assert len(stored["validation"]) > 300
        assert not used & set(held)
        rs.Run(folder / "other").evaluate(sweeps=False)

    def test_a_model_without_a_run(self, folder, caplog):
        torch.manual_seed(0)
        digits = load_source("digits")
        model = Softmax(backbones.small_cnn(image_size=8), 10)
        rs.fit(model, (digits.inputs[:900].float(), digits.labels[:900]), epochs=3, progress=False)
        model.save(folder / "model")
        np.savez(folder / "rest.npz", images=digits.inputs[900:].numpy(), labels=digits.labels[900:].numpy())
        result = rs.Run.wrap(folder / "model", folder / "from-model", folder / "rest.npz")
        assert "does not record which samples the classifier was trained on" in caplog.text
        inputs = digits.inputs[900:].float()
        assert torch.equal(result.model.predict(inputs).labels, model.predict(inputs).labels)
        assert result.threshold is not None


class TestMistakes:
    @pytest.fixture
    def base(self, tmp_path):
        model = Softmax(backbones.mlp(4, (8,)), ("a", "b", "c"))
        model.save(tmp_path / "model")
        rng = np.random.default_rng(0)
        for name, classes in (("three", 3), ("two", 2), ("four", 4)):
            labels = np.arange(120) % classes
            features = rng.normal(size=(120, 4)) + labels[:, None]
            np.savez(
                tmp_path / f"{name}.npz", features=features, labels=labels, classes=list("abcd"[:classes])
            )
        return tmp_path

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("model",), "no source was given; expected labelled data"),
            (("nothing", "three.npz"), "no such classifier; got nothing"),
            (("timm:resnet50", "three.npz"), "pip install 'randomset[vision]'"),
            (("timm:resnet50",), "no source was given; got timm:resnet50"),
            (
                ("bert:resnet50", "three.npz"),
                "no such classifier; got bert:resnet50; expected the run folder",
            ),
            (("three.npz", "three.npz"), "file of weights does not identify its network"),
            (("model", "three.npz", "--size", "8"), "weights and size apply to a network given by name"),
            (("model", "four.npz"), "the data contain an unknown class; got d"),
            (("model", "three.npz", "--reliability", "magic"), "unknown kind of reliability; got magic"),
            (("model", "three.npz", "--validation", "-1"), "validation is out of range"),
            (("model", "three.npz", "--validation", "5"), "too few validation samples"),
        ],
    )
    def test_messages(self, base, monkeypatch, capsys, arguments, message):
        code, error = run_here(monkeypatch, capsys, "wrap", *arguments, "--out", "run", cwd=base)
        assert code == 2
        assert message in error
        assert not (base / "run" / "config.json").exists()

    def test_a_folder_with_a_run(self, base, monkeypatch, capsys):
        (base / "run").mkdir()
        (base / "run" / "config.json").write_text("{}")
        code, error = run_here(monkeypatch, capsys, "wrap", "model", "three.npz", "--out", "run", cwd=base)
        assert code == 2
        assert "already contains a run" in error

    @pytest.mark.slow
    def test_its_own_split_and_other_methods(self, folder, monkeypatch, capsys):
        code, error = run_here(
            monkeypatch, capsys, "wrap", "softmax", "--seed", "3", "--out", "x", cwd=folder
        )
        assert code == 2
        assert "the classifier's run keeps its own split; got seed 3" in error
        code, error = run_here(monkeypatch, capsys, "wrap", "run", "--out", "x", cwd=folder)
        assert code == 2
        assert "already a random-set network" in error
        shutil.rmtree(folder / "x", ignore_errors=True)


def test_what_is_missing_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrapped").mkdir()
    (tmp_path / "wrapped" / "config.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"no such classifier; got .*nothere"):
        rs.Run.wrap("nothere", "wrapped")
    (tmp_path / "here").mkdir()
    with pytest.raises(RandomSetError, match="needs a reliability; got none"):
        rs.Run.wrap("here", "new", reliability="none")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A Hugging Face classifier of texts in a folder, and texts with its own labels."""
    from transformers import BertConfig, BertForSequenceClassification

    folder = tiny_bert(tmp_path_factory.mktemp("texts") / "bert")
    config = BertConfig.from_pretrained(folder, num_labels=3, id2label=dict(enumerate(WORDS[:3])))
    config.initializer_range = 0.5
    torch.manual_seed(0)
    classifier = BertForSequenceClassification(config).eval()
    texts, _ = documents(300)
    texts = sorted(set(texts))
    tokens = tokenize(texts, load_tokenizer(folder), 32)
    with torch.no_grad():
        logits = classifier(input_ids=tokens.clamp_min(0), attention_mask=(tokens >= 0).long()).logits
        classifier.classifier.bias.sub_(logits.mean(0))  # so that every class occurs
        labels = (logits - logits.mean(0)).argmax(1)
    classifier.save_pretrained(folder)
    rows = [f"{text},{WORDS[label]}" for text, label in zip(texts, labels.tolist(), strict=True)]
    (folder.parent / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return folder.parent, texts, labels


@pytest.mark.slow
class TestHuggingFace:
    @pytest.mark.parametrize("name", ["hf:bert", "bert"])
    def test_texts(self, encoder, monkeypatch, name):
        folder, texts, labels = encoder
        monkeypatch.chdir(folder)
        wrapped = rs.Run.wrap(name, f"run-{name[:2]}", "texts.csv", validation=50)
        assert wrapped.model.classes == tuple(WORDS[:3])
        tokens = tokenize(texts, load_tokenizer(folder / "bert"), 32)
        assert torch.equal(wrapped.model.predict(tokens).labels, labels)
        assert wrapped.evaluate(sweeps=False)["test"]["accuracy"] == 1
        again = load(folder / f"run-{name[:2]}")  # rebuilt from the file alone
        assert torch.equal(again.predict(tokens).probabilities, wrapped.model.predict(tokens).probabilities)

    def test_the_commands(self, encoder):
        folder, *_ = encoder
        out = run("wrap", "hf:bert", "texts.csv", "--out", "commands", "--validation", 50, cwd=folder)
        assert out.returncode == 0, out.stderr
        out = run("predict", "commands", "texts.csv", cwd=folder)
        assert out.returncode == 0, out.stderr
        out = run("export", "commands", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert float(out.stdout.split("within ")[1].split()[0]) < 1e-5

    def test_images(self, tmp_path):
        from transformers import ViTConfig, ViTForImageClassification

        sizes: Any = {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 16,
        }
        torch.manual_seed(0)
        names = [f"kind {place}" for place in range(3)]
        named = dict(enumerate(names))
        config = ViTConfig(image_size=16, patch_size=4, num_channels=3, id2label=named, **sizes)
        classifier = ViTForImageClassification(config).eval()
        images = torch.randint(0, 256, (120, 3, 16, 16), generator=torch.Generator().manual_seed(0)).byte()
        with torch.no_grad():
            logits = classifier(images / 127.5 - 1).logits
            classifier.classifier.bias.sub_(logits.mean(0))
            labels = (logits - logits.mean(0)).argmax(1)
        classifier.save_pretrained(tmp_path / "vit")
        np.savez(tmp_path / "images.npz", images=images, labels=labels, classes=names)
        found = rs.Run.wrap(
            f"hf:{tmp_path / 'vit'}", tmp_path / "run", tmp_path / "images.npz", validation=30
        )
        assert torch.equal(load(tmp_path / "run").predict(images).labels, labels)
        assert found.model.classes == tuple(names)

    def test_mistakes(self, encoder, tmp_path, monkeypatch):
        folder, *_ = encoder
        monkeypatch.chdir(folder)
        (folder / "topics.csv").write_text("text,label\ncats purr,cats\nfish swim,fish\n")
        with pytest.raises(
            LabelError, match=r"unknown class; got fish in topics; expected .*cats, dogs, birds"
        ):
            rs.Run.wrap("hf:bert", "new", "topics.csv")
        tiny_bert(tmp_path / "encoder")
        with pytest.raises(
            FileFormatError, match=r"different architecture; got .*missing \(.*classifier.bias"
        ):
            rs.Run.wrap(f"hf:{tmp_path / 'encoder'}", "new", "texts.csv")
        with pytest.raises(RandomSetError, match="no source was given; got hf:bert"):
            rs.Run.wrap("hf:bert", "new")
        with pytest.raises(RandomSetError, match="the network takes texts; got digits with images"):
            rs.Run.wrap("hf:bert", "new", "digits")
        assert not any((folder / "new").glob("*[!.lock]"))
