"""`randomset compare`: several methods in one table."""

import csv
import io
import json
import re
import shutil

import numpy as np
import pytest

from randomset._core.files import lock_folder
from randomset.evaluation import Evaluation
from tests.commands import run, run_here, threshold_of


@pytest.mark.slow
class TestComparison:
    """Two methods, one seed, one epoch."""

    OPTIONS = ("--methods", "rsnn,softmax", "--ood", "noise=noise.npz", "--seeds", 1, "--out", "c")

    @pytest.fixture(scope="class")
    @classmethod
    def compared(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("compared")
        rng = np.random.default_rng(0)
        np.savez(folder / "noise.npz", images=rng.integers(0, 256, (60, 8, 8), dtype=np.uint8))
        np.savez(folder / "table.npz", features=rng.normal(size=(9, 64)))
        out = run("compare", "digits", *cls.OPTIONS, "--epochs", 1, cwd=folder)
        assert out.returncode == 0, out.stderr
        return folder, out.stdout

    def test_the_table_and_the_runs(self, compared):
        folder, printed = compared
        table = (folder / "c" / "comparison.md").read_text()
        assert re.search(
            r"rsnn \(1\)\s+softmax \(1\)\naccuracy, %", printed
        )  # for a terminal, the other way round
        assert "| rsnn (1 seed) |" in table
        assert "noise: AUROC, %" in table
        assert "**" not in table  # one seed says nothing about who leads
        values = json.loads((folder / "c" / "comparison.json").read_text())["values"]
        for method in ("rsnn", "softmax"):
            place = folder / "c" / method / "seed-0"
            found = Evaluation.load(place / "comparison")
            assert values["accuracy, %"][method] == [100 * found["test"]["accuracy"]]
            assert values["ECE, one temperature"][method] == [found["test"]["scaled"]["ece"]]
            assert found["ood"]["noise"]["samples"] == 60
            assert values["one prediction, ms"][method][0] > 0
            assert 0 < values["training, s"][method][0] < 600
        names = {path.name for path in (folder / "c" / "figures").iterdir()}
        assert names == {"curves_noise.png", "entropies.png"}
        assert "2 methods, 1 seed each" in (folder / "c" / "report.html").read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO((folder / "c" / "comparison.csv").read_text())))
        assert [row["method"] for row in rows] == ["rsnn", "softmax"]

    def test_existing_runs_are_reused(self, compared):
        folder, _ = compared
        before = (folder / "c" / "rsnn" / "seed-0" / "model.safetensors").stat().st_mtime_ns
        (folder / "c" / "softmax" / "seed-0" / "test.json").unlink()  # as if it had been interrupted there
        first = json.loads((folder / "c" / "comparison.json").read_text())["values"]
        for method in ("rsnn", "softmax"):  # what was measured is not to be had from old files
            shutil.rmtree(folder / "c" / method / "seed-0" / "comparison")
        out = run("compare", "digits", *self.OPTIONS, "--epochs", 1, cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "2 of 2: softmax, seed 0" in out.stdout
        assert "rsnn, seed 0" not in out.stdout
        assert (folder / "c" / "rsnn" / "seed-0" / "model.safetensors").stat().st_mtime_ns == before
        again = json.loads((folder / "c" / "comparison.json").read_text())["values"]
        for name in ("accuracy, %", "NLL, nats", "noise: AUROC, %", "parameters"):
            assert again[name] == first[name]

    def test_runs_with_another_start_are_rejected(self, compared):
        folder, _ = compared
        out = run("compare", "digits", *self.OPTIONS, "--epochs", 1, "--from-scratch", cwd=folder)
        assert out.returncode == 2
        assert "from_scratch False instead of True" in " ".join(out.stderr.split())
        alone = ("--methods", "softmax", "--seeds", 1, "--epochs", 1, "--from-scratch", "--no-figures")
        out = run("compare", "digits", *alone, "--out", "plain", cwd=folder)  # others have no such start
        assert out.returncode == 0, out.stderr

    def test_a_method_alone_joins_the_table(self, compared):
        folder, _ = compared
        shutil.copytree(folder / "c", folder / "d")
        options = ("--methods", "temperature", "--ood", "noise=noise.npz", "--seeds", 1, "--out", "d")
        out = run("compare", "digits", *options, "--epochs", 1, "--no-figures", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "Also in the table, since d has them: rsnn, softmax." in out.stdout
        assert "epoch 1" not in out.stderr  # the softmax network was there to build on
        rows = list(csv.DictReader(io.StringIO((folder / "d" / "comparison.csv").read_text())))
        assert [row["method"] for row in rows] == ["temperature", "rsnn", "softmax"]
        assert rows[0]["accuracy, % mean"] == rows[2]["accuracy, % mean"]

    def test_damaged_folders(self, compared, monkeypatch, capsys):
        folder, _ = compared
        shutil.copytree(folder / "c", folder / "b")
        options = [*self.OPTIONS[:-1], "b", "--epochs", 1, "--no-figures"]
        place = folder / "b" / "softmax" / "seed-0"
        (place / "model.safetensors").unlink()
        code, error = run_here(monkeypatch, capsys, "compare", "digits", *options, cwd=folder)
        assert code == 2
        assert "the run has no model file; got b/softmax/seed-0. Delete the folder" in error
        content = json.loads((place / "split.json").read_text())
        (place / "split.json").write_text(json.dumps({**content, "contents": "of other data"}))
        code, error = run_here(monkeypatch, capsys, "compare", "digits", *options, cwd=folder)
        assert code == 2
        assert "the data have changed since a run in the folder was trained" in error

    def test_two_processes_in_one_folder(self, compared, monkeypatch, capsys):
        folder, _ = compared
        code, error = 0, ""
        with lock_folder(folder / "busy"):
            code, error = run_here(monkeypatch, capsys, "train", "digits", "--out", "busy", cwd=folder)
        assert code == 2
        assert "another process is using this folder; got busy" in error

    def test_an_evaluation_of_other_data_does_not_get_into_the_table(self, compared):
        """`randomset evaluate` of a run, a new file of unknown data, a damaged file: measured again."""
        folder, _ = compared
        place = folder / "c" / "softmax" / "seed-0"
        first = json.loads((folder / "c" / "comparison.json").read_text())["values"]
        run("evaluate", place, "--no-figures", "--no-sweeps", "--ood", "noise=digits", cwd=folder)
        (place / "comparison" / "evaluation.json").write_text('{"test": 1}')
        out = run("compare", "digits", *self.OPTIONS, "--epochs", 1, cwd=folder)
        assert out.returncode == 0, out.stderr
        again = json.loads((folder / "c" / "comparison.json").read_text())["values"]
        assert again["noise: AUROC, %"] == first["noise: AUROC, %"]
        old = (folder / "noise.npz").read_bytes()
        np.savez(folder / "noise.npz", images=np.zeros((60, 8, 8), dtype=np.uint8) + 7)
        out = run("compare", "digits", *self.OPTIONS, "--epochs", 1, "--no-figures", cwd=folder)
        (folder / "noise.npz").write_bytes(old)
        changed = json.loads((folder / "c" / "comparison.json").read_text())["values"]
        assert changed["noise: AUROC, %"] != first["noise: AUROC, %"]

    def test_a_baseline_alone(self, compared):
        folder, _ = compared
        place = "c/softmax/seed-0"
        out = run("evaluate", place, "--no-figures", "--attacks", "--samples", 10, "--out", "e", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "attacks" in Evaluation.load(folder / "e")
        out = run("predict", place, "noise.npz", "--format", "jsonl", cwd=folder)
        assert out.returncode == 0, out.stderr
        lines = [json.loads(line) for line in out.stdout.splitlines()]
        assert list(lines[0]) == ["input", "row", "label", "confidence", "entropy", "known", "probabilities"]
        for line in lines:
            assert line["probabilities"][line["label"]] == line["confidence"]
            assert line["known"] == (line["entropy"] <= threshold_of(folder / place).value)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--epochs", 2], "a run with different settings; got c/rsnn/seed-0: epochs 1 instead of 2"),
            (["--learning-rate", 0.1], "learning_rate None instead of 0.1"),
            (["--ood", "noise2=nois.npz"], "nois.npz"),
            (["--ood", "test=noise.npz"], "this name is reserved"),
            (["--ood", "self=digits"], "the unknown data are the training data"),
            (
                ["--ood", "table=table.npz"],
                "of a different kind than the training data; got Source(table: 9 features",
            ),
            (["--ood-samples", 0], "--ood-samples is out of range"),
            (["--batch-size", 0], "batch_size is out of range"),
            (["--methods", "rsnn,magic"], "unknown method in --methods; got magic"),
            (["--methods", "rsnn,rsnn"], "repeats a name"),
            (["--members", "3"], "--members is for ensembles, and --methods names none; got rsnn,softmax"),
            (["--seeds", 0], "--seeds"),
            (["--ood", "="], "NAME=SOURCE"),
        ],
    )
    def test_mistakes(self, compared, options, message, monkeypatch, capsys):
        folder, _ = compared
        arguments = [*self.OPTIONS, *(["--epochs", 1] if "--epochs" not in options else []), *options]
        code, error = run_here(monkeypatch, capsys, "compare", "digits", *arguments, cwd=folder)
        assert code == 2
        assert message in error
        assert "Traceback" not in error
