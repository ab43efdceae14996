"""The program as a user runs it, and numbers in the cells of its tables."""

import pytest

from tests.commands import run

uses_tiny_results = pytest.mark.slow
"""The mark of tests with the fixture `made`, which takes minutes."""


def reproduce(*arguments, **options):
    return run(*arguments, program="reproduction", **options)


def value(cell):
    """Return the first number of a cell such as "85.52 ± 0.10 (99.71)"."""
    return float(cell.split()[0])


def percent(number):
    """Match a number in [0, 1] as a table shows it, in percent with two digits."""
    assert 0 <= number <= 1
    return pytest.approx(100 * number, abs=0.0051)


def rounded(number, digits=3):
    """Match a number as a table shows it, with some digits."""
    return pytest.approx(number, abs=0.51 * 10**-digits)
