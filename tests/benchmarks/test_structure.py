"""The counts of the structure, on sources and files made up here."""

import ast
import sys

import pytest

from benchmarks import structure


@pytest.fixture
def checkout(tmp_path):
    """A library of two rooms: `models` with a class and its check, `tools` with imports inside functions."""
    files = {
        "src/randomset/__init__.py": "from randomset.tools import run\n",
        "src/randomset/models/base.py": "class Classifier: pass\nclass Tree(Classifier): pass\n",
        "src/randomset/models/exports.py": "from randomset.models.base import Tree\n__all__ = ['Tree']\n",
        "src/randomset/tools.py": (
            "from randomset.models import base\n\n\ndef decorate(function):\n    return function\n\n\n"
            "@decorate\ndef run(x):\n    import json\n    def inner():\n        import math\n"
            "    return isinstance(x, base.Tree) or isinstance(x, (int, str))\n"
        ),
        "src/randomset/paper/table.py": "def f():\n    import os\n",
        "tests/models/test_base.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_counts_of_a_small_checkout(checkout):
    trees = structure.sources(checkout)
    assert len(trees) == 4  # without the paper's program
    assert sum(map(structure.local_imports, trees.values())) == 2
    models = structure.model_classes(list(trees.values()))
    assert models == {*structure.MODELS, "Tree"}
    assert sum(structure.model_checks(tree, models) for tree in trees.values()) == 1
    assert structure.files_with_tests(trees, checkout) == (
        1,
        2,
    )  # base, but not tools; exports has no behaviour


def test_rooms_are_folders_and_modules_of_the_package(tmp_path):
    package = tmp_path / "src" / "randomset"
    files = [package / "belief" / "mass.py", package / "belief" / "budget.py", package / "errors.py"]
    assert structure.rooms([*files, package / "__init__.py"], tmp_path) == {"belief", "errors"}
    assert structure.rooms([tmp_path / "reproduction" / "page.py"], tmp_path) == {"reproduction"}


def test_only_functions_that_run_after_the_import_count(tmp_path, monkeypatch):
    (tmp_path / "counted_a.py").write_text(
        "import counted_b\nclass A:\n    x = counted_b.at_import()\ndef f():\n    return counted_b.later()\n"
    )
    (tmp_path / "counted_b.py").write_text("import counted_c\ndef at_import(): pass\ndef later(): pass\n")
    (tmp_path / "counted_c.py").write_text("def never(): pass\ncalled = (lambda: 1)()\n")
    monkeypatch.syspath_prepend(tmp_path)
    recorder = structure.Recorder(tmp_path)
    before = sys.getprofile()
    sys.setprofile(recorder)
    try:
        import counted_a  # type: ignore[import-not-found]

        imported = set(recorder.files)
        counted_a.f()
    finally:
        sys.setprofile(before)
    assert imported == set()
    assert recorder.files == {str(tmp_path / name) for name in ("counted_a.py", "counted_b.py")}


def test_without_the_command_there_are_no_duplicates_to_count(checkout, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert structure.duplicates(checkout) == "–"


def test_model_checks_ignore_other_calls():
    tree = ast.parse("isinstance(x, Softmax)\nx.isinstance(y, Softmax)\nissubclass(x, Softmax)")
    assert structure.model_checks(tree, structure.MODELS) == 1
