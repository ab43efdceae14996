"""Reports contain what was measured, escape names, and work in a browser."""

import re

import pytest
import torch

from randomset.evaluation import evaluate
from randomset.evaluation.comparison import Comparison
from randomset.evaluation.tables import Table
from randomset.report import comparison_report, evaluation_report, gallery_of, write_report
from randomset.report.html import Page, table_of
from tests.report.conftest import CLASSES, content_of


def test_report_contains_every_table_and_headline_number(report, measured):
    _, result, _, _ = measured
    for table in result.tables:
        assert table.title in report
    assert f"{100 * result['test']['accuracy']:.1f} %" in report
    assert f"{result['ood']['bright']['scores']['entropy']['auroc']:.3f}" in report


def test_reliability_has_a_section_only_if_there_is_one(report, discounted):
    heading = "Familiar or unlike the training data?"
    page = evaluation_report(discounted[1])
    assert heading in page
    assert "Familiar, with a reliability of 0.5 or more: " in page
    assert heading not in report
    assert "unlike the training data" not in report
    assert "knows" not in report + page


def test_names_are_escaped(report):
    assert "<script>alert" not in report
    assert report.count("</script>") == 2  # the data and the code
    assert "Random &lt;images&gt;" in report
    assert CLASSES[2] in content_of(report)["space"]["classes"]


def test_report_loads_nothing_from_the_network(report):
    assert "default-src 'none'" in report
    outside = set(re.findall(r"https?://[^\s\"')]+", report)) - {"http://www.w3.org/2000/svg"}
    assert outside == set()


