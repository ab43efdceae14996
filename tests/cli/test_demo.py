"""`randomset demo`: what it prints, writes and leaves alone."""

import re
import shutil

import pytest

import randomset
from tests.commands import run


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
    titles = ("8 and 9: least certain", "Where classes overlap", "Sets of classes in the budget", "Settings")
    for part in titles:
        assert part in page
    assert len(page) < 5_000_000
    assert randomset.RandomSetNetwork.load(tmp_path / "demo" / "run").budget.num_classes == 8
    assert run("predict", "demo/run", "digits", cwd=tmp_path).returncode == 0
    assert run("export", "demo/run", cwd=tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "demo" / "run-1")
    (tmp_path / "demo" / "run-1").mkdir()
    out = run("demo", "--seeds", 2, "--epochs", 1, cwd=tmp_path)  # again; but nobody's folder is removed
    assert out.returncode == 2
    assert "not written by a demo; got demo/run-1" in out.stderr
