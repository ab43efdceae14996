"""`randomset data`: the list of data sets."""

import re
import sys

import numpy as np
import pytest

from randomset import cli


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
