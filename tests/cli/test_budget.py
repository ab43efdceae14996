"""`randomset budget`: from features to a file of sets."""

import json

import numpy as np
import pytest

from randomset import Budget
from tests.commands import run, run_here, start


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
        (["text.npz"], "cannot read .npz"),
        (["pickled.npz"], "contains Python objects; expected numeric or string arrays"),
        (["broken.npz"], "cannot read .npz"),
        (["features.npz", "--sets", "2", "--seed", "-1"], "seed must be an integer"),
        (["array.npy"], "single array"),
        (["single.npz"], "missing array 'labels'; got single.npz with features"),
        (["features.npz", "--sets", "few"], "must be a number or auto; got few"),
        (["features.npz", "--sets", "9"], "num_sets exceeds the number of sets"),
        (["features.npz", "--reducer", "pcb"], "unknown reducer; got pcb"),
        (["features.npz", "--coverage", "2"], "coverage is out of range"),
        (["features.npz", "--out", "."], "output path is a folder"),
        (["features.npz", "--out", "text.npz/budget.json"], "cannot write the output"),
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