def test_comparison_of_methods(measured, tmp_path):
    _, result, _, _ = measured
    costs = {"rsnn": [{"seconds": 1.0}] * 2, "softmax": [{"seconds": 2.0}] * 2}
    comparison = Comparison({"rsnn": [result] * 2, "softmax": [result] * 2}, costs)
    page = comparison_report(
        comparison, {"rsnn": result, "softmax": result}, title="Two", settings={"epochs": 17}
    )
    assert "&quot;epochs&quot;: 17" in page
    assert "2 methods, 2 seeds each" in page
    for column in comparison.columns:
        assert column.measure in page
    assert "No method leads" in page  # they are equal
    for heading in ("Known inputs", "Cost", *(f"Detecting {name}" for name in result["ood"])):
        assert heading in page
    names = [series["name"] for series in content_of(page)["charts"][0]["series"]]
    assert names == ["rsnn", "softmax"]
    assert write_report(page, tmp_path / "report.html").read_text(encoding="utf-8") == page


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")], ids=["desktop", "phone"])
class TestBrowser:
    @pytest.fixture
    def view(self, browser, width, scheme):
        """A browser page that must log nothing and request nothing."""
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        view, log = context.new_page(), []
        view.on("console", lambda message: log.append(message.text))
        view.on("pageerror", lambda error: log.append(str(error)))
        view.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else log.append(r.url))
        yield view
        assert log == []
        context.close()

    def test_threshold_slider(self, view, report, measured, tmp_path):
        view.goto(write_report(report, tmp_path / "report.html").as_uri())
        verdict, stored = view.locator(".verdict"), measured[1]["threshold"]

        def share(what):
            match = re.search(rf"{what} ([\d.]+) %", verdict.inner_text())
            assert match, verdict.inner_text()
            return float(match[1])

        assert share("keeps") == round(100 * stored["kept"], 1)
        assert share("rejects") == pytest.approx(100 * stored["detected"]["bright"], abs=0.051)
        lines = view.locator("#threshold polyline.series")
        view.locator("#threshold .legend button").first.click()
        assert lines.count() == 1
        view.locator("#limit").fill("0")
        assert "keeps 0.0 % of the test inputs" in verdict.inner_text()
        assert lines.count() == 1  # hidden series stay hidden
        view.locator("#limit").fill("1000")
        assert "keeps 100.0 % of the test inputs" in verdict.inner_text()
        view.locator("#threshold select").select_option("credal width")
        assert "its credal width is at most" in verdict.inner_text()
        view.locator("#threshold .control button").click()
        assert share("keeps") == round(100 * stored["kept"], 1)

    def test_charts_can_be_read_zoomed_and_filtered(self, view, report, width, tmp_path):
        view.goto(write_report(report, tmp_path / "report.html").as_uri())
        figure = view.locator("[data-chart]").first
        lines, button = figure.locator("polyline.series"), figure.locator(".legend button").first
        count = lines.count()
        button.focus()
        view.keyboard.press("Enter")
        assert lines.count() == count - 1
        view.keyboard.press("Enter")
        assert lines.count() == count
        svg = figure.locator("svg")
        scale = svg.evaluate("(svg) => svg.viewBox.baseVal.width / svg.clientWidth")
        assert scale < 1.1  # text stays legible
        svg.focus()
        for _ in range(50):  # the tip stays on the screen
            view.keyboard.press("ArrowRight")
            box = figure.locator(".tip").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        svg.scroll_into_view_if_needed()
        area = svg.bounding_box()
        view.mouse.move(area["x"] + 0.4 * area["width"], area["y"] + 0.3 * area["height"])
        assert figure.locator(".tip").is_visible()
        view.mouse.down()
        view.mouse.move(area["x"] + 0.7 * area["width"], area["y"] + 0.6 * area["height"], steps=3)
        view.mouse.up()
        assert figure.locator(".reset").is_visible()
        figure.locator(".reset").click()
        assert figure.locator(".reset").is_hidden()

    def test_samples_ellipsoids_and_layout(self, view, report, tmp_path):
        view.goto(write_report(report, tmp_path / "report.html").as_uri())
        space = view.locator("canvas.space")
        before = space.evaluate("(canvas) => canvas.toDataURL()")
        space.focus()
        view.keyboard.press("ArrowRight")
        assert space.evaluate("(canvas) => canvas.toDataURL()") != before
        assert view.locator(".sample img").count() == 4 * 5
        assert all(view.locator(".sample img").evaluate_all("(all) => all.map((image) => image.alt)"))
        assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        view.emulate_media(media="print")
        assert view.locator(".control").first.is_hidden()
        assert view.locator(".verdict").is_visible()

    def test_samples_show_their_reliability(self, view, discounted, tmp_path):
        network, result, tested, unknown = discounted
        page = evaluation_report(result, gallery=gallery_of(network, result, tested, unknown, count=2))
        view.goto(write_report(page, tmp_path / "report.html").as_uri())
        texts = view.locator(".sample").all_inner_texts()
        assert len(texts) == 2 * 6  # with the least familiar ones
        lines = [
            re.search(r"(familiar|unlike the training data): reliability ([\d.]+)", text) for text in texts
        ]
        limit = result["reliability"]["test"]["familiar_from"]
        for line in lines:
            assert line
            assert abs(float(line[2]) - limit) < 0.0051 or (float(line[2]) > limit) == (line[1] == "familiar")
        assert {line[1] for line in lines[-4:] if line} == {"unlike the training data"}
        assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    def test_comparison_tables_can_be_sorted(self, view, measured, tmp_path):
        _, result, _, _ = measured
        other = evaluate(
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)),
            measured[2], {"bright": measured[3]["bright"].inputs}, progress=False,
        )  # fmt: skip
        results = {"rsnn": [result], "softmax": [other], "ensemble": [result]}
        comparison = Comparison(results, {name: [{}] for name in results})
        page = comparison_report(comparison, {name: each[0] for name, each in results.items()})
        view.goto(write_report(page, tmp_path / "report.html").as_uri())
        table = view.locator("table").nth(1)
        names = table.locator("th").all_inner_texts()
        own = next(i for i, name in enumerate(names) if "own score" in name)
        for _ in range(2):  # missing values come last in both directions
            table.locator("th button").nth(own).click()
            assert table.locator("tbody tr td:first-child").all_inner_texts()[-1] == "softmax"
        assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


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
