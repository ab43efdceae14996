"""Tests that need torchvision and timm: run by `make test-vision`, in an environment that has them."""

import importlib.util
import warnings

collect_ignore_glob = []
if importlib.util.find_spec("torchvision") is None or importlib.util.find_spec("timm") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from randomset._core.torchvision import timm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        timm()  # before other libraries import torchvision without the workaround
