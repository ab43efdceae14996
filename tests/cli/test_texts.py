"""Texts on the command line: a run that reads, is measured, compared and frozen."""

import csv
import io
import json
import shutil

import pytest

import randomset
from randomset.evaluation import Evaluation
from tests.commands import run, run_here
from tests.texts import documents, tiny_bert


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
        (folder / "other.csv").write_text("text\nthe the\na a\nthey they\n")
        options = ("--backbone", "hf:bert", "--sets", 3, "--epochs", 3, "--batch-size", 16)
        out = run("train", "texts.csv", *options, "--out", "run", cwd=folder)
        assert out.returncode == 0, out.stderr
        return folder, out.stdout

    def test_a_run_holds_its_tokenizer(self, read):
        folder, printed = read
        assert "Training a plain network to start from" in printed
        assert "Chose" not in printed  # all sets of three classes are taken
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

    def test_evaluation(self, read):
        folder, _ = read
        out = run("evaluate", "run", "--ood", "other=other.csv", "--no-figures", cwd=folder)
        assert out.returncode == 0, out.stderr
        found = Evaluation.load(folder / "run")
        assert found["ood"]["other"]["samples"] == 3
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

    def test_a_frozen_baseline(self, read):
        folder, _ = read
        options = ("--backbone", "hf:bert", "--weights", "default", "--freeze", "--epochs", 2)
        out = run(
            "train",
            "texts.csv",
            *options,
            "--method",
            "softmax",
            "--out",
            "baseline",
            cwd=folder,
            RANDOMSET_CACHE=str(folder / "other cache"),
        )
        assert out.returncode == 0, out.stderr
        assert "Computing features" in out.stdout
        out = run("evaluate", "baseline", "--no-figures", cwd=folder)
        assert out.returncode == 0, out.stderr

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["train", "texts.csv"], "texts require a text encoder as the backbone; got --backbone auto"),
            (["train", "texts.csv", "--backbone", "hf:nowhere"], "not on this machine"),
            (["train", "texts.csv", "--backbone", "hf:bert", "--text-column", "words"], "words"),
            (["train", "digits", "--backbone", "hf:bert"], "this backbone expects texts"),
            (["train", "digits", "--freeze"], "freeze without weights"),
            (
                ["train", "digits", "--backbone", "small_cnn", "--weights", "default"],
                "no weights are published",
            ),
            (["train", "digits", "--weights", "nothing.pt"], "weights file not found; got nothing.pt"),
            (["predict", "run", "digits"], "the network takes texts; got digits with images"),
            (["predict", "run", "texts.csv", "--text-column", "body"], "unknown text column; got body"),
            (["train", "digits", "--backbone", "mlp", "--weights", "texts.csv"], "damaged or unknown format"),
        ],
    )
    def test_mistakes(self, read, arguments, message, monkeypatch, capsys):
        folder, _ = read
        elsewhere = ["--out", "new"] if arguments[0] == "train" else []
        code, error = run_here(monkeypatch, capsys, *arguments, *elsewhere, cwd=folder)
        assert code == 2
        assert message in error
        assert "Traceback" not in error
