"""What the documents and docstrings show is run."""

import importlib
import inspect
import operator
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import randomset

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


# Inner workings on Lightning, which takes seconds to import.
INNER = {"randomset.budgeting.distributed", "randomset.training.engine", "randomset.training.checkpoints"}


def public_objects():
    """Yield everything that a module of the library names in `__all__`, and the methods of its classes."""
    for info in pkgutil.walk_packages(randomset.__path__, "randomset."):
        if info.name in INNER:
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", []):
            thing = getattr(module, name)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                yield f"{info.name}.{name}", thing


OBJECTS = dict(public_objects())


@pytest.mark.parametrize("thing", OBJECTS.values(), ids=OBJECTS)
def test_every_public_function_shows_a_run_example(thing):
    text = inspect.getdoc(thing) or ""
    assert text, "no docstring"
    if inspect.isfunction(thing) and thing.__module__.startswith("randomset.belief"):
        helpers = ("operators", "poset", "storage", "text", "flow", "naming")  # inner workings
        if thing.__module__.rsplit(".", 1)[-1] not in helpers:
            assert ">>>" in text, "no example"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run_and_print_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    text = page.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block, shown in re.findall(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", text, flags=re.S):
        exec(compile(block, str(page), "exec"), namespace)
        printed = capsys.readouterr().out
        assert shown in printed


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_the_worked_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    sys.modules.pop("worked_example", None)
    importlib.import_module("worked_example").main()
    printed = capsys.readouterr().out
    assert re.search(r"\{c1, c2\}\s+0\.40\s+0\.90\s+0\.90", printed)
    assert re.search(r"c1\s+0\.50\s+0\.70\s+0\.90", printed)
    for name in ("credal_set.png", "masses.png"):
        assert (tmp_path / "demo" / name).read_bytes().startswith(b"\x89PNG")


def test_every_equation_page_names_functions_and_tests_that_exist():
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`randomset\.([\w.]+)`", text))
    assert len(names) > 10
    for name in names:
        assert operator.attrgetter(name)(randomset) is not None
    for path, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        source = (ROOT / path).read_text(encoding="utf-8")
        assert not test or f" {test}" in source, f"docs/paper.md names {path}::{test}"
