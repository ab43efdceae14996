from reproduction import Outcome, exhibit, exhibits
from reproduction.page import page_of, write_page


def outcome(**seconds):
    times = {"training": 0, "measuring": 1, "reused": 0, **seconds}
    numbers = exhibit("figure-4").measure(None)  # type: ignore[arg-type]
    return Outcome("figure-4", "tiny", 1, numbers=numbers, **times)


def test_sections_have_command_times_table_and_verdict():
    page = page_of([exhibit("figure-4")], {"figure-4": outcome(training=120, measuring=7000, reused=200)}, {})
    assert "## Figure 4: The credal set of a belief function\n" in page
    assert "run figure-4 --scale tiny --seeds 1`: training 2 min, measurement 2.0 h." in page
    assert "\n### The paper's worked example\n" in page
    assert "| c1 | 0.50 | 0.70 | 0.90 |\n| c2 | 0.00 | 0.20 | 0.40 |\n| c3 | 0.10 | 0.10 | 0.10 |" in page
    assert "match those of the paper's Section 2." in page
    assert "Not measured yet" not in page


def test_missing_results_are_named():
    page = page_of(exhibits(), {"figure-4": outcome()}, {})
    assert "no results at this scale for table-1, table-2, " in page
    assert "figure-4" not in page.partition("Not measured yet")[2]


def test_figures_are_copied_and_those_of_stored_results_kept(tmp_path):
    (tmp_path / "tiny" / "figure-4").mkdir(parents=True)
    (tmp_path / "tiny" / "figure-4" / "new.png").write_bytes(b"new")
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "figure-4-old.png").write_bytes(b"old")
    written = write_page(tmp_path / "page.md", tmp_path / "tiny", exhibits(), {"figure-4": outcome()})
    assert (tmp_path / "page" / "figure-4-new.png").read_bytes() == b"new"
    text = written.read_text(encoding="utf-8")
    assert "(page/figure-4-new.png)" in text
    assert "(page/figure-4-old.png)" in text
