"""The command line as a user runs it: paths in a process of their own, mistakes through the same door."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import randomset
from randomset import Budget, cli
from randomset.evaluation import Evaluation, Threshold
from randomset.runs.folders import alone_in
from tests.commands import run
from tests.texts import documents, tiny_bert


def start(*arguments, cwd, **extra):
    """As a user starts it: a new Python."""
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1", **extra}
    command = [sys.executable, "-m", "randomset", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)


def run_here(monkeypatch, capsys, *arguments, cwd):
    """The same `main`, in this process: (exit code, error output)."""
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["randomset", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, capsys.readouterr().err


def threshold_of(folder):
    threshold = Threshold.load(folder)
    assert threshold is not None
    return threshold


@pytest.fixture
def features(tmp_path):
    draw = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = draw.normal(size=(300, 5)) + np.array([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [9, 0, 0, 0, 0]])[y]
    np.savez(tmp_path / "features.npz", features=x, labels=y, classes=np.array(["cat", "dog", "car"]))
    return tmp_path / "features.npz"


@pytest.mark.slow
def test_budget_from_end_to_end(features, tmp_path):
    out = run(
        "budget", "features.npz", "--sets", 2, "--out", "new/budget.json", "--figures", "new", cwd=tmp_path
    )
    assert out.returncode == 0, out.stderr
    budget = Budget.from_json((tmp_path / "new" / "budget.json").read_text())
    assert budget == Budget.from_sets([{"cat", "dog"}, {"dog", "car"}], ["cat", "dog", "car"])
    assert budget.origin["overlaps"][0] > 0.3
    assert "{cat, dog}" in out.stdout
    assert "Wrote new/budget.json." in out.stdout
    assert 'Budget.load("new/budget.json")' in out.stdout
    for name in ("clusters.png", "overlaps.png"):
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_automatic_number_and_names_as_labels(features, tmp_path):
    arrays = np.load(features)
    np.savez(tmp_path / "named.npz", features=arrays["features"], labels=arrays["classes"][arrays["labels"]])
    out = run("budget", "named.npz", "--sets", "auto", cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert json.loads((tmp_path / "budget.json").read_text())["classes"] == ["car", "cat", "dog"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npz"], "does not exist; got missing.npz"),
        (["text.npz"], "cannot be read as .npz"),
        (["pickled.npz"], "it holds Python objects; expected arrays of numbers or text"),
        (["broken.npz"], "cannot be read as .npz"),
        (["features.npz", "--sets", "2", "--seed", "-1"], "the seed is not a whole number"),
        (["array.npy"], "it holds a single array"),
        (["single.npz"], "has no array 'labels'; got single.npz with features"),
        (["features.npz", "--sets", "few"], "neither a number nor auto; got few"),
        (["features.npz", "--sets", "9"], "more sets are asked for than exist"),
        (["features.npz", "--reducer", "pcb"], "unknown reducer; got pcb"),
        (["features.npz", "--coverage", "2"], "coverage is out of range"),
        (["features.npz", "--out", "."], "would replace a folder"),
        (["features.npz", "--out", "text.npz/budget.json"], "cannot be written there"),
    ],
)
def test_mistakes_end_with_code_2_and_one_clear_line(
    features, tmp_path, arguments, message, monkeypatch, capsys
):
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "single.npz", features=np.ones((3, 3)))
    np.savez(
        tmp_path / "pickled.npz", features=np.ones((3, 3)), labels=np.array(["a", None, "b"], dtype=object)
    )
    (tmp_path / "broken.npz").write_bytes(features.read_bytes()[:900])
    np.save(tmp_path / "array.npy", np.ones(3))
    (tmp_path / "budget.json").write_text("precious")
    code, told = run_here(monkeypatch, capsys, "budget", *arguments, cwd=tmp_path)
    assert code == 2
    assert message in told
    assert len(told.strip().splitlines()) == 1
    assert (tmp_path / "budget.json").read_text() == "precious"


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_an_answer(features, tmp_path):
    out = start("budget", "features.npz", "--sets", 9, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert out.returncode == 2
    assert len(out.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("option", "shown"), [("--version", randomset.__version__), ("--help", "budget")])
def test_version_and_help(option, shown, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["randomset", option])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert shown in capsys.readouterr().out


# -- train and predict ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that was trained on the command line, once for all tests."""
    folder = tmp_path_factory.mktemp("trained")
    out = start("train", "digits", "--out", "run", "--epochs", 3, "--sets", 5, cwd=folder)
    assert out.returncode == 0, out.stderr
    return folder, out.stdout


