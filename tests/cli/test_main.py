"""The program itself: its version and its help."""

import logging
import sys

import pytest

import randomset
from randomset import cli
from randomset.cli import printed
from randomset.cli.demo import quiet


@pytest.mark.parametrize(("option", "shown"), [("--version", randomset.__version__), ("--help", "budget")])
def test_version_and_help(option, shown, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["randomset", option])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert shown in capsys.readouterr().out


logger = logging.getLogger("randomset.runs.training")
epochs = logging.getLogger("randomset.training.epochs")


def test_stages_on_the_output_epochs_and_warnings_beside_it(capsys):
    with printed():
        logger.info("50 % of it")
        logger.warning("careful")
        logger.debug("details")
        epochs.info("epoch 1")
    logger.info("after")
    out, err = capsys.readouterr()
    assert out == "50 % of it\n"
    assert err == "careful\nepoch 1\n"


def test_bars_replace_epochs(monkeypatch, capsys):
    monkeypatch.setattr("randomset.cli.on_terminal", lambda: True)
    with printed():
        epochs.info("epoch 1")
        logger.info("stage")
    assert capsys.readouterr() == ("stage\n", "")


def test_quiet(capsys):
    with printed():
        with quiet():
            logger.info("stage")
            epochs.info("epoch 1")
            logger.warning("careful")
        logger.info("again")
    assert capsys.readouterr() == ("again\n", "careful\n")


def test_the_logger_is_left_as_it_was():
    root = logging.getLogger("randomset")
    before = (root.level, list(root.handlers))
    with pytest.raises(KeyError), printed():
        raise KeyError
    assert (root.level, list(root.handlers)) == before
