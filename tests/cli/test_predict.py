"""`randomset predict`: answers as CSV and JSON Lines, for arrays and folders of images."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import randomset
from randomset import Budget
from randomset.evaluation import Threshold
from tests.commands import run, run_here, threshold_of


@pytest.mark.slow
class TestPredict:
    def test_predictions_as_csv(self, trained):
        folder, _ = trained
        images = load_digits().images[:7] / 16
        np.savez(folder / "some.npz", images=images)
        out = run("predict", "run", "some.npz", "digits", "--probabilities", cwd=folder)
        assert out.returncode == 0, out.stderr
        rows = list(csv.DictReader(io.StringIO(out.stdout)))
        assert len(rows) == 7 + 1797
        network = randomset.RandomSetNetwork.load(folder / "run")
        answer = network.predict(torch.tensor(images, dtype=torch.float32)[:, None])
        for row, label, confidence, width in zip(
            rows, answer.label_names, answer.confidence, answer.credal_width, strict=False
        ):
            assert row["input"] == "some.npz"
            assert row["label"] == label
            assert float(row["confidence"]) == pytest.approx(confidence.item(), rel=1e-4)
            assert float(row["credal_width"]) == pytest.approx(width.item(), abs=1e-4)
            assert float(row["lower"]) <= float(row["confidence"]) <= float(row["upper"])
            assert row["known"] == str(float(row["entropy"]) <= threshold_of(folder / "run").value)
            assert sum(float(row[f"p({c})"]) for c in range(10)) == pytest.approx(1, abs=1e-3)

    def test_predictions_as_jsonl_into_a_file(self, trained):
        folder, _ = trained
        out = run("predict", "run", "digits", "--format", "jsonl", "--out", "a/b.jsonl", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "Wrote 1797 predictions into a/b.jsonl" in out.stdout
        lines = [json.loads(line) for line in (folder / "a" / "b.jsonl").read_text().splitlines()]
        assert len(lines) == 1797
        assert sum(part["mass"] for part in lines[0]["masses"]) == pytest.approx(1, abs=1e-4)
        assert lines[0]["probabilities"][lines[0]["label"]] == pytest.approx(lines[0]["confidence"])

    def test_images_in_a_folder_are_converted_and_named(self, trained):
        folder, _ = trained
        (folder / "photos").mkdir()
        for name, size in (("a.png", (40, 30)), ("b.jpg", (9, 9))):
            Image.fromarray(np.full((*size, 3), 128, np.uint8)).save(folder / "photos" / name)
        (folder / "photos" / "c.png").write_text("no image")
        out = run("predict", "run", "photos", cwd=folder)
        assert out.returncode == 0, out.stderr
        rows = list(csv.DictReader(io.StringIO(out.stdout)))
        assert [row["input"] for row in rows] == ["photos/a.png", "photos/b.jpg"]
        assert "photos: colour converted to grey." in out.stderr
        assert "1 of 3 images could not be read" in out.stderr
        alone = run("predict", "run", "photos/a.png", cwd=folder)
        (single,) = csv.DictReader(io.StringIO(alone.stdout))
        assert (single["input"], single["label"]) == ("photos/a.png", rows[0]["label"])
        strict = run("predict", "run", "photos", "--strict", cwd=folder)
        assert strict.returncode == 2
        assert "c.png" in strict.stderr
        assert "Traceback" not in strict.stderr

    def test_images_on_another_scale_are_refused(self, trained):
        folder, _ = trained
        np.savez(folder / "large.npz", images=load_digits().images[:7] * 16.0)
        out = run("predict", "run", "large.npz", cwd=folder)
        assert out.returncode == 2
        assert "a different scale" in out.stderr
        np.savez(folder / "whole.npz", images=(load_digits().images[:7] / 16 * 255).astype(np.int64))
        assert run("predict", "run", "whole.npz", cwd=folder).returncode == 0


def test_reliability_of_predictions(tmp_path, monkeypatch, capsys):
    network = randomset.RandomSetNetwork(randomset.backbones.base.mlp(4), Budget.powerset(3)).eval()
    inputs = torch.randn(200, 4)
    network.fit_reliability((inputs, torch.arange(200) % 3), (inputs[:50], torch.arange(50) % 3))
    network.notes = {"input_shape": [4]}
    network.save(tmp_path / "run")
    Threshold("1 - reliability", 0.5, 0.95).save(tmp_path / "run")
    rows = torch.cat((inputs[:3], 100 * inputs[:3]))
    np.savez(tmp_path / "x.npz", features=rows.numpy())
    for format in ("csv", "jsonl"):
        options = ("--format", format, "--out", f"y.{format}")
        assert run_here(monkeypatch, capsys, "predict", "run", "x.npz", *options, cwd=tmp_path)[0] == 0
    expected = network.predict(rows).reliability.tolist()
    table = list(csv.DictReader(io.StringIO((tmp_path / "y.csv").read_text())))
    assert [float(row["reliability"]) for row in table] == pytest.approx(expected, rel=1e-4)
    assert [row["known"] for row in table[3:]] == ["False"] * 3
    lines = [json.loads(line) for line in (tmp_path / "y.jsonl").read_text().splitlines()]
    assert [line["reliability"] for line in lines] == pytest.approx(expected)


def test_inputs_that_do_not_fit_the_network(tmp_path, monkeypatch, capsys):
    network = randomset.RandomSetNetwork(randomset.backbones.base.mlp(5), Budget.singletons(3))
    network.save(tmp_path / "run")
    np.savez(tmp_path / "x.npz", features=np.ones((2, 4)))
    code, error = run_here(monkeypatch, capsys, "predict", "run", "x.npz", "--out", "y.csv", cwd=tmp_path)
    assert code == 2
    assert "(1, 4)" in error
    assert not (tmp_path / "y.csv").exists()
    network.notes = {"input_shape": [5]}
    network.save(tmp_path / "run")
    code, error = run_here(monkeypatch, capsys, "predict", "run", "x.npz", cwd=tmp_path)
    assert code == 2
    assert "expected n × 5 numbers" in error
