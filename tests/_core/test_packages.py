"""Imports of optional packages."""

import pytest

from randomset._core.packages import optional_package
from randomset.errors import MissingPackageError


def test_a_missing_package_names_its_extra():
    expected = r"'nothing' is not installed.*randomset\[none\]"
    with pytest.raises(MissingPackageError, match=expected), optional_package("nothing", "none"):
        import nothing  # type: ignore[import-not-found]  # noqa: F401
