"""Reports as a single self-contained HTML file, which opens from disk, offline, on any screen."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import torch

import randomset
from randomset._core.files import write_text
from randomset.evaluation.comparison import Column, Comparison
from randomset.evaluation.result import Evaluation, json_safe
from randomset.evaluation.tables import Table
from randomset.report.axes import class_colours
from randomset.report.charts import (
    Curve,
    curves,
    detection,
    familiarity,
    levels,
    reliability,
    scores_of,
    selective,
    thresholds,
)

__all__ = [
    "Page",
    "charts_of",
    "comparison_report",
    "evaluation_report",
    "table_of",
    "write_report",
]

_THRESHOLD = """<div class="control"><label>Score <select></select></label>
<label for="limit">Threshold</label><input type="range" id="limit" min="0" max="1000">
<button type="button" hidden>Restore the saved threshold</button></div>
<p class="verdict" aria-live="polite"></p><figure><div class="plot"></div></figure>"""
_SPACE = """<canvas class="space" tabindex="0" role="img" aria-label="Ellipsoids of the classes in three \
dimensions; drag or use the arrow keys to rotate them"></canvas>"""
_SUPPORT = """Predictions are discounted by their reliability, which falls with the distance of an input \
from the training data. Inputs to the right of the dashed line count as familiar, including 95 % of the \
known validation inputs; those to the left count as unlike the training data."""
_ZOOM = "Drag over an area to zoom in, click a name to hide its curve, use the arrow keys to read values."


def evaluation_report(
    result: Evaluation,
    *,
    title: str = "Evaluation",
    gallery: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]] = (),
    space: Mapping[str, Any] | None = None,
    sets: Sequence[tuple[str, float]] = (),
    most_sets: int = 50,
) -> str:
    """Return an evaluation as an HTML page: summary, curves, an adjustable threshold, samples and tables.

    Args:
        result: the evaluation.
        title: the title of the page.
        gallery: groups of samples from `gallery_of`.
        space: the ellipsoids of the classes, as in a run's clusters.json.
        sets: the sets of the budget with their overlaps, in descending order.
        most_sets: the number of sets to list.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> "calibration error" in evaluation_report(result)
    True
    """
    page = Page()
    if "threshold" in result:
        page.content["threshold"] = thresholds(result)
        note = (
            "Move the threshold to see how many test inputs it keeps and how many unknown inputs it rejects."
        )
        page.section("Known or unknown?", _THRESHOLD, note, "threshold")
    if result["ood"]:
        page.section("Detecting unknown inputs", charts_of(detection(page, result)), _ZOOM)
    if "reliability" in result:
        heading = "Familiar or unlike the training data?"
        page.section(heading, familiarity(page, result), _SUPPORT, "familiarity")
    charts = charts_of([reliability(page, result), selective(page, result)])
    page.section("Calibration and selective prediction", charts)
    changes = [name for name in ("noise", "rotation") if name in result]
    if changes:
        charts = charts_of([chart for name in changes for chart in levels(page, result, name)])
        page.section("Robustness to noise and rotation", charts)
    for name, note, samples in gallery:
        if samples:
            page.section(name, page.gallery(samples), note)
    if space:
        page.content["space"] = {**space, "colours": class_colours(len(space["classes"]))}
        note = (
            "Each ellipsoid covers most of a class. Drag to rotate, scroll to zoom, click a name to hide it."
        )
        page.section("Where classes overlap", _SPACE, note, "space")
    if sets:
        rows = tuple((name, f"{overlap:.3f}") for name, overlap in sets[:most_sets])
        note = "Overlap is the intersection over union of the class ellipsoids."
        if len(sets) > most_sets:
            note += f" These are the first {most_sets} of {len(sets)} sets; budget.json lists all of them."
        if not space:
            note += " The ellipsoids are shown only in three dimensions and for up to 100 classes."
        page.section("Sets of classes in the budget", table_of(Table("", ("set", "overlap"), rows)), note)
    for table in result.tables:
        page.section(table.title, table_of(table), table.note)
    if remarks := result.numbers.get("remarks"):
        page.section(
            "Remarks", "<ul>" + "".join(f"<li>{escape(remark)}</li>" for remark in remarks) + "</ul>"
        )
    if "run" in result:
        page.settings(result["run"])
    return page.finished(title, _head(result))


def comparison_report(
    comparison: Comparison,
    first: Mapping[str, Evaluation],
    *,
    title: str = "Comparison",
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Return a comparison of methods as an HTML page: tables, curves of the first seed, settings."""
    page = Page()
    columns = comparison.columns

    def table(of: Sequence[Column]) -> str:
        head = ("method", *(column.measure for column in of))
        rows = tuple((method, *(column.cell(method) for column in of)) for method in comparison.results)
        return table_of(Table("", head, rows), "sortable")

    known = [column for column in columns if column.unknown is None and not column.cost]
    note = "Mean ± standard deviation over seeds; the best is highlighted if its lead exceeds the spread."
    page.section("Known inputs", table(known), f"{note} Click a column name to sort.")
    for name in next(iter(first.values()))["ood"]:
        scores = {
            method: (scores_of(result, "test", "entropy"), scores_of(result, name, "entropy"))
            for method, result in first.items()
        }
        body = table([column for column in columns if column.unknown == name])
        body += charts_of(curves(page, scores))
        page.section(f"Detecting {name}", body, f"The curves are by entropy, for the first seed. {_ZOOM}")
    if costs := [column for column in columns if column.cost]:
        page.section("Cost", table(costs))
    if settings:
        page.settings(settings)
    leads: dict[str, list[str]] = {}
    for column in columns:
        if (best := column.best()) is not None:
            leads.setdefault(best, []).append(column.name.removesuffix(", %"))
    words = [
        f"{method} leads by more than the spread over seeds in {_listed(won)}."
        for method, won in leads.items()
    ]
    counts = {len(each) for each in comparison.results.values()}
    seeds = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(counts.pop())
    seeds += " seed" if seeds == "1" else " seeds"
    summary = f'<p class="lead">{len(comparison.results)} methods, {seeds} each.</p>'
    words = words or ["No method leads any measure by more than the spread over seeds."]
    summary += "".join(f"<p>{escape(line)}</p>" for line in words)
    return page.finished(title, summary)


