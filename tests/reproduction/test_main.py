import re

import pytest

from reproduction import exhibits
from tests.reproduction.commands import reproduce, uses_tiny_results


class TestWithResults:
    pytestmark = uses_tiny_results

    def test_list(self, made):
        listed = reproduce(cwd=made.folder).stdout
        pattern = (
            r"table-1 .*needs mnist, cifar10, intel; tiny \d+ s, .*full 1235 h on a GPU; results: tiny, "
            r"stored results: cpu"
        )
        assert re.search(pattern, listed)  # 5 × 5 × 2,964 minutes by the paper's Table 6

    def test_table(self, made):
        table = reproduce("table", "table-3", "--scale", "tiny", cwd=made.folder).stdout
        assert "result.json" in table.splitlines()[0]
        assert table.partition("\n\n")[2].strip() == (made.place("table-3") / "table.md").read_text().strip()
        assert "(0.007)" in table  # the paper's
        stored = reproduce("table", "table-3", cwd=made.folder).stdout
        assert "stored result" in stored.splitlines()[0]

    def test_page(self, made):
        done = reproduce("page", "--scale", "tiny", "--out", "p/paper.md", cwd=made.folder)
        assert done.returncode == 0, done.stderr
        page = (made.folder / "p" / "paper.md").read_text(encoding="utf-8")
        for item in exhibits():
            assert f"`python -m reproduction run {item.id} --scale tiny --seeds 1`" in page
        paths = re.findall(r"!\[.*\]\((.*)\)", page)
        assert len(paths) >= 25
        for path in paths:
            assert (made.folder / "p" / path).exists()

    def test_nothing_is_trained_or_measured_twice(self, made):
        models = made.place("models")
        before = {path: path.stat().st_mtime_ns for path in models.rglob("model.safetensors")}
        numbers = made.numbers("table-2")
        done = reproduce("run", "table-2", "--scale", "tiny", cwd=made.folder)
        assert done.returncode == 0, done.stderr
        again = made.outcome("table-2")
        assert again.numbers == numbers
        assert again.reused > again.measuring  # earlier measurements count among its time
        assert "Model 1" not in done.stdout
        assert "Measuring" not in done.stdout
        assert {path: path.stat().st_mtime_ns for path in models.rglob("model.safetensors")} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "table-99"), "unknown table or figure; got table-99"),
        (("run", "table-1", "--scale", "huge"), "unknown scale; got huge"),
        (("run", "table-1", "--seeds", "0"), "--seeds is out of range"),
        (("table", "table-1", "--scale", "huge"), "unknown scale; got huge"),
        (("table", "table-1", "--scale", "full"), "First: python -m reproduction run table-1 --scale full"),
        (("page", "--scale", "full"), "First: python -m reproduction run all --scale full"),
    ],
)
def test_mistakes(tmp_path, arguments, message):
    done = reproduce(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
