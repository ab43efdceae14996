"""Reports as one HTML file that needs nothing else: it opens from disk, offline, on any screen."""

from __future__ import annotations

import html
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from randomset.belief.storage import replacing
from randomset.evaluation.comparison import Column, Comparison
from randomset.evaluation.result import Evaluation, sayable
from randomset.evaluation.selective import risk_coverage
from randomset.evaluation.tables import Table
from randomset.report.budget_figures import class_colours
from randomset.report.detection_figures import right_answers

__all__ = ["comparison_report", "evaluation_report", "write_report"]

_UNITS = {"entropy": "bits", "non-specificity": "bits", "mutual information": "bits"}
_VALUES, _POINTS = 2001, 240
Curve = list[tuple[float, float]]


class _Page:
    """Collects sections as HTML, and beside them what the script draws into them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.names: dict[str, str] = {}
        self.content: dict[str, Any] = {"charts": [], "gallery": []}

    def section(self, title: str, body: str, note: str = "", name: str = "") -> None:
        """Add a part of the page."""
        name = name or f"part-{len(self.parts)}"
        self.names[name] = title
        self.parts.append(f'<section id="{name}"><h2>{_text(title)}</h2>{_note(note)}{body}</section>')

    def chart(self, title: str, x: str, y: str, series: Mapping[str, Curve], **more: Any) -> str:
        """Return the place of a chart; `more` are ranges, bars, straight lines and notes on the series."""
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
        caption = f"<figcaption>{_text(title)}</figcaption>"
        return f'<figure data-chart="{number}">{caption}<div class="plot"></div></figure>'

    def gallery(self, samples: Sequence[Mapping[str, Any]]) -> str:
        """Return the place of a row of samples."""
        self.content["gallery"].append(list(samples))
        return f'<div class="gallery" data-gallery="{len(self.content["gallery"]) - 1}"></div>'

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Add how it was made."""
        text = _text(json.dumps(sayable(settings), indent=1, ensure_ascii=False))
        self.section("Settings", f"<details><summary>How it was made</summary><pre>{text}</pre></details>")

    def _links(self) -> str:
        items = "".join(f'<a href="#{name}">{_text(title)}</a>' for name, title in self.names.items())
        return f'<nav aria-label="Parts of the report">{items}</nav>'

    def finished(self, title: str, summary: str) -> str:
        """Put the page together."""
        import randomset

        read = resources.files("randomset.report") / "page"
        versions = f"randomset {randomset.__version__}, torch {torch.__version__}"
        return Template((read / "report.html").read_text("utf-8")).substitute(
            title=_text(title),
            summary=summary + self._links(),
            style=(read / "report.css").read_text("utf-8"),
            script=(read / "report.js").read_text("utf-8"),
            body="\n".join(self.parts),
            content=_script_json(self.content),
            footer=_text(f"Written by {versions}, Python {platform.python_version()}."),
        )


