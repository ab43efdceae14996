"""`randomset evaluate`: what is measured, drawn and rejected."""

import json
import shutil
import sys

import numpy as np
import pytest

from randomset.evaluation import Evaluation
from tests.commands import run, run_here, threshold_of


@pytest.mark.slow
class TestEvaluate:
    def test_an_evaluation(self, trained):
        folder, _ = trained
        shutil.copytree(folder / "run", folder / "measured")
        rng = np.random.default_rng(0)
        np.savez(folder / "noise.npz", images=rng.integers(0, 256, (60, 28, 28, 3), dtype=np.uint8))
        options = ("--samples", 20, "--keep", 0.9, "--score", "credal width", "--alpha", 0.1)
        out = run("evaluate", "measured", "--ood", "noise=noise.npz", *options, cwd=folder)
        assert out.returncode == 0, out.stderr
        result = Evaluation.load(folder / "measured")
        assert result["test"]["samples"] == 359
        assert result["test"]["accuracy"] == pytest.approx(
            json.loads((folder / "run" / "test.json").read_text())["accuracy"]
        )
        assert result["ood"]["noise"]["samples"] == 60
        assert result["conformal"]["samples"] == 90
        assert result["conformal"]["alpha"] == 0.1
        assert len(result["noise"]) == len(result["rotation"]) == 8
        assert "noise: colour converted to grey" in result["remarks"]
        threshold = threshold_of(folder / "measured")
        assert (threshold.score, threshold.share) == ("credal width", 0.9)
        assert result["threshold"]["value"] == threshold.value
        assert len(list((folder / "measured" / "figures").glob("*.png"))) == 11 + ("reliability" in result)
        page = (folder / "measured" / "report.html").read_text(encoding="utf-8")
        assert "noise: least certain" in page
        assert f"accuracy {100 * result['test']['accuracy']:.2f} %" in out.stdout
        assert "Wrote measured/evaluation.json." in out.stdout
        again = run("evaluate", "measured", "--ood", "noise.npz", *options, "--no-figures", cwd=folder)
        assert again.returncode == 0, again.stderr
        assert Evaluation.load(folder / "measured")["ood"] == result["ood"]  # named by its file, the same
        (folder / "measured" / "report.html").unlink()
        out = run("report", "measured", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "noise: least certain" in (folder / "measured" / "report.html").read_text(encoding="utf-8")
        (folder / "noise.npz").rename(folder / "moved.npz")
        out = run("report", "measured", "--out", "elsewhere", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "The report has no samples of noise" in out.stderr
        page = (folder / "elsewhere" / "report.html").read_text(encoding="utf-8")
        assert "Known or unknown?" in page
        assert "<h2>Most certain</h2>" in page  # those of the test data are still there
        assert "noise: most certain" not in page
        (folder / "measured" / "clusters.json").write_text('{"classes": []}', encoding="utf-8")
        out = run("report", "measured", "--out", "elsewhere", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "ellipsoids are not drawn" in out.stderr
        (folder / "moved.npz").rename(folder / "noise.npz")

    @pytest.mark.parametrize("arguments", [("evaluate", "run"), ("compare", "digits")])
    def test_figures_that_cannot_be_drawn_are_known_before_the_work(
        self, trained, arguments, monkeypatch, capsys
    ):
        folder, _ = trained
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        code, error = run_here(monkeypatch, capsys, *arguments, cwd=folder)
        assert code == 2
        assert "pip install 'randomset[plot]', or pass --no-figures" in error

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--ood", "digits"], "digits overlaps with the test data; got 359 of 1797"),
            (["--ood", "a="], "NAME=SOURCE"),
            (["--ood", "a=nothing.npz"], "no such data"),
            (["--ood", "a=noise"], "Save random inputs as a file"),
            (["--ood", "mnist"], "data set mnist not found"),
            (["--test", "one.npz"], "only one class"),
            (["--test", "other.npz"], "unknown class; got x"),
            (["--score", "depth"], "unknown score"),
            (["--keep", "1.5"], "keep is out of range"),
            (["--samples", "0"], "--samples"),
            (["--ood-samples", "-5"], "--ood-samples"),
            (["--seed", "99999999999999999999999"], "--seed"),
            (["--test", "a" * 300], "invalid path"),
            (["--ood", "test=digits"], "reserved name in ood"),
        ],
    )
    def test_mistakes_of_evaluation(self, trained, arguments, message, monkeypatch, capsys):
        folder, _ = trained
        np.savez(folder / "one.npz", images=np.ones((3, 8, 8)), labels=np.zeros(3, int))
        np.savez(folder / "other.npz", images=np.ones((2, 8, 8)), labels=np.array(["x", "1"]))
        monkeypatch.setenv("RANDOMSET_DATA", str(folder))
        code, error = run_here(monkeypatch, capsys, "evaluate", "run", *arguments, cwd=folder)
        assert code == 2
        assert message in error
        assert "Traceback" not in error
        assert not (folder / "run" / "evaluation.json").exists()

    def test_training_samples_are_not_test_samples(self, trained):
        """Naming the training source means its held-out samples."""
        folder, _ = trained
        shutil.copytree(folder / "run", folder / "named")
        options = ("--no-figures", "--no-sweeps", "--out", "results")
        out = run("evaluate", "named", "--test", "digits", "--validation", "digits", *options, cwd=folder)
        assert out.returncode == 0, out.stderr
        assert Evaluation.load(folder / "results")["test"]["samples"] == 359
        assert threshold_of(folder / "named") == threshold_of(folder / "run")
