"""All tables and figures at scale tiny, made once for the tests of this folder."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from reproduction import SCALES, Outcome, Workshop
from tests.reproduction.commands import reproduce


@dataclass(frozen=True)
class Made:
    """The folder of all results, and what the command printed."""

    folder: Path
    output: str

    @property
    def shop(self):
        return Workshop(SCALES["tiny"], self.place())

    def place(self, id=""):
        return self.folder / "paper" / "tiny" / id

    def outcome(self, id):
        return Outcome.load(self.place(id) / "result.json")

    def numbers(self, id):
        return self.outcome(id).numbers

    def tables(self, id):
        """Parse table.md: a list of tables, each a list of rows of cells, with the columns first."""
        tables: list[list[list[str]]] = []
        previous = ""
        for line in (self.place(id) / "table.md").read_text(encoding="utf-8").splitlines():
            if line.startswith("|"):
                if not previous.startswith("|"):
                    tables.append([])
                tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
            previous = line
        return [[table[0], *table[2:]] for table in tables]

    def table(self, id):
        """Parse the only table: rows of cells by their first cell."""
        (table,) = self.tables(id)
        return {row[0]: row[1:] for row in table[1:]}


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Everything at the smallest scale, through the command line."""
    folder = tmp_path_factory.mktemp("paper")
    done = reproduce("run", "all", "--scale", "tiny", cwd=folder)
    assert done.returncode == 0, done.stderr
    return Made(folder, done.stdout)