def evaluation_report(
    result: Evaluation,
    *,
    title: str = "Evaluation",
    gallery: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]] = (),
    space: Mapping[str, Any] | None = None,
    sets: Sequence[tuple[str, float]] = (),
    most_sets: int = 50,
) -> str:
    """Return an evaluation as a page: words, curves, a threshold to move, samples, tables.

    Args:
        result: what was measured.
        title: of the page.
        gallery: groups of samples: a title, a note, and what `gallery_of` gives.
        space: the ellipsoids of the classes, as a run's clusters.json has them.
        sets: the sets of the budget with their overlaps, those that overlap most first.
        most_sets: how many of them are shown.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> "calibration error" in evaluation_report(result)
    True
    """
    page = _Page()
    unknown = list(result["ood"])
    if "threshold" in result:
        page.content["threshold"] = _thresholds(result)
        body = (
            '<div class="control"><label>Score <select></select></label>'
            '<label for="limit">Threshold</label><input type="range" id="limit" min="0" max="1000">'
            '<button type="button" hidden>Back to the stored one</button></div>'
            '<p class="verdict" aria-live="polite"></p><figure><div class="plot"></div></figure>'
        )
        note = "Move the threshold and see how many inputs are kept, and how many unknown ones are stopped."
        page.section("Known or not", body, note, "threshold")
    if unknown:
        page.section("Telling unknown inputs apart", _charts(_detection(page, result)), _ZOOM)
    body = _charts([_reliability(page, result), _selective(page, result)])
    page.section("How far it can be trusted", body)
    changed = [_levels(page, result, name) for name in ("noise", "rotation") if name in result]
    if changed:
        page.section("Changed images", _charts([one for pair in changed for one in pair]))
    for name, note, samples in gallery:
        if samples:
            page.section(name, page.gallery(samples), note)
    if space:
        page.content["space"] = {**space, "colours": class_colours(len(space["classes"]))}
        body = (
            '<canvas class="space" tabindex="0" role="img" aria-label="Ellipsoids of the classes in three '
            'dimensions; drag or use the arrow keys to turn them"></canvas>'
        )
        note = "Each ellipsoid holds most of a class. Drag to turn, scroll to zoom, click a name to hide it."
        page.section("Where classes overlap", body, note, "space")
    if sets:
        rows = tuple((name, f"{overlap:.3f}") for name, overlap in sets[:most_sets])
        note = "By intersection over union of ellipsoids."
        if len(sets) > most_sets:
            note += f" These are the first {most_sets} of {len(sets)}; budget.json has all."
        if not space:
            note += " Ellipsoids are drawn in three dimensions, of at most 100 classes."
        table = Table("Sets of classes in the budget", ("set", "overlap"), rows)
        page.section("Sets that the network weighs", _table(table), note)
    for table in result.tables:
        page.section(table.title, _table(table), table.note)
    if remarks := result.numbers.get("remarks"):
        page.section("Remarks", "<ul>" + "".join(f"<li>{_text(one)}</li>" for one in remarks) + "</ul>")
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
    """Return several methods side by side as a page: the table, the curves of one seed each, the settings."""
    page = _Page()
    columns = comparison.columns

    def table(of: Sequence[Column]) -> str:
        head = ("method", *(column.measure for column in of))
        rows = tuple((method, *(column.cell(method) for column in of)) for method in comparison.results)
        return _table(Table("", head, rows), "sortable")

    known = [column for column in columns if column.unknown is None and not column.cost]
    note = "Means over seeds ± standard deviation; the best is marked where its lead exceeds the spread."
    page.section("Known inputs", table(known), f"{note} Click a name to sort.")
    for name in next(iter(first.values()))["ood"]:
        lines = {
            method: (_scores(result, "test", "entropy"), _scores(result, name, "entropy"))
            for method, result in first.items()
        }
        body = table([column for column in columns if column.unknown == name])
        body += _charts(_curves(page, lines))
        page.section(f"Telling {name} from known inputs", body, f"Curves: entropy, first seed. {_ZOOM}")
    if costs := [column for column in columns if column.cost]:
        page.section("Cost", table(costs))
    if settings:
        page.settings(settings)
    leads: dict[str, list[str]] = {}
    for column in columns:
        if (best := column.best()) is not None:
            leads.setdefault(best, []).append(column.name.removesuffix(", %"))
    words = [
        f"{method} leads beyond the spread over seeds in {_listed(won)}." for method, won in leads.items()
    ]
    counts = {len(each) for each in comparison.results.values()}
    seeds = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(counts.pop())
    seeds += " seed" if seeds == "1" else " seeds"
    summary = f'<p class="lead">{len(comparison.results)} methods, {seeds} each.</p>'
    words = words or ["No method leads in any measure by more than the spread over seeds."]
    summary += "".join(f"<p>{_text(line)}</p>" for line in words)
    return page.finished(title, summary)


def write_report(text: str, path: str | Path) -> Path:
    """Write a page; one that is there is replaced only once the new one is whole."""
    path = Path(path)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


# -- parts ----------------------------------------------------------------------------------------

_ZOOM = "Drag over a part to see it larger, click a name to hide its line, use the arrow keys to read values."


