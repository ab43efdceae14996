"""Reports as one HTML file that needs nothing else: it opens from disk, offline, on any screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from randomset._core.files import replacing
from randomset.evaluation.comparison import Column, Comparison
from randomset.evaluation.result import Evaluation
from randomset.evaluation.tables import Table
from randomset.report.budget_figures import class_colours
from randomset.report.charts import curves, detection, levels, reliability, scores_of, selective, thresholds
from randomset.report.sections import Page, charts_of, escaped, table_of

__all__ = ["comparison_report", "evaluation_report", "write_report"]


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
    page = Page()
    unknown = list(result["ood"])
    if "threshold" in result:
        page.content["threshold"] = thresholds(result)
        body = (
            '<div class="control"><label>Score <select></select></label>'
            '<label for="limit">Threshold</label><input type="range" id="limit" min="0" max="1000">'
            '<button type="button" hidden>Back to the stored one</button></div>'
            '<p class="verdict" aria-live="polite"></p><figure><div class="plot"></div></figure>'
        )
        note = "Move the threshold and see how many inputs are kept, and how many unknown ones are stopped."
        page.section("Known or not", body, note, "threshold")
    if unknown:
        page.section("Telling unknown inputs apart", charts_of(detection(page, result)), _ZOOM)
    body = charts_of([reliability(page, result), selective(page, result)])
    page.section("How far it can be trusted", body)
    changed = [levels(page, result, name) for name in ("noise", "rotation") if name in result]
    if changed:
        page.section("Changed images", charts_of([one for pair in changed for one in pair]))
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
        page.section("Sets that the network weighs", table_of(table), note)
    for table in result.tables:
        page.section(table.title, table_of(table), table.note)
    if remarks := result.numbers.get("remarks"):
        page.section("Remarks", "<ul>" + "".join(f"<li>{escaped(one)}</li>" for one in remarks) + "</ul>")
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
    page = Page()
    columns = comparison.columns

    def table(of: Sequence[Column]) -> str:
        head = ("method", *(column.measure for column in of))
        rows = tuple((method, *(column.cell(method) for column in of)) for method in comparison.results)
        return table_of(Table("", head, rows), "sortable")

    known = [column for column in columns if column.unknown is None and not column.cost]
    note = "Means over seeds ± standard deviation; the best is marked where its lead exceeds the spread."
    page.section("Known inputs", table(known), f"{note} Click a name to sort.")
    for name in next(iter(first.values()))["ood"]:
        lines = {
            method: (scores_of(result, "test", "entropy"), scores_of(result, name, "entropy"))
            for method, result in first.items()
        }
        body = table([column for column in columns if column.unknown == name])
        body += charts_of(curves(page, lines))
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
    summary += "".join(f"<p>{escaped(line)}</p>" for line in words)
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
    items = "".join(f"<li><b>{escaped(value)}</b><span>{escaped(name)}</span></li>" for name, value in cards)
    rest = "".join(f"<p>{escaped(line)}</p>" for line in result.summary.splitlines())
    return f'<p class="lead">{escaped(lead)}.</p>{rest}<ul class="cards">{items}</ul>'


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
