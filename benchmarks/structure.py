"""How much of the library one task passes through, and other counts of its structure, as a Markdown table.

Five tasks run in processes of their own: `rs.fit`, `randomset train` on a folder of photos, `predict` and
`evaluate` with the trained run, and Table 3 of the paper. A file counts if at least one of its functions
runs, other than during an import; a room is a folder or module directly below `src/randomset`, or
`reproduction`. The counts of the source leave the paper's program out. Any checkout can be measured.

Run: python -m benchmarks.structure [--root CHECKOUT]
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

TASKS = {
    "fit": "rs.fit",
    "train": "randomset train",
    "predict": "randomset predict",
    "evaluate": "randomset evaluate",
    "table": "Table 3 of the paper",
}
MODELS = {
    *("Classifier", "RandomSetNetwork", "Baseline", "Softmax", "Ensemble", "LaplaceBridge", "MCDropout"),
    *("Evidential", "Epinet", "FSVI"),
}
"""Base classes of models; subclasses are found in the source."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


# -- what a task runs -----------------------------------------------------------------------------


class Recorder:
    """Collects the files below some folders in which a function runs.

    Module and class bodies do not count, nor do lambdas, comprehensions and what runs during an import.
    """

    def __init__(self, *folders: Path) -> None:
        self.folders = tuple(f"{folder}{os.sep}" for folder in folders)
        self.files: set[str] = set()
        self._seen: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Handle an event, as `sys.setprofile` passes it."""
        code = frame.f_code
        if event != "call" or code in self._seen:
            return
        ignored = code.co_name.startswith("<") or not code.co_flags & inspect.CO_OPTIMIZED
        if ignored or not code.co_filename.startswith(self.folders):
            self._seen.add(code)
        elif not self._importing(frame):
            self._seen.add(code)
            self.files.add(code.co_filename)

    def _importing(self, frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and code.co_filename.startswith(self.folders):
                return frame.f_globals["__name__"] != "__main__"
            frame = frame.f_back
        return False


def perform(task: str, root: Path) -> None:
    """Perform a task in the current folder, where the tasks before it ran."""
    if task == "fit":
        return _fit()
    module = "randomset"
    arguments = {
        "train": "train photos --out run --epochs 1 --sets 2 --size 16 --backbone small_cnn",
        "predict": "predict run photos --out predictions.csv",
        "evaluate": "evaluate run --ood other=unknown",
        "table": "run table-3 --scale tiny",
    }[task].split()
    if task == "table":
        module = "reproduction" if (root / "reproduction").exists() else "randomset"
        arguments = arguments if module == "reproduction" else ["paper", *arguments]
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise


def _fit() -> None:
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    import randomset as rs

    images, labels = load_digits(return_X_y=True)
    data = torch.tensor(images).float() / 16, torch.tensor(labels)
    budget = rs.Budget.from_sets([{3, 8}, {4, 9}], 10)
    backbone = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
    network = rs.RandomSetNetwork(backbone, budget, in_features=32)
    rs.fit(
        network,
        tuple(part[:1500] for part in data),
        tuple(part[1500:] for part in data),
        epochs=1,
        out="fitted",
    )


def write_photos(folder: Path) -> None:
    """Write 42 photos of three classes, and a folder of other images."""
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    for number in range(54):
        name = ("red", "green", "blue", "noise")[min(number % 3, 3) if number < 42 else 3]
        image = draw.integers(0, 120, (20, 24, 3))
        if name != "noise":
            image[..., number % 3] += 120
        place = folder / ("unknown" if name == "noise" else f"photos/{name}")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.astype(np.uint8)).save(place / f"{number}.png")


def record(task: str, root: Path, result: Path) -> None:
    """Perform a task in this process, and write the files that it passed through."""
    recorder = Recorder(root / "src" / "randomset", root / "reproduction")
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        perform(task, root)
    finally:
        sys.setprofile(None)
    result.write_text(json.dumps(sorted(recorder.files)), encoding="utf-8")


def files_of_tasks(root: Path) -> dict[str, list[Path]]:
    """Run every task in a new process with a checkout's source; return the files of each."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        "COLUMNS": "100",
    }
    found = {}
    with tempfile.TemporaryDirectory() as place:
        write_photos(Path(place))
        result = Path(place, "files.json")
        for task in TASKS:
            command = [sys.executable, str(Path(__file__).resolve())]
            command += ["--root", str(root), "--task", task, "--result", str(result)]
            done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{TASKS[task]} failed:\n{done.stdout}\n{done.stderr}")
            found[task] = [Path(name) for name in json.loads(result.read_text(encoding="utf-8"))]
    return found


