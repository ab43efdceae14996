"""Messages of errors, and their way through processes."""

import errno
import os
import pickle

import pytest

from randomset.errors import (
    MissingPackageError,
    RandomSetError,
    WriteError,
    first_line,
    in_sample,
    remedy_for,
)


def test_parts_of_a_message():
    error = RandomSetError("the level is wrong", got=1.5, expected="0 to 1", remedy="Choose another")
    assert str(error) == "the level is wrong; got 1.5; expected 0 to 1. Choose another"
    assert error.got == 1.5
    assert str(RandomSetError("the name is wrong", got="cat")) == "the name is wrong; got cat"
    assert str(RandomSetError("it is wrong")) == "it is wrong"


@pytest.mark.parametrize(
    "error",
    [
        RandomSetError("it is wrong"),
        MissingPackageError("pandas", "frames"),
        WriteError("the file cannot be written", "x", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_errors_are_also_of_the_usual_kinds():
    assert isinstance(MissingPackageError("pandas", "frames"), ImportError)
    assert isinstance(WriteError("it is wrong", "x", OSError()), OSError)
    assert "pip install 'randomset[frames]'" in str(MissingPackageError("pandas", "frames"))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EFBIG, "ulimit"),
        (errno.EROFS, "read-only"),
        (0, "Choose another"),
    ],
)
def test_remedies(code, remedy):
    assert remedy in remedy_for(OSError(code, "reason"))


def test_samples():
    assert in_sample(()) == ""
    assert in_sample((2, 3)) == " in sample 2, 3"


def test_first_line():
    assert first_line(ValueError("\na\nb")) == "a"
    assert first_line(ValueError()) == "ValueError"