def _head(result: Evaluation) -> str:
    """The most important numbers, first in a sentence, then as cards."""
    test, threshold = result["test"], result.numbers.get("threshold")
    lead = f"Classifies {_percent(test['accuracy'])} of {test['samples']} test inputs rightly"
    if threshold is not None:
        stops = [f"{_percent(share)} of {name}" for name, share in threshold["detected"].items()]
        lead += f"; keeps {_percent(threshold['kept'])} of known inputs"
        lead += f" and stops {' and '.join(stops)}" if stops else ""
    cards = [("accuracy", _percent(test["accuracy"])), ("calibration error (ECE)", f"{test['ece']:.4f}")]
    for name, found in result["ood"].items():
        cards.append((f"AUROC, {name}", f"{found['scores']['entropy']['auroc']:.3f}"))
    if threshold is not None:
        cards.append(("accuracy on what is kept", _percent(threshold["accuracy_of_kept"])))
    items = "".join(f"<li><b>{_text(value)}</b><span>{_text(name)}</span></li>" for name, value in cards)
    rest = "".join(f"<p>{_text(line)}</p>" for line in result.summary.splitlines())
    return f'<p class="lead">{_text(lead)}.</p>{rest}<ul class="cards">{items}</ul>'


def _thresholds(result: Evaluation) -> dict[str, Any]:
    """Sorted values of every score on every data set: the script counts how many are below a threshold."""
    found, right = {}, right_answers(result)
    names = [name for name in result.predictions["test"].scores if name != "rank average"]
    for score in names:
        sets = {name: _scores(result, name, score) for name in ("test", *result["ood"])}
        most = max(float(values.max()) for values in sets.values())
        order = np.argsort(sets["test"], kind="stable")
        among = np.cumsum(right[order]) / np.arange(1, len(right) + 1)
        found[score] = {
            "unit": _UNITS.get(score, ""),
            "most": most or 1.0,
            "right": _some(among),
            "sets": {
                name: {"size": len(values), "values": _some(np.sort(values))} for name, values in sets.items()
            },
        }
    threshold = result["threshold"]
    return {"score": threshold["score"], "value": threshold["value"], "scores": found}


def _detection(page: _Page, result: Evaluation) -> list[str]:
    scores = [one for one in ("entropy", "credal width") if one in result.predictions["test"].scores]
    lines = {
        f"{name} by {score}": (_scores(result, "test", score), _scores(result, name, score))
        for name in result["ood"]
        for score in scores
    }
    return _curves(page, lines)


def _curves(page: _Page, lines: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]) -> list[str]:
    from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

    roc: dict[str, Curve] = {}
    precise: dict[str, Curve] = {}
    areas: dict[str, str] = {}
    for name, (known, other) in lines.items():
        scores, target = np.r_[known, other], np.r_[np.zeros(len(known)), np.ones(len(other))]
        false, true, _ = roc_curve(target, scores)
        precision, recall, _ = precision_recall_curve(target, scores)
        roc[name], areas[name] = _thinned(false, true), f"{roc_auc_score(target, scores):.3f}"
        precise[name] = _thinned(recall[::-1], precision[::-1])
    unit = {"x_range": [0, 1], "y_range": [0, 1]}
    return [
        page.chart(
            "ROC, with its area", "test inputs taken for unknown", "unknown inputs found", roc,
            aids=[[[0, 0], [1, 1]]], notes=areas, **unit,
        ),
        page.chart("Precision, recall", "unknown inputs found", "truly unknown among those", precise, **unit),
    ]  # fmt: skip


def _reliability(page: _Page, result: Evaluation) -> str:
    found = result["test"]["reliability"]
    bars = [
        [low, high, accuracy, confidence]
        for low, high, count, confidence, accuracy in zip(
            found["edges"][:-1], found["edges"][1:], found["count"], found["confidence"], found["accuracy"],
            strict=True,
        )
        if count
    ]  # fmt: skip
    title = f"Accuracy by confidence; dashed is the gap, ECE {result['test']['ece']:.4f}"
    return page.chart(
        title,
        "confidence",
        "accuracy",
        {},
        bars=bars,
        aids=[[[0, 0], [1, 1]]],
        x_range=[0, 1],
        y_range=[0, 1],
    )


