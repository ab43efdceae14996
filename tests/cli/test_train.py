"""`randomset train`: the run folder, data of every kind, stopping and going on; mistakes."""

import csv
import io
import json
import os
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
from randomset import Budget
from tests.commands import run, run_here, threshold_of


@pytest.mark.slow
class TestTrain:
    def test_the_run_folder(self, trained):
        folder, printed = trained
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
        assert "Calibrated on 180 samples" in printed
        assert "On 359 held-out samples: accuracy" in printed
        assert printed.splitlines()[-2].startswith("Wrote model.safetensors")
        assert printed.splitlines()[-1].startswith("Next: randomset evaluate run --ood NAME=SOURCE")
        assert network.notes["test"]["samples"] == 359
        assert network.budget.num_sets == 5

    def test_the_fast_network(self, tmp_path):
        options = ("--backbone", "fast_cnn", "--width", 8, "--recipe", "speed", "--mirror", "--size", 16)
        out = run("train", "digits", "--out", "run", "--epochs", 1, "--sets", 2, *options, cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        network = randomset.RandomSetNetwork.load(tmp_path / "run")
        assert randomset.backbones.names(network.backbone.spec) == ["mirrored", "fast_cnn"]
        out = run("train", "digits", "--backbone", "fast_cnn", "--out", "other", cwd=tmp_path)
        assert out.returncode == 2
        assert "fast_cnn" in out.stderr
        assert "--size 32" in out.stderr

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
        assert "new overlaps with the test data" in out.stderr

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
        assert "every set contains all classes" in out.stdout
        (tmp_path / "photos").rename(tmp_path / "moved")
        out = run("evaluate", "run", cwd=tmp_path)
        assert out.returncode == 2
        assert "no such data" in out.stderr
        out = run("evaluate", "run", "--test", "moved/test", "--no-figures", "--no-sweeps", cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        assert "No threshold is chosen" in out.stderr

    def test_killed_between_training_and_its_last_file(self, trained):
        """`fit` has written the model, the test has not been made: the run is not finished."""
        folder, _ = trained
        shutil.copytree(folder / "run", folder / "cut")
        (folder / "cut" / "test.json").unlink()
        out = run("train", "--out", "cut", "--resume", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert (folder / "cut" / "test.json").read_text() == (folder / "run" / "test.json").read_text()
        again = run("train", "--out", "cut", "--resume", cwd=folder)
        assert "trained already" in again.stdout

    def test_a_network_trained_from_scratch(self, tmp_path):
        Budget.from_sets([("3", "8")], [str(digit) for digit in range(10)]).save(tmp_path / "own.json")
        options = ("--budget", "own.json", "--from-scratch", "--epochs", 1, "--out", "run")
        out = run("train", "digits", *options, cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        assert "Training a plain network" not in out.stdout  # since the sets are known
        assert not (tmp_path / "run" / "first").exists()
        assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["from_scratch"] is True

    def test_options_of_training_are_stored(self, tmp_path):
        options = ("--class-weight", "3=2", "--class-weight", "8=1.5", "--sampling", "balanced")
        more = ("--augment", "shift+mixup", "--ema", 0.9, "--keep", "best", "--sets", 3, "--epochs", 2)
        out = run("train", "digits", "--out", "run", *options, *more, cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
        assert config["class_weight"] == [["3", 2.0], ["8", 1.5]]
        names = ("sampling", "augment", "ema", "keep")
        assert [config[name] for name in names] == ["balanced", "shift+mixup", 0.9, "best"]
        for folder in ("run", "run/first"):  # the network that chooses the sets is trained in the same way
            last = tmp_path / folder / "checkpoints" / "last.ckpt"
            recipe = torch.load(last, weights_only=True)["randomset"]["recipe"]
            assert [recipe["class_weight"][c] for c in (2, 3, 8)] == [1.0, 2.0, 1.5]
            assert [recipe[name] for name in names[:3]] == ["balanced", "shift+mixup", 0.9]
        (tmp_path / "run" / "test.json").unlink()
        out = run("train", "--out", "run", "--resume", "--class-weight", "3=3", cwd=tmp_path)
        assert out.returncode == 2
        assert "a resumed run keeps its own settings; got class_weight" in out.stderr
        out = run("train", "--out", "run", "--resume", "--augment", "shift+mixup", cwd=tmp_path)
        assert out.returncode == 0, out.stderr

    def test_a_configuration_is_printed_and_used(self, trained):
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
            assert b"To continue: randomset train --out run --resume" in error
        out = run("train", "--out", "run", "--resume", cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        whole, again = (randomset.RandomSetNetwork.load(place / "run") for place in (folder, tmp_path))
        for name, tensor in whole.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name]), name


MISTAKES = {
    "no source": (["train"], "no source"),
    "unknown source": (["train", "cifar11"], "digits"),
    "a set that is not here": (["train", "imagenet"], "imagenet-train.npz"),
    "no run to evaluate": (["evaluate", "nowhere"], "no model found"),
    "two of one name": (["evaluate", "nowhere", "--ood", "a=b", "--ood", "a=c"], "same name"),
    "unknown backbone": (["train", "digits", "--backbone", "vgg"], "small_cnn"),
    "unknown recipe": (["train", "digits", "--recipe", "slow"], "paper, fast"),
    "bad sets": (["train", "digits", "--sets", "many"], "--sets"),
    "endless validation": (["train", "digits", "--validation", "inf"], "validation is out of range"),
    "bad hidden": (["train", "digits", "--hidden", "a,b"], "1024,512"),
    "no width": (["train", "digits", "--hidden", "-5"], "hidden"),
    "bad seed": (["train", "digits", "--seed", "-1"], "seed"),
    "bad shares": (["train", "digits", "--validation", "0.6", "--test", "0.5"], "no samples are left"),
    "bad epochs": (["train", "digits", "--epochs", "0"], "epochs"),
    "no first network": (
        ["train", "digits", "--from-scratch", "--method", "softmax"],
        "only for random-set networks",
    ),
    "unknown augmentation": (["train", "digits", "--augment", "blur"], "unknown augmentation"),
    "bad sampling": (["train", "digits", "--sampling", "often"], "uniform, balanced"),
    "bad decay": (["train", "digits", "--ema", "1"], "ema is out of range"),
    "bad keep": (["train", "digits", "--keep", "worst"], "'last' or 'best'"),
    "bad class weight": (["train", "digits", "--class-weight", "3"], "NAME=WEIGHT or balanced"),
    "unknown class": (["train", "digits", "--class-weight", "11=2"], "unknown class in class_weight; got 11"),
    "no members": (["train", "digits", "--method", "fsvi", "--members", "3"], "this method has no members"),
    "one member": (["train", "digits", "--members", "1"], "members is out of range"),
    "no run": (["train", "--resume"], "no run to resume"),
    "no config": (["train", "--config", "nothing"], "configuration"),
    "a budget of other classes": (
        ["train", "digits", "--budget", "budget.json"],
        "classes of the budget differ",
    ),
    "no network": (["predict", "nowhere", "digits"], "no model found"),
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
    assert [path.name for path in tmp_path.iterdir()] == ["budget.json"]  # no samples are left behind


def test_a_run_is_not_overwritten_and_keeps_its_settings_when_resumed(tmp_path, monkeypatch, capsys):
    from randomset.training.config import TrainConfig

    (tmp_path / "run").mkdir()
    TrainConfig("digits", seed=3).save(tmp_path / "run" / "config.json")
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