@pytest.mark.slow
@pytest.mark.slow
def test_the_demo_and_what_its_run_is_good_for(tmp_path):
    out = run("demo", "--seeds", 2, "--epochs", 6, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    rows = re.findall(r"^\| (plain|random-set) network.*", out.stdout, flags=re.M)
    assert rows == ["plain", "random-set"]
    accuracy, ece, auroc, auprc, width, _ = (
        float(cell.split("±")[0])
        for cell in re.findall(r"random-set network \| (.*) \|", out.stdout)[0].split("|")
    )
    assert accuracy > 0.9
    assert ece < 0.2
    assert min(auroc, auprc, width) > 0.7  # better than chance by far, after six epochs
    assert out.stdout.count("probability in [") == 3
    assert (tmp_path / "demo" / "predictions.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "demo" / "run" / "report.html").read_text(encoding="utf-8")
    for part in ("8 and 9: least sure", "Where classes overlap", "Sets that the network weighs", "Settings"):
        assert part in page
    assert len(page) < 5_000_000
    assert randomset.RandomSetNetwork.load(tmp_path / "demo" / "run").budget.num_classes == 8
    assert run("predict", "demo/run", "digits", cwd=tmp_path).returncode == 0
    assert run("export", "demo/run", cwd=tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "demo" / "run-1")
    (tmp_path / "demo" / "run-1").mkdir()
    out = run("demo", "--seeds", 2, "--epochs", 1, cwd=tmp_path)  # again; but nobody's folder is removed
    assert out.returncode == 2
    assert "not of a demo; got demo/run-1" in out.stderr


@pytest.mark.slow
class TestExport:
    def test_images_in_known_out(self, trained):
        import onnxruntime

        folder, _ = trained
        out = run("export", "run", "--bytes", "--out", "small.onnx", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "Wrote small.onnx" in out.stdout
        assert "of the network's own" in out.stdout
        assert out.stderr == ""
        session = onnxruntime.InferenceSession(str(folder / "small.onnx"))
        images = (randomset.data.load_source("digits").inputs[:20] * 255).byte()
        known, entropy = session.run(["known", "entropy"], {"inputs": images.numpy()})
        answer = randomset.RandomSetNetwork.load(folder / "run").predict(images)
        np.testing.assert_allclose(entropy, answer.entropy.numpy(), atol=1e-4)
        assert (known == threshold_of(folder / "run").known(answer.entropy).numpy()).all()

    def test_mistakes(self, trained, monkeypatch, capsys):
        folder, _ = trained
        for arguments, message in (
            (["run", "--format", "tflite"], "unknown format; got tflite; expected onnx or torch-export"),
            (["nowhere"], "nowhere"),
            (["run", "--out", "run"], "would replace a folder"),
        ):
            code, error = run_here(monkeypatch, capsys, "export", *arguments, cwd=folder)
            assert code == 2
            assert message in error


@pytest.mark.slow
class TestTrainAndPredict:
    def test_the_run_folder(self, trained):
        folder, said = trained
        names = {path.name for path in (folder / "run").iterdir()}
        assert names >= {"config.json", "budget.json", "model.safetensors", "metrics.csv", "checkpoints"}
        test = json.loads((folder / "run" / "test.json").read_text())
        split = json.loads((folder / "run" / "split.json").read_text())
        assert len(split["test"]) == test["samples"] == 359
        assert (len(split["validation"]), len(split["calibration"])) == (180, 90)
        digits = randomset.data.load_source("digits")
        network = randomset.RandomSetNetwork.load(folder / "run")
        answer = network.predict(digits.inputs[split["test"]])
        right = answer.labels == digits.labels[split["test"]]
        threshold = threshold_of(folder / "run")
        known = network.predict(digits.inputs[split["validation"]]).entropy <= threshold.value
        assert 0.95 <= known.double().mean() < 0.96
        assert test["accuracy"] == pytest.approx(right.float().mean().item())
        assert json.loads((folder / "run" / "config.json").read_text())["config"]["backbone"] == "small_cnn"
        assert "Calibrated on 180 samples" in said
        assert "On 359 samples that were held back: accuracy" in said
        assert said.splitlines()[-2].startswith("Wrote model.safetensors")
        assert said.splitlines()[-1].startswith("Next: randomset evaluate run --ood NAME=SOURCE")
        assert network.notes["test"]["samples"] == 359
        assert network.budget.num_sets == 5

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
        assert "photos: colour turned to grey." in out.stderr
        assert "1 of 3 images could not be read" in out.stderr
        alone = run("predict", "run", "photos/a.png", cwd=folder)
        (single,) = csv.DictReader(io.StringIO(alone.stdout))
        assert (single["input"], single["label"]) == ("photos/a.png", rows[0]["label"])
        strict = run("predict", "run", "photos", "--strict", cwd=folder)
        assert strict.returncode == 2
        assert "c.png" in strict.stderr
        assert "Traceback" not in strict.stderr

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
        assert "noise: colour turned to grey" in result["remarks"]
        threshold = threshold_of(folder / "measured")
        assert (threshold.score, threshold.share) == ("credal width", 0.9)
        assert result["threshold"]["value"] == threshold.value
        assert len(list((folder / "measured" / "figures").glob("*.png"))) == 11
        page = (folder / "measured" / "report.html").read_text(encoding="utf-8")
        assert "noise: least sure" in page
        assert f"accuracy {100 * result['test']['accuracy']:.2f} %" in out.stdout
        assert "Wrote measured/evaluation.json." in out.stdout
        again = run("evaluate", "measured", "--ood", "noise.npz", *options, "--no-figures", cwd=folder)
        assert again.returncode == 0, again.stderr
        assert Evaluation.load(folder / "measured")["ood"] == result["ood"]  # named by its file, the same
        (folder / "measured" / "report.html").unlink()
        out = run("report", "measured", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "noise: least sure" in (folder / "measured" / "report.html").read_text(encoding="utf-8")
        (folder / "noise.npz").rename(folder / "moved.npz")
        out = run("report", "measured", "--out", "elsewhere", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "The report has no samples of noise" in out.stderr
        page = (folder / "elsewhere" / "report.html").read_text(encoding="utf-8")
        assert "Known or not" in page
        assert "<h2>Surest</h2>" in page  # those of the test data are still there
        assert "noise: surest" not in page
        (folder / "measured" / "clusters.json").write_text('{"classes": []}', encoding="utf-8")
        out = run("report", "measured", "--out", "elsewhere", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "not drawn in space" in out.stderr
        (folder / "moved.npz").rename(folder / "noise.npz")

    def test_a_report_needs_an_evaluation(self, trained, monkeypatch, capsys):
        folder, _ = trained
        code, error = run_here(monkeypatch, capsys, "report", "run", cwd=folder)
        assert code == 2
        assert "not evaluated yet" in error
        code, error = run_here(monkeypatch, capsys, "report", "nowhere", cwd=folder)
        assert (code, "there is no such run folder; got nowhere" in error) == (2, True)

    @pytest.mark.parametrize("arguments", [("evaluate", "run"), ("compare", "digits")])
    def test_figures_that_cannot_be_drawn_are_known_before_the_work(
        self, trained, arguments, monkeypatch, capsys
    ):
        folder, _ = trained
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        code, error = run_here(monkeypatch, capsys, *arguments, cwd=folder)
        assert code == 2
        assert "pip install 'randomset[plot]', or give --no-figures" in error

    def test_a_comparison_has_its_report(self, tmp_path, monkeypatch, capsys):
        (tmp_path / "comparison.json").write_text("{}", encoding="utf-8")
        code, error = run_here(monkeypatch, capsys, "report", ".", cwd=tmp_path)
        assert code == 2
        assert "repeat the command that made it" in error

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--ood", "digits"], "digits holds inputs of the test data; got 359 of 1797"),
            (["--ood", "a="], "NAME=SOURCE"),
            (["--ood", "a=nothing.npz"], "no such data"),
            (["--ood", "mnist"], "mnist is not here"),
            (["--test", "one.npz"], "one class only"),
            (["--test", "strange.npz"], "a class that is not known; got x"),
            (["--score", "depth"], "no such score"),
            (["--keep", "1.5"], "cannot be kept"),
            (["--samples", "0"], "--samples"),
            (["--ood-samples", "-5"], "--ood-samples"),
            (["--seed", "99999999999999999999999"], "--seed"),
            (["--test", "a" * 300], "no path"),
            (["--ood", "test=digits"], "means something else"),
        ],
    )
    def test_mistakes_of_evaluation(self, trained, arguments, message, monkeypatch, capsys):
        folder, _ = trained
        np.savez(folder / "one.npz", images=np.ones((3, 8, 8)), labels=np.zeros(3, int))
        np.savez(folder / "strange.npz", images=np.ones((2, 8, 8)), labels=np.array(["x", "1"]))
        monkeypatch.setenv("RANDOMSET_DATA", str(folder))
        code, error = run_here(monkeypatch, capsys, "evaluate", "run", *arguments, cwd=folder)
        assert code == 2
        assert message in error
        assert "Traceback" not in error
        assert not (folder / "run" / "evaluation.json").exists()

    def test_what_a_run_learned_from_is_no_test(self, trained):
        """Naming the source of the training means what it held back."""
        folder, _ = trained
        shutil.copytree(folder / "run", folder / "named")
        options = ("--no-figures", "--no-sweeps", "--no-timing", "--out", "results")
        out = run("evaluate", "named", "--test", "digits", "--validation", "digits", *options, cwd=folder)
        assert out.returncode == 0, out.stderr
        assert Evaluation.load(folder / "results")["test"]["samples"] == 359
        assert threshold_of(folder / "named") == threshold_of(folder / "run")

    def test_tables_go_by_their_columns(self, tmp_path):
        rng = np.random.default_rng(0)
        kind = np.arange(120) % 3
        x, y = rng.normal(size=(2, 120)) + np.array([[0, 4, 8], [0, -4, 4]])[:, kind]
        rows = [f"{i},{a:.4f},{'abc'[k]},{b:.4f}" for i, (a, k, b) in enumerate(zip(x, kind, y, strict=True))]
        (tmp_path / "train.csv").write_text("\n".join([",x,kind,y", *rows]))
        swapped = [f"{b:.4f},{a:.4f}" for a, b in zip(x, y, strict=True)]
        (tmp_path / "new.csv").write_text("\n".join(["y,x", *swapped]))
        options = ("--label-column", "kind", "--epochs", 20, "--sets", 1)
        out = run("train", "train.csv", "--out", "run", *options, cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        assert "the features are the columns x, y" in out.stdout
        answers = run("predict", "run", "new.csv", cwd=tmp_path)
        assert answers.returncode == 0, answers.stderr
        found = [row["label"] for row in csv.DictReader(io.StringIO(answers.stdout))]
        assert np.mean(np.array(found) == np.array(list("abc"))[kind]) > 0.9
        out = run("evaluate", "run", "--ood", "new=new.csv", cwd=tmp_path)
        assert out.returncode == 2
        assert "new holds inputs of the test data" in out.stderr

    def test_a_folder_with_its_own_test(self, tmp_path):
        digits = load_digits()
        for place in range(80):
            split = "train" if place < 60 else "test"
            path = tmp_path / "photos" / split / str(digits.target[place] % 2) / f"{place}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((digits.images[place] * 15).astype(np.uint8)).save(path)
        out = run("train", "photos", "--epochs", 1, "--out", "run", cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        assert (
            "51 samples to train on, 6 to validate, 3 to calibrate conformal sets, 20 to test on"
            in out.stdout
        )
        out = run("evaluate", "run", "--no-sweeps", "--no-figures", cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        assert "On 20 test inputs" in out.stdout
        assert "sets hold every class" in out.stdout
        (tmp_path / "photos").rename(tmp_path / "moved")
        out = run("evaluate", "run", cwd=tmp_path)
        assert out.returncode == 2
        assert "no such data" in out.stderr
        out = run("evaluate", "run", "--test", "moved/test", "--no-figures", "--no-sweeps", cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        assert "cannot be used for a threshold" in out.stderr

    def test_killed_between_training_and_its_last_file(self, trained):
        """`fit` has written the model, the test has not been made: that is no finished run."""
        folder, _ = trained
        shutil.copytree(folder / "run", folder / "cut")
        (folder / "cut" / "test.json").unlink()
        out = run("train", "--out", "cut", "--resume", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert (folder / "cut" / "test.json").read_text() == (folder / "run" / "test.json").read_text()
        again = run("train", "--out", "cut", "--resume", cwd=folder)
        assert "trained already" in again.stdout

    def test_images_on_another_scale_are_refused(self, trained):
        folder, _ = trained
        np.savez(folder / "large.npz", images=load_digits().images[:7] * 16.0)
        out = run("predict", "run", "large.npz", cwd=folder)
        assert out.returncode == 2
        assert "another scale" in out.stderr
        np.savez(folder / "whole.npz", images=(load_digits().images[:7] / 16 * 255).astype(np.int64))
        assert run("predict", "run", "whole.npz", cwd=folder).returncode == 0

    def test_a_configuration_is_echoed_and_taken_over(self, trained):
        folder, _ = trained
        out = run("train", "--config", "run", "--out", "second", "--seed", 3, "--epochs", 1, cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "source = digits" in out.stdout
        assert "seed = 3  (from the command line)" in out.stdout
        assert "num_sets = 5\n" in out.stdout
        config = json.loads((folder / "second" / "config.json").read_text())["config"]
        assert (config["seed"], config["epochs"], config["num_sets"]) == (3, 1, 5)

    def test_stopped_and_resumed(self, tmp_path, trained):
        folder, _ = trained
        command = [sys.executable, "-m", "randomset", "train", "digits", "--out", "run", "--epochs", "3"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [*command, "--sets", "5"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        last = tmp_path / "run" / "checkpoints" / "last.ckpt"
        while not last.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate()
        if process.returncode != 0:  # it may have been quick enough to finish
            assert process.returncode == 128 + signal.SIGTERM
            assert b"To go on: randomset train --out run --resume" in error
        out = run("train", "--out", "run", "--resume", cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        whole, again = (randomset.RandomSetNetwork.load(place / "run") for place in (folder, tmp_path))
        for name, tensor in whole.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name]), name


MISTAKES = {
    "no source": (["train"], "no source"),
    "unknown source": (["train", "cifar11"], "digits"),
    "a set that is not here": (["train", "imagenet"], "imagenet-train.npz"),
    "no run to evaluate": (["evaluate", "nowhere"], "no network here"),
    "two of one name": (["evaluate", "nowhere", "--ood", "a=b", "--ood", "a=c"], "same name"),
    "unknown backbone": (["train", "digits", "--backbone", "vgg"], "small_cnn"),
    "unknown recipe": (["train", "digits", "--recipe", "slow"], "paper, fast"),
    "bad sets": (["train", "digits", "--sets", "many"], "--sets"),
    "endless validation": (["train", "digits", "--validation", "inf"], "validation is out of range"),
    "bad hidden": (["train", "digits", "--hidden", "a,b"], "1024,512"),
    "no width": (["train", "digits", "--hidden", "-5"], "hidden"),
    "bad seed": (["train", "digits", "--seed", "-1"], "seed"),
    "bad shares": (["train", "digits", "--validation", "0.6", "--test", "0.5"], "nothing is left"),
    "bad epochs": (["train", "digits", "--epochs", "0"], "epochs"),
    "no run": (["train", "--resume"], "no run to go on with"),
    "no config": (["train", "--config", "nothing"], "configuration"),
    "a budget of other classes": (["train", "digits", "--budget", "budget.json"], "other classes"),
    "no network": (["predict", "nowhere", "digits"], "no network here"),
    "bad format": (["predict", "nowhere", "digits", "--format", "xml"], "csv or jsonl"),
    "bad batch": (["predict", "nowhere", "digits", "--batch-size", "0"], "batch-size"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_training_and_prediction(mistake, tmp_path, monkeypatch, capsys):
    Budget.singletons("ab").save(tmp_path / "budget.json")
    arguments, message = MISTAKES[mistake]
    code, error = run_here(monkeypatch, capsys, *arguments, cwd=tmp_path)
    assert code == 2
    assert message in error
    assert "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["budget.json"]  # nothing is left behind


def test_inputs_that_do_not_fit_the_network(tmp_path, monkeypatch, capsys):
    network = randomset.RandomSetNetwork(randomset.nn.backbones.mlp(5), Budget.singletons(3))
    network.save(tmp_path / "run")
    np.savez(tmp_path / "x.npz", features=np.ones((2, 4)))
    code, error = run_here(monkeypatch, capsys, "predict", "run", "x.npz", "--out", "y.csv", cwd=tmp_path)
    assert code == 2
    assert "(4,)" in error
    assert not (tmp_path / "y.csv").exists()
    network.notes = {"input_shape": [5]}
    network.save(tmp_path / "run")
    code, error = run_here(monkeypatch, capsys, "predict", "run", "x.npz", cwd=tmp_path)
    assert code == 2
    assert "expected (5,)" in error


def test_a_run_is_not_overwritten_and_goes_on_with_its_own_settings(tmp_path, monkeypatch, capsys):
    from randomset.training.method import MethodConfig

    (tmp_path / "run").mkdir()
    MethodConfig("digits", seed=3).save(tmp_path / "run" / "config.json")
    code, error = run_here(monkeypatch, capsys, "train", "digits", cwd=tmp_path)
    assert code == 2
    assert "--resume" in error
    code, error = run_here(monkeypatch, capsys, "train", "--resume", "--seed", 4, cwd=tmp_path)
    assert code == 2
    assert "seed 4 instead of 3" in error


def test_one_process_only(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, error = run_here(monkeypatch, capsys, "train", "digits", cwd=tmp_path)
    assert code == 2
    assert "randomset.fit" in error


def test_the_known_data_sets_are_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path))
    np.savez(tmp_path / "svhn-test.npz", images=np.zeros((2, 4, 4)))
    monkeypatch.setattr(sys, "argv", ["randomset", "data"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert re.search(r"^svhn .* test$", printed, flags=re.M)
    assert re.search(r"^mnist .* not found$", printed, flags=re.M)
    assert str(tmp_path) in printed


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
        folder, said = compared
        table = (folder / "c" / "comparison.md").read_text()
        assert re.search(
            r"rsnn \(1\)\s+softmax \(1\)\naccuracy, %", said
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

    def test_what_is_there_is_used_again(self, compared):
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

    def test_folders_that_are_not_whole(self, compared, monkeypatch, capsys):
        folder, _ = compared
        shutil.copytree(folder / "c", folder / "b")
        options = [*self.OPTIONS[:-1], "b", "--epochs", 1, "--no-figures"]
        place = folder / "b" / "softmax" / "seed-0"
        (place / "model.safetensors").unlink()
        code, error = run_here(monkeypatch, capsys, "compare", "digits", *options, cwd=folder)
        assert code == 2
        assert "a run has lost its model; got b/softmax/seed-0. Delete the folder" in error
        content = json.loads((place / "split.json").read_text())
        (place / "split.json").write_text(json.dumps({**content, "contents": "of other data"}))
        code, error = run_here(monkeypatch, capsys, "compare", "digits", *options, cwd=folder)
        assert code == 2
        assert "the data are others than those of a run in the folder" in error

    def test_two_processes_in_one_folder(self, compared, monkeypatch, capsys):
        folder, _ = compared
        code, error = 0, ""
        with alone_in(folder / "busy"):
            code, error = run_here(monkeypatch, capsys, "train", "digits", "--out", "busy", cwd=folder)
        assert code == 2
        assert "another process works in this folder; got busy" in error

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

    def test_a_rival_alone(self, compared):
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
            (["--epochs", 2], "a run with other settings; got c/rsnn/seed-0: epochs 1 instead of 2"),
            (["--learning-rate", 0.1], "learning_rate None instead of 0.1"),
            (["--ood", "noise2=nois.npz"], "nois.npz"),
            (["--ood", "test=noise.npz"], "this name means something else"),
            (["--ood", "self=digits"], "the known data cannot be the unknown ones"),
            (
                ["--ood", "table=table.npz"],
                "of another kind than the known ones; got Source(table: 9 features",
            ),
            (["--ood-samples", 0], "--ood-samples is out of range"),
            (["--batch-size", 0], "batch_size is out of range"),
            (["--methods", "rsnn,magic"], "--methods has an unknown one; got magic"),
            (["--methods", "rsnn,rsnn"], "not different methods"),
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


@pytest.mark.slow
class TestTexts:
    """A tiny encoder with random weights reads short texts."""

    @pytest.fixture(scope="class")
    @classmethod
    def read(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("read")
        tiny_bert(folder / "bert")
        for name, seed in (("texts", 0), ("others", 1)):
            lines, labels = documents(90, seed)
            with (folder / f"{name}.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["text", "label"])
                writer.writerows(zip(lines, labels, strict=True))
        (folder / "strange.csv").write_text("text\nthe the\na a\nthey they\n")
        options = ("--backbone", "hf:bert", "--sets", 3, "--epochs", 3, "--batch-size", 16)
        out = run("train", "texts.csv", *options, "--out", "run", cwd=folder)
        assert out.returncode == 0, out.stderr
        return folder, out.stdout

    def test_a_run_holds_its_tokenizer(self, read):
        folder, said = read
        assert "Training a plain network" not in said  # all sets of three classes are taken
        network = randomset.RandomSetNetwork.load(folder / "run")
        assert len(network.budget) == 6
        assert network.notes["tokens"] == 32  # all that the network takes
        assert (folder / "run" / "tokenizer" / "tokenizer.json").exists()
        shutil.move(folder / "bert", folder / "bert2")  # the run does not need where it came from
        out = run("predict", "run", "others.csv", "--format", "jsonl", cwd=folder)
        shutil.move(folder / "bert2", folder / "bert")
        assert out.returncode == 0, out.stderr
        lines = [json.loads(line) for line in out.stdout.splitlines()]
        assert len(lines) == 90
        assert {line["label"] for line in lines} <= {"cats", "dogs", "birds"}

    def test_rows_keep_their_numbers(self, read):
        """Also where a document is empty; the column may be called otherwise than in the training."""
        folder, _ = read
        (folder / "letters.csv").write_text("n,body\n1,cats purr\n2,\n\n4,dogs bark\n")
        out = run("predict", "run", "letters.csv", "--text-column", "body", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert [line["row"] for line in csv.DictReader(io.StringIO(out.stdout))] == ["0", "3"]
        assert "rows without text are left out: 1, 2" in out.stderr

    def test_it_is_measured_like_any_other(self, read):
        folder, _ = read
        out = run("evaluate", "run", "--ood", "strange=strange.csv", "--no-figures", cwd=folder)
        assert out.returncode == 0, out.stderr
        found = Evaluation.load(folder / "run")
        assert found["ood"]["strange"]["samples"] == 3
        assert found["test"]["samples"] == 18

    def test_compared_twice(self, read):
        """Frozen, with a method that would build on another; the second call finds everything as it was."""
        folder, _ = read
        options = (
            "--methods",
            "rsnn,softmax,laplace-bridge",
            "--backbone",
            "hf:bert",
            "--weights",
            "default",
        )
        more = ("--freeze", "--seeds", 1, "--epochs", 1, "--no-figures", "--out", "c")
        for call in range(2):
            out = run(
                "compare", "texts.csv", *options, *more, cwd=folder, RANDOMSET_CACHE=str(folder / "cache")
            )
            assert out.returncode == 0, out.stderr
            assert ("Measuring" in out.stdout) == (call == 0)

    def test_frozen_with_a_rival(self, read):
        folder, _ = read
        options = ("--backbone", "hf:bert", "--weights", "default", "--freeze", "--epochs", 2)
        out = run(
            "train",
            "texts.csv",
            *options,
            "--method",
            "softmax",
            "--out",
            "rival",
            cwd=folder,
            RANDOMSET_CACHE=str(folder / "cache"),
        )
        assert out.returncode == 0, out.stderr
        assert "Computing features once" in out.stdout
        out = run("evaluate", "rival", "--no-figures", cwd=folder)
        assert out.returncode == 0, out.stderr

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["train", "texts.csv"], "texts need a network that reads them; got --backbone auto"),
            (["train", "texts.csv", "--backbone", "hf:nowhere"], "not on this machine"),
            (["train", "texts.csv", "--backbone", "hf:bert", "--text-column", "words"], "words"),
            (["train", "digits", "--backbone", "hf:bert"], "this network takes texts"),
            (["train", "digits", "--freeze"], "freeze without weights"),
            (["train", "digits", "--backbone", "small_cnn", "--weights", "default"], "no published weights"),
            (["train", "digits", "--weights", "nothing.pt"], "no file of weights; got nothing.pt"),
            (["predict", "run", "digits"], "the network takes texts; got digits with images"),
            (["predict", "run", "texts.csv", "--text-column", "body"], "no such column of texts; got body"),
            (
                ["train", "digits", "--backbone", "mlp", "--weights", "texts.csv"],
                "damaged, or of another kind",
            ),
        ],
    )
    def test_mistakes(self, read, arguments, message, monkeypatch, capsys):
        folder, _ = read
        elsewhere = ["--out", "new"] if arguments[0] == "train" else []
        code, error = run_here(monkeypatch, capsys, *arguments, *elsewhere, cwd=folder)
        assert code == 2
        assert message in error
        assert "Traceback" not in error
