"""Imports point one way, and the core stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "randomset"

# A room may import itself and what stands before it. Rooms on one line do not know each other.
ORDER = [
    ["errors"],
    ["_core"],
    ["belief"],
    ["budgeting"],
    ["backbones"],
    ["models"],
    ["data"],
    ["training"],
    ["evaluation"],
    ["runs"],
    ["report", "serving"],
    ["sklearn", "cli"],
    ["__main__"],
]
EXCEPTIONS = {("runs/run.py", "randomset.report.run_report")}  # Run.report(), when it is called
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

# What the mathematics may use beside torch, and only inside the function that needs it.
LATE = {"pandas", "safetensors", "numpy"}


def modules():
    return sorted(SOURCE.rglob("*.py"))


def room_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(path):
    """Yield (module, line, whether it runs when the file is imported)."""
    nodes: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text(encoding="utf-8")), True)]
    while nodes:
        node, eager = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            name = node.module or ""
            yield name, node.lineno, eager
            if name == "randomset":
                yield from ((f"randomset.{alias.name}", node.lineno, eager) for alias in node.names)
        elif not isinstance(node, ast.expr):  # which contains no imports
            late = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            late |= isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            nodes += [(child, eager and not late) for child in ast.iter_child_nodes(node)]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    room = room_of(path)
    if room == "__init__":
        return  # the face of the library: it may show every room
    assert room in LEVEL, f"{room} has no place in the order of rooms: add it to {__file__}"
    for name, line, eager in imports(path):
        parts = name.split(".")
        if parts[0] != "randomset" or len(parts) == 1:
            continue
        target = parts[1]
        allowed = target == room or LEVEL.get(target, 99) < LEVEL[room]
        allowed |= not eager and (path.relative_to(SOURCE).as_posix(), name) in EXCEPTIONS
        assert allowed, f"{path.name}:{line}: {room} must not import {target}"


@pytest.mark.parametrize("path", sorted((SOURCE / "belief").glob("*.py")), ids=lambda p: p.name)
def test_the_mathematics_needs_torch_alone(path):
    for name, line, eager in imports(path):
        top = name.split(".")[0]
        if top in {"torch", "randomset"} or top in sys.stdlib_module_names:
            continue
        assert top in LATE, f"{path.name}:{line} imports {top}"
        assert not eager, f"{path.name}:{line} imports {top} when the file is loaded"


def test_a_wrong_arrow_would_be_found(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from randomset.report import belief_figures\n", encoding="utf-8")
    assert [(name, eager) for name, _, eager in imports(bad)] == [("randomset.report", False)]


@pytest.fixture(scope="module")
def loaded():
    """The modules that are there after each of three imports, in one process: each would import torch."""
    names = ["randomset", "randomset.cli", "randomset.serving.app"]
    code = "".join(f"import sys, {name}; print(*sys.modules)\n" for name in names)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(zip(names, (set(line.split()) for line in out.stdout.splitlines()), strict=True))


@pytest.mark.slow
def test_import_brings_no_optional_package(loaded):
    heavy = {"matplotlib", "pandas", "sklearn", "scipy", "lightning", "torchvision", "timm", "onnx"}
    assert not heavy & loaded["randomset"]


@pytest.mark.slow
def test_the_help_of_commands_is_light(loaded):
    heavy = {"matplotlib", "pandas", "sklearn", "scipy", "lightning", "transformers", "uvicorn", "PIL"}
    assert not heavy & loaded["randomset.cli"]


@pytest.mark.slow
def test_what_serves_needs_no_scientific_package(loaded):
    """scikit-learn and scipy take longer to import than all the rest beside torch."""
    heavy = {"matplotlib", "pandas", "sklearn", "scipy", "lightning", "transformers"}
    assert not heavy & loaded["randomset.serving.app"]
