"""Importing torchvision, with a fake package that fails as a CUDA build does beside a CPU-only torch."""

import os
import subprocess
import sys

import pytest

from randomset._core.torchvision import import_torchvision_first

SCRIPT = "from randomset._core.torchvision import torchvision; print(torchvision().answer)"


def run(folder, content):
    (folder / "torchvision").mkdir()
    (folder / "torchvision" / "__init__.py").write_text(content)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True, env=environment
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("answer = 1", "1"),
        ('import torch\ntorch.library.register_fake("torchvision::nms")(lambda *_: None)\nanswer = 2', "2"),
    ],
)
def test_import(tmp_path, content, shown):
    out = run(tmp_path, content)
    assert out.stdout.strip() == shown, out.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('raise RuntimeError("something else")', "torchvision cannot be imported; got something else"),
        ('raise ImportError("no such library")', r"randomset[vision]"),
    ],
)
def test_other_errors_are_reported(tmp_path, content, message):
    out = run(tmp_path, content)
    assert message in out.stderr


def test_nothing_happens_without_torchvision(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    import_torchvision_first()
    assert "torchvision" not in sys.modules
