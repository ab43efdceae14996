"""Reports: what was measured is in them, names in them do no harm, and they work in a browser."""

import json
import re

import pytest
import torch

from randomset import Budget, RandomSetNetwork, backbones
from randomset.data import Source
from randomset.evaluation import Threshold, evaluate
from randomset.evaluation.comparison import Comparison
from randomset.report import comparison_report, evaluation_report, gallery_of, write_report

CLASSES = ("cat", "dog", "<script>alert(1)</script>")
SPACE = {
    "classes": list(CLASSES),
    "radius": 2.0,
    "ellipsoids": [
        {"centre": [float(c), 0.0, 0.0], "axes": [[1.0, 0, 0], [0, 0.5, 0], [0, 0, 0.2]], "of": c}
        for c in range(3)
    ],
    "points": [[float(c), 0.1 * i, 0.0, c] for c in range(3) for i in range(5)],
}


@pytest.fixture(scope="module")
def measured():
    """A network on drawn images, what was measured, and the data."""
    torch.manual_seed(0)
    network = RandomSetNetwork(backbones.small_cnn(1, 8), Budget.powerset(CLASSES)).eval()
    with torch.no_grad():
        next(network.head.layers.parameters()).mul_(30)
    images, labels = torch.rand(60, 1, 8, 8), torch.arange(60) % 3
    tested = Source("drawn", "images", images, labels, CLASSES)
    strange = Source("strange", "images", 3 * torch.rand(40, 1, 8, 8), torch.full((40,), -1), CLASSES)
    result = evaluate(
        network, tested, {"strange": strange.inputs},
        validation=(torch.rand(30, 1, 8, 8), torch.arange(30) % 3),
        noise=(0.2, 0.5), rotation=((30, 60), (0, 360)), samples=20, progress=False,
    )  # fmt: skip
    return network, result, tested, {"strange": strange}


@pytest.fixture(scope="module")
def page(measured):
    network, result, tested, others = measured
    threshold = Threshold("entropy", result["threshold"]["value"], 0.95)
    gallery = gallery_of(network, result, tested, others, threshold=threshold, count=4)
    return evaluation_report(
        result, title="Drawn <images>", gallery=gallery, space=SPACE, sets=[("{cat, dog}", 0.5)]
    )


def content_of(page):
    found = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_every_table_and_number_is_there(page, measured):
    _, result, _, _ = measured
    for table in result.tables:
        assert table.title in page
    assert f"{100 * result['test']['accuracy']:.1f} %" in page
    assert f"{result['ood']['strange']['scores']['entropy']['auroc']:.3f}" in page


def test_names_cannot_become_code(page):
    assert "<script>alert" not in page
    assert page.count("</script>") == 2  # the content and the code
    assert "Drawn &lt;images&gt;" in page
    assert CLASSES[2] in content_of(page)["space"]["classes"]


def test_nothing_is_loaded_from_elsewhere(page):
    assert "default-src 'none'" in page
    outside = set(re.findall(r"https?://[^\s\"')]+", page)) - {"http://www.w3.org/2000/svg"}
    assert outside == set()


def test_the_threshold_gives_the_shares_that_were_measured(page, measured):
    _, result, _, _ = measured
    found, threshold = content_of(page)["threshold"], result["threshold"]
    assert found["score"] == threshold["score"]
    score = found["scores"]["entropy"]
    for name, part in score["sets"].items():
        exact = result.predictions[name].scores["entropy"].double()
        assert part["size"] == len(part["values"]) == len(exact)  # few enough to have them all
        assert part["values"] == pytest.approx(exact.sort().values.tolist(), rel=1e-6)
    assert score["right"][-1] == pytest.approx(result["test"]["accuracy"], abs=1e-4)


def test_curves_begin_and_end_where_they_must(page):
    charts = {chart["title"]: chart for chart in content_of(page)["charts"]}
    for series in charts["ROC, with its area"]["series"]:
        assert series["points"][0] == [0, 0]
        assert series["points"][-1] == [1, 1]
    assert [point[0] for point in charts["Accuracy under noise"]["series"][0]["points"]] == [0, 0.2, 0.5]
    assert [point[0] for point in charts["Accuracy under rotation"]["series"][0]["points"]] == [0, 45]


class TestGallery:
    def test_groups_are_what_their_names_say(self, measured):
        network, result, tested, others = measured
        groups = {name: samples for name, _, samples in gallery_of(network, result, tested, others, count=4)}
        entropy = result.predictions["test"].scores["entropy"].double()
        assert [one["entropy"] for one in groups["Surest"]] == pytest.approx(
            entropy.sort().values[:4].tolist(), abs=1e-3
        )
        assert groups["Least sure"][0]["entropy"] == pytest.approx(entropy.max().item(), abs=1e-3)
        assert all(one["label"] != one["truth"] for one in groups["Most wrong"])
        assert groups["strange: least sure"][0]["truth"] == ""

    def test_a_sample_has_its_belief_function(self, measured):
        network, result, tested, others = measured
        (_, _, samples), *_ = gallery_of(network, result, tested, others, count=2)
        for one in samples:
            assert sum(mass for _, mass, _ in one["sets"]) == pytest.approx(1, abs=0.03)
            assert all(mass <= belief + 1e-4 for _, mass, belief in one["sets"])
            assert all(low - 1e-4 <= p <= high + 1e-4 for _, p, low, high in one["classes"])
            assert one["image"].startswith("iVBOR")  # a PNG in base64
            assert one["known"] is None  # without a threshold

    def test_words_of_a_network_that_reads(self, measured):
        network, result, tested, others = measured
        groups = gallery_of(
            network, result, tested, others, words=lambda one: f"{one.numel()} pixels", count=1
        )
        assert groups[0][2][0]["text"] == "64 pixels"

    def test_another_model_has_probabilities_alone(self, measured):
        _, _, tested, _ = measured
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        result = evaluate(model, tested, progress=False)
        (_, _, samples), *_ = gallery_of(model, result, tested, {}, count=1)
        assert samples[0]["sets"] == []
        assert "width" not in samples[0]


