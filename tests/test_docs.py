"""What the documents and docstrings show is run.

Blocks marked `python` and `console` are run as they stand, in one folder for each page and in order. Commands
that need a GPU, a download or hours are marked `bash`: of them the command line must understand every word.
"""

import importlib
import importlib.util
import inspect
import operator
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import randomset
from randomset.cli import app
from tests.commands import run

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


# Inner workings on Lightning, which takes seconds to import.
INNER = {"randomset._core.distributed", "randomset.training.checkpoints", "randomset.training.engine"}


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


def test_every_public_function_shows_a_run_example():
    for name, thing in OBJECTS.items():
        text = inspect.getdoc(thing) or ""
        assert text, f"{name} has no docstring"
        if inspect.isfunction(thing) and thing.__module__.startswith("randomset.belief"):
            helpers = ("operators", "sums", "storage", "text")  # inner workings
            if thing.__module__.rsplit(".", 1)[-1] not in helpers:
                assert ">>>" in text, f"{name} has no example"


BLOCK = re.compile(r"^```(\w+)\n(.*?)^```(?:\s*^```text\n(.*?)^```)?", flags=re.S | re.M)
COMMANDS = typer.main.get_command(app)


def words_of(block):
    """Yield the words of each command in a block, without comments, variables before and pipes behind."""
    for line in re.sub(r"\\\n", " ", block).splitlines():
        for part in line.split("&&"):
            words = shlex.split(part, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                yield words[: words.index("|")] if "|" in words else words


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_blocks_run_and_print_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for kind, block, shown in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(block, str(page), "exec"), namespace)
            assert shown in capsys.readouterr().out
        elif kind == "console":
            for words in words_of(block):
                assert shown in console(words, tmp_path)


def console(words, folder):
    """Run a command of a page in a folder, and return what it prints."""
    if words[0] == "randomset":
        done = run(*words[1:], cwd=folder)
    elif words[:3] == ["python", "-m", "reproduction"]:
        done = run(*words[3:], cwd=folder, program="reproduction")
    else:
        launcher = [sys.executable] if words[0] == "python" else [str(Path(sys.executable).parent / words[0])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATOR": "cpu"}
        done = subprocess.run(
            [*launcher, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_is_one(page):
    kinds = set()
    for kind, block, _ in BLOCK.findall(page.read_text(encoding="utf-8")):
        kinds.add(kind)
        for words in words_of(block) if kind in ("bash", "console") else ():
            understood(words)
    assert kinds <= {"python", "console", "bash", "text", "json"}, "a block of no known kind is never run"


def understood(words):
    """Fail on a command, option, module, script or target that is not there."""
    if words[0] == "randomset":
        command, rest = COMMANDS, words[1:]
        context = command.make_context("randomset", rest[:1], resilient_parsing=True)
        while hasattr(command, "get_command") and rest:
            name = rest.pop(0)
            command = command.get_command(context, name)
            assert command is not None, f"there is no command {name}"
            if not getattr(command, "commands", None):
                break
        if "…" not in rest and not getattr(command, "commands", None):
            command.make_context(command.name, rest)
    elif words[0] == "make":
        targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M)
        assert words[1] in targets
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]), f"there is no module {words[2]}"
    elif words[0] == "python" and words[1].startswith("examples"):
        assert (ROOT / words[1]).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_into_pages_lead_to_headings(page):
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://")):
            other = (page.parent / target).read_text(encoding="utf-8") if target else text
            assert anchor in {anchor_of(title) for title in re.findall(r"^#+ (.*)$", other, flags=re.M)}


def anchor_of(title):
    """The address of a heading, as the documentation's generator and code hosts make it."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_option_that_is_named_exists(page):
    options = {name for command in commands_of(COMMANDS) for one in command.params for name in one.opts}
    others = {
        "--help",
        "--variants",
        "--source",
        "--samples",
        "--held",
    }  # all but the first are of benchmarks
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for block in re.findall(r"`([^`\n]+)`", prose):
        if not block.startswith(("python", "torchrun", ".venv", "pip", "make", "accelerate")):
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", block):
                assert option in options | others, f"{page.name}: {option}"


def commands_of(command):
    """Yield a command and all below it."""
    yield command
    for one in getattr(command, "commands", {}).values():
        yield from commands_of(one)


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
    named = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)*)`", text)
    assert sum(bool(parts) for _, parts in named) > 10
    for path, parts in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        for part in parts.split("::")[1:]:
            assert re.search(rf"^ *(def|class) {part}\b", source, flags=re.M), f"docs/paper.md: {path}{parts}"


def test_the_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+?),? ", text, flags=re.M)
    assert first is not None
    assert first.group(1) == randomset.__version__