def rooms(files: list[Path], root: Path) -> set[str]:
    """Return the folders and modules directly below src/randomset, and `reproduction`, that hold files.

    >>> root = Path("/x")
    >>> sorted(rooms([root / "src/randomset/belief/mass.py", root / "src/randomset/errors.py"], root))
    ['belief', 'errors']
    """
    package = root / "src" / "randomset"
    inside = [path.relative_to(package).parts[0] for path in files if path.is_relative_to(package)]
    names = {name.removesuffix(".py") for name in inside}
    outside = {"reproduction"} if len(inside) < len(files) else set()
    return (names | outside) - {"__init__", "__main__"}


# -- what the source says -------------------------------------------------------------------------


def sources(root: Path) -> dict[Path, ast.Module]:
    """Parse the library's files, without the paper's program, which used to be among them."""
    package = root / "src" / "randomset"
    paths = [path for path in sorted(package.rglob("*.py")) if path.relative_to(package).parts[0] != "paper"]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def local_imports(tree: ast.AST) -> int:
    """Count import statements inside functions.

    >>> local_imports(ast.parse("import a; f = lambda: __import__('b')"))
    0
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    inside = {
        id(part): part
        for function in functions
        for part in ast.walk(function)
        if isinstance(part, (ast.Import, ast.ImportFrom))
    }
    return len(inside)


def model_classes(trees: list[ast.Module]) -> set[str]:
    """Return the names of the model classes and of every class derived from one."""
    names = set(MODELS)
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while (
        more := {
            node.name for node in classes if names & {name for base in node.bases for name in _names(base)}
        }
        - names
    ):
        names |= more
    return names


def model_checks(tree: ast.AST, models: set[str]) -> int:
    """Count calls of isinstance with a model class.

    >>> model_checks(ast.parse("isinstance(x, (A, m.B)) or isinstance(x, int)"), {"B"})
    1
    """
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
    ]
    return sum(bool(models & set(_names(call.args[1]))) for call in calls if len(call.args) == 2)


def _names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def has_behaviour(tree: ast.Module) -> bool:
    """Return whether a module is more than imports, `__all__` and strings.

    >>> has_behaviour(ast.parse("from a import b; __all__ = ['b']")), has_behaviour(ast.parse("x = 1"))
    (False, True)
    """

    def trivial(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            return all(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
        constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return constant or isinstance(node, (ast.Import, ast.ImportFrom))

    return not all(trivial(node) for node in tree.body)


def files_with_tests(trees: dict[Path, ast.Module], root: Path) -> tuple[int, int]:
    """Count the files with behaviour that have a test file of their name, and all of them."""
    tests = {path.stem.removeprefix("test_") for path in (root / "tests").rglob("test_*.py")}
    own = [path for path, tree in trees.items() if path.stem != "__init__" and has_behaviour(tree)]
    return sum(path.stem.strip("_") in tests for path in own), len(own)


def duplicates(root: Path) -> str:
    """Return how many pairs of places the command `duplicates` lists, or a dash if it is not installed."""
    command = shutil.which("duplicates")
    if command is None:
        return "–"
    words = [command, "--repo", str(root / "src"), "--most", "200", "--seconds", "120"]
    rows = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return str(sum(row.startswith("D") and row[1:2].isdigit() for row in rows))


# -- the table ------------------------------------------------------------------------------------


def measure(root: Path) -> list[tuple[str, Any]]:
    """Return the rows of the table: what is counted, and how many there are."""
    rows: list[tuple[str, Any]] = []
    for task, files in files_of_tasks(root).items():
        rows.append((f"{TASKS[task]}: files", len(files)))
        rows.append((f"{TASKS[task]}: rooms", len(rooms(files, root))))
    trees = sources(root)
    models = model_classes(list(trees.values()))
    with_test, every = files_with_tests(trees, root)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in trees)
    return [
        *rows,
        ("import statements inside functions", sum(local_imports(tree) for tree in trees.values())),
        ("isinstance with a model class", sum(model_checks(tree, models) for tree in trees.values())),
        ("source files", len(trees)),
        ("lines of source", f"{lines:,}"),
        ("rows of `duplicates`", duplicates(root)),
        ("files with a test of their name", f"{with_test} of {every} ({with_test / every:.0%})"),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[1], help="the checkout to measure"
    )
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    if arguments.task:
        del sys.path[0]  # the folder of this file, whose modules could hide others
        return record(arguments.task, root, arguments.result)
    print("| what | count |\n|---|---|")
    for what, count in measure(root):
        print(f"| {what} | {count} |", flush=True)


if __name__ == "__main__":
    main()