def test_methods_side_by_side(measured, tmp_path):
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
    assert "No method leads" in page  # they are alike
    for heading in ("Known inputs", "Cost", *(f"Telling {name} from known inputs" for name in result["ood"])):
        assert heading in page
    names = [series["name"] for series in content_of(page)["charts"][0]["series"]]
    assert names == ["rsnn", "softmax"]
    assert write_report(page, tmp_path / "report.html").read_text(encoding="utf-8") == page


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")], ids=["desktop", "phone"])
class TestBrowser:
    @pytest.fixture
    def view(self, browser, width, scheme):
        """A page that says nothing and asks for nothing."""
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        view, said = context.new_page(), []
        view.on("console", lambda message: said.append(message.text))
        view.on("pageerror", lambda error: said.append(str(error)))
        view.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else said.append(r.url))
        yield view
        assert said == []
        context.close()

    def test_the_threshold_moves(self, view, page, measured, tmp_path):
        view.goto(write_report(page, tmp_path / "report.html").as_uri())
        verdict, stored = view.locator(".verdict"), measured[1]["threshold"]

        def said(what):
            found = re.search(rf"{what} ([\d.]+) %", verdict.inner_text())
            assert found, verdict.inner_text()
            return float(found[1])

        assert said("keeps") == round(100 * stored["kept"], 1)
        assert said("stops") == pytest.approx(100 * stored["detected"]["strange"], abs=0.051)
        lines = view.locator("#threshold polyline.series")
        view.locator("#threshold .legend button").first.click()
        assert lines.count() == 1
        view.locator("#limit").fill("0")
        assert "keeps 0.0 % of the test inputs" in verdict.inner_text()
        assert lines.count() == 1  # what was hidden stays hidden
        view.locator("#limit").fill("1000")
        assert "keeps 100.0 % of the test inputs" in verdict.inner_text()
        view.locator("#threshold select").select_option("credal width")
        assert "its credal width is at most" in verdict.inner_text()
        view.locator("#threshold .control button").click()
        assert said("keeps") == round(100 * stored["kept"], 1)

    def test_charts_are_read_zoomed_and_hidden(self, view, page, width, tmp_path):
        view.goto(write_report(page, tmp_path / "report.html").as_uri())
        figure = view.locator("[data-chart]").first
        lines, button = figure.locator("polyline.series"), figure.locator(".legend button").first
        count = lines.count()
        button.focus()
        view.keyboard.press("Enter")
        assert lines.count() == count - 1
        view.keyboard.press("Enter")
        assert lines.count() == count
        svg = figure.locator("svg")
        assert (
            svg.evaluate("(svg) => svg.viewBox.baseVal.width / svg.clientWidth") < 1.1
        )  # letters stay large
        svg.focus()
        for _ in range(50):  # the tip stays on the screen, from the first place to the last
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

    def test_samples_space_and_size(self, view, page, tmp_path):
        view.goto(write_report(page, tmp_path / "report.html").as_uri())
        space = view.locator("canvas.space")
        before = space.evaluate("(canvas) => canvas.toDataURL()")
        space.focus()
        view.keyboard.press("ArrowRight")
        assert space.evaluate("(canvas) => canvas.toDataURL()") != before
        assert view.locator(".sample img").count() == 4 * 5
        assert all(view.locator(".sample img").evaluate_all("(all) => all.map((one) => one.alt)"))
        assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        view.emulate_media(media="print")
        assert view.locator(".control").first.is_hidden()
        assert view.locator(".verdict").is_visible()

    def test_a_comparison_is_sorted(self, view, measured, tmp_path):
        _, result, _, _ = measured
        other = evaluate(
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)),
            measured[2], {"strange": measured[3]["strange"].inputs}, progress=False,
        )  # fmt: skip
        results = {"rsnn": [result], "softmax": [other], "ensemble": [result]}
        comparison = Comparison(results, {name: [{}] for name in results})
        page = comparison_report(comparison, {name: each[0] for name, each in results.items()})
        view.goto(write_report(page, tmp_path / "report.html").as_uri())
        table = view.locator("table").nth(1)
        names = table.locator("th").all_inner_texts()
        own = next(place for place, name in enumerate(names) if "own score" in name)
        for _ in range(2):  # what is missing comes last, whichever way
            table.locator("th button").nth(own).click()
            assert table.locator("tbody tr td:first-child").all_inner_texts()[-1] == "softmax"
        assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
