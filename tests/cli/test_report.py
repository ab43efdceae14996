"""`randomset report`: when there is one, and when not."""

import pytest

from tests.commands import run_here


@pytest.mark.slow
def test_a_report_needs_an_evaluation(trained, monkeypatch, capsys):
    folder, _ = trained
    code, error = run_here(monkeypatch, capsys, "report", "run", cwd=folder)
    assert code == 2
    assert "has not been evaluated" in error
    code, error = run_here(monkeypatch, capsys, "report", "nowhere", cwd=folder)
    assert (code, "the run folder does not exist; got nowhere" in error) == (2, True)


def test_a_comparison_has_its_report(tmp_path, monkeypatch, capsys):
    (tmp_path / "comparison.json").write_text("{}", encoding="utf-8")
    code, error = run_here(monkeypatch, capsys, "report", ".", cwd=tmp_path)
    assert code == 2
    assert "repeat the command that created it" in error
