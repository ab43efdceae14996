"""Progress bars."""

import sys

import pytest

from randomset._core.progress import on_terminal, progress_bar


@pytest.mark.parametrize("total", [3, None])
def test_shown_bar_goes_to_the_error_stream(capsys, total, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("counting", total, shown=True) as advance:
        for _ in range(3):
            advance(1)
    out, err = capsys.readouterr()
    assert not out
    assert "counting" in err


@pytest.mark.parametrize("shown", [False, None])
def test_hidden_bar_writes_nothing(capsys, shown):
    assert not on_terminal()
    with progress_bar("counting", 3, shown=shown) as advance:
        advance(1)
    assert capsys.readouterr() == ("", "")


def test_hidden_bar_does_not_import_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with progress_bar("counting", 3, shown=False) as advance:
        advance(1)