def _selective(page: _Page, result: Evaluation) -> str:
    tested, right = result.predictions["test"], torch.from_numpy(right_answers(result))
    series = {}
    for score in [one for one in ("entropy", "credal width") if one in tested.scores]:
        curve = risk_coverage(tested.scores[score], right)
        series[f"by {score}"] = _thinned(100 * curve.coverage.numpy(), 100 * curve.risk.numpy())
    return page.chart(
        "Errors among the surest inputs", "inputs that are answered, %", "wrong among them, %", series,
        x_range=[0, 100], y_range=[0, _top(series)],
    )  # fmt: skip


def _levels(page: _Page, result: Evaluation, name: str) -> list[str]:
    unit = "rotation, degrees" if name == "rotation" else "noise, standard deviation"
    levels = [row["level"] for row in result[name]]
    rows = sorted(
        (
            {**row, "level": _middle(row["level"])}
            for row in result[name]
            if not any(_holds(row["level"], other) for other in levels)  # it stands in the table alone
        ),
        key=lambda row: row["level"],
    )
    accuracy = {"accuracy": [(row["level"], 100 * row["accuracy"]) for row in rows]}
    doubt = {
        "entropy, bits": [(row["level"], row["entropy"]) for row in rows if row.get("entropy") is not None]
    }
    charts = [page.chart(f"Accuracy under {name}", unit, "accuracy, %", accuracy, y_range=[0, 100])]
    if doubt["entropy, bits"]:
        charts.append(
            page.chart(f"Entropy under {name}", unit, "mean entropy, bits", doubt, y_range=[0, _top(doubt)])
        )
    return charts


def _top(series: Mapping[str, Curve]) -> float:
    return max((y for points in series.values() for _, y in points), default=1.0) or 1.0


def _middle(level: Any) -> float:
    """Place a level on an axis: nothing is zero, a range its middle."""
    return 0.0 if level is None else float(np.mean(level))


def _holds(level: Any, other: Any) -> bool:
    """Say whether a range contains another level.

    >>> _holds((0, 360), (0, 15)), _holds((0, 15), (0, 15)), _holds(0.3, 0.1)
    (True, False, False)
    """
    ranges = [one for one in (level, other) if isinstance(one, Sequence)]
    return len(ranges) == 2 and level != other and level[0] <= other[0] and other[1] <= level[1]


def _charts(charts: Sequence[str]) -> str:
    return f'<div class="charts">{"".join(charts)}</div>'


def _table(table: Table, kind: str = "") -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    mark = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll"><table{mark}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(text: str) -> str:
    bold = text.startswith("**") and text.endswith("**")
    return f"<b>{_text(text[2:-2])}</b>" if bold else _text(text)


def _scores(result: Evaluation, name: str, score: str) -> NDArray[Any]:
    return result.predictions[name].scores[score].double().numpy()


def _thinned(x: NDArray[Any], y: NDArray[Any]) -> Curve:
    """Keep at most a few hundred points of a curve, evenly along its length."""
    length = np.r_[0, np.cumsum(np.hypot(np.diff(x), np.diff(y)))]
    wanted = np.linspace(0, length[-1], _POINTS)
    places = np.unique(np.r_[0, np.searchsorted(length, wanted).clip(0, len(x) - 1), len(x) - 1])
    return [(round(float(a), 5), round(float(b), 5)) for a, b in zip(x[places], y[places], strict=True)]


def _some(values: NDArray[Any]) -> list[float]:
    """Take evenly spaced values of many, with seven digits."""
    places = np.linspace(0, len(values) - 1, min(len(values), _VALUES)).round().astype(int)
    return [float(f"{value:.7g}") for value in values[places]]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _text(value: str) -> str:
    return html.escape(value)


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>' if text else ""


def _script_json(content: Any) -> str:
    """JSON that cannot end the script it stands in."""
    text = json.dumps(sayable(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
