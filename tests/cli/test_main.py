"""The program itself: its version and its help."""

import sys

import pytest

import randomset
from randomset import cli


@pytest.mark.parametrize(("option", "shown"), [("--version", randomset.__version__), ("--help", "budget")])
def test_version_and_help(option, shown, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["randomset", option])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert shown in capsys.readouterr().out