def write_report(text: str, path: str | Path) -> Path:
    """Write a page atomically; return its path."""
    write_text(text, Path(path))
    return Path(path)


def _head(result: Evaluation) -> str:
    """Return the headline numbers, as a sentence and as cards."""
    test, threshold = result["test"], result.numbers.get("threshold")
    lead = f"Classifies {_percent(test['accuracy'])} of {test['samples']} test inputs correctly"
    if threshold is not None:
        rejected = [f"{_percent(share)} of {name}" for name, share in threshold["detected"].items()]
        lead += f"; keeps {_percent(threshold['kept'])} of known inputs"
        lead += f" and rejects {_listed(rejected)}" if rejected else ""
    cards = [("accuracy", _percent(test["accuracy"])), ("calibration error (ECE)", f"{test['ece']:.4f}")]
    for name, found in result["ood"].items():
        cards.append((f"AUROC, {name}", f"{found['scores']['entropy']['auroc']:.3f}"))
    if threshold is not None:
        cards.append(("accuracy on kept inputs", _percent(threshold["accuracy_of_kept"])))
    items = "".join(f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for name, value in cards)
    rest = "".join(f"<p>{escape(line)}</p>" for line in result.summary.splitlines())
    return f'<p class="lead">{escape(lead)}.</p>{rest}<ul class="cards">{items}</ul>'


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


class Page:
    """Collects sections of HTML, and the data that the script draws into them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.titles: dict[str, str] = {}
        self.content: dict[str, Any] = {"charts": [], "gallery": []}

    def section(self, title: str, body: str, note: str = "", name: str = "") -> None:
        """Add a section; `name` is the id of its element."""
        name = name or f"part-{len(self.parts)}"
        self.titles[name] = title
        self.parts.append(f'<section id="{name}"><h2>{escape(title)}</h2>{_note(note)}{body}</section>')

    def chart(self, title: str, x: str, y: str, series: Mapping[str, Curve], **more: Any) -> str:
        """Return the placeholder of a chart; `more` are ranges, bars, straight lines and notes on series."""
        notes = more.pop("notes", {})
        spec = {
            "title": title,
            "x": {"name": x, "range": more.pop("x_range", None)},
            "y": {"name": y, "range": more.pop("y_range", None)},
            "series": [
                {"name": name, "points": points, "note": notes.get(name, "")}
                for name, points in series.items()
            ],
            **more,
        }
        self.content["charts"].append(spec)
        number = len(self.content["charts"]) - 1
        caption = f"<figcaption>{escape(title)}</figcaption>"
        return f'<figure data-chart="{number}">{caption}<div class="plot"></div></figure>'

    def gallery(self, samples: Sequence[Mapping[str, Any]]) -> str:
        """Return the placeholder of a row of samples."""
        self.content["gallery"].append(list(samples))
        return f'<div class="gallery" data-gallery="{len(self.content["gallery"]) - 1}"></div>'

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Add a section with the settings."""
        text = escape(json.dumps(json_safe(settings), indent=1, ensure_ascii=False))
        self.section("Settings", f"<details><summary>Show all settings</summary><pre>{text}</pre></details>")

    def _links(self) -> str:
        items = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in self.titles.items())
        return f'<nav aria-label="Sections">{items}</nav>'

    def finished(self, title: str, summary: str) -> str:
        """Return the whole page."""
        folder = resources.files("randomset.report") / "page"
        versions = f"randomset {randomset.__version__}, torch {torch.__version__}"
        return Template((folder / "report.html").read_text("utf-8")).substitute(
            title=escape(title),
            summary=summary + self._links(),
            style=(folder / "report.css").read_text("utf-8"),
            script=(folder / "report.js").read_text("utf-8"),
            body="\n".join(self.parts),
            content=_script_json(self.content),
            footer=escape(f"Generated by {versions}, Python {platform.python_version()}."),
        )


def charts_of(charts: Sequence[str]) -> str:
    """Arrange charts side by side."""
    return f'<div class="charts">{"".join(charts)}</div>'


def table_of(table: Table, kind: str = "") -> str:
    """Return a table as HTML."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    mark = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll"><table{mark}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(text: str) -> str:
    bold = text.startswith("**") and text.endswith("**")
    return f"<b>{escape(text[2:-2])}</b>" if bold else escape(text)


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""


def _script_json(content: Any) -> str:
    """Return JSON that cannot close the script element around it."""
    text = json.dumps(json_safe(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
