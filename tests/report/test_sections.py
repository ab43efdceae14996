from randomset.evaluation.tables import Table
from randomset.report.sections import Page, table_of
from tests.report.conftest import content_of


def test_page_links_sections_and_escapes_titles_and_data():
    page = Page()
    page.section("A < B", "<p>body</p>", "a note", "first")
    page.section("Chart", page.chart("</script>", "x", "y", {"s": [(0.0, 1.0)]}, notes={"s": "0.5"}))
    page.settings({"epochs": 3})
    text = page.finished("<title>", "")
    assert '<a href="#first">A &lt; B</a>' in text
    assert '<p class="note">a note</p><p>body</p>' in text
    assert text.count("</script>") == 2  # the data and the code
    (chart,) = content_of(text)["charts"]
    assert chart["title"] == "</script>"
    assert chart["series"] == [{"name": "s", "points": [[0.0, 1.0]], "note": "0.5"}]
    assert "&quot;epochs&quot;: 3" in text


def test_tables_mark_the_best_cell():
    text = table_of(Table("", ("a", "<b>"), (("**1**", "2"),)), "sortable")
    assert "<td><b>1</b></td><td>2</td>" in text
    assert '<th scope="col">&lt;b&gt;</th>' in text
    assert '<table class="sortable">' in text
