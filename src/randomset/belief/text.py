"""Text, tables and HTML for random sets."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import torch

from randomset._core.checks import braces
from randomset.belief.budget import Budget
from randomset.errors import ShapeError

if TYPE_CHECKING:
    from randomset.belief.random_set import RandomSet

__all__ = ["FAMILIAR", "columns", "explanation", "familiarity", "html", "reliability_text", "summary"]

FAMILIAR = 0.5
"""The smallest reliability at which an input is called familiar, if it was not fitted to known inputs."""

_ROWS = 10


def familiarity(reliability: float, familiar_from: float = FAMILIAR) -> str:
    """Describe in words what a reliability means for an input.

    >>> familiarity(0.98), familiarity(0.98, familiar_from=0.995)
    ('familiar', 'unlike the training data')
    """
    return "familiar" if reliability >= familiar_from else "unlike the training data"


def reliability_text(reliability: float, familiar_from: float = FAMILIAR) -> str:
    """Return a reliability and its meaning, with the limit if the input is not familiar.

    >>> reliability_text(0.98), reliability_text(0.98, familiar_from=0.9834)
    ('familiar: reliability 0.98', 'unlike the training data: reliability 0.980, below 0.983')
    """
    return f"{familiarity(reliability, familiar_from)}: {_number(reliability, familiar_from)}"


def _number(reliability: float, familiar_from: float) -> str:
    """Return "reliability 0.98"; if that is not familiar, add the limit, with as many digits as needed."""
    if reliability >= familiar_from:
        return f"reliability {reliability:.2f}"
    digits = next(n for n in (2, 3, 5, 16) if round(reliability, n) < round(familiar_from, n) or n == 16)
    return f"reliability {reliability:.{digits}f}, below {familiar_from:.{digits}f}"


def summary(random_set: RandomSet) -> str:
    """Return the one-line representation."""
    budget = random_set.budget
    shape = random_set.shape
    size = f"{tuple(shape)} samples" if len(shape) > 1 else f"{shape.numel()} samples"
    size = "1 sample" if shape.numel() == 1 and len(shape) < 2 else size
    line = f"RandomSet({size} over {budget.num_classes} classes, {budget.num_sets} sets"
    if shape.numel():
        line += f"; mean confidence {random_set.confidence.mean():.3f}"
        line += f", mean credal width {random_set.credal_width.mean():.3f}"
        if random_set.is_discounted:
            line += f", mean reliability {random_set.reliability.mean():.3f}"
    return line + ")"


def explanation(sample: RandomSet, top: int) -> str:
    """Return "0.61 on {cat, dog}, 0.30 on {cat}; predicted cat, probability in [0.30, 0.91]".

    For a discounted prediction, its reliability follows, and whether the input is unlike the training data:
    "0.87 on Θ (all classes): unlike the training data; 0.13 on {cat}; predicted cat, …; reliability 0.13, …".
    """
    if sample.shape.numel() != 1:
        raise ShapeError(
            "explain needs a single sample",
            got=f"{tuple(sample.shape)} samples",
            remedy="Pass its index: explain(0)",
        )
    sample = sample if not sample.shape else sample[(0,) * len(sample.shape)]
    budget, label = sample.budget, int(sample.labels)
    mass, order = sample.mass.sort(descending=True, stable=True)
    shown = [
        f"{m:.2f} on {set_name(budget, k)}" if m >= 0.005 else f"{m:.0e} on {set_name(budget, k)}"
        for i, (m, k) in enumerate(zip(mass[:top].tolist(), order[:top].tolist(), strict=True))
        if m >= 0.005 or i == 0
    ]
    parts, unlike = [", ".join(shown)], sample.is_discounted and not bool(sample.familiar)
    discount = 1 - sample.reliability.item()
    on_theta = unlike and int(order[0]) == len(budget) - 1 and discount > mass[0] / 2
    if on_theta:
        parts = [f"{shown[0]}: unlike the training data", ", ".join(shown[1:])]
    lower, upper = sample.lower[label].item(), sample.upper[label].item()
    parts.append(f"predicted {budget.classes[label]}, probability in [{lower:.2f}, {upper:.2f}]")
    if sample.is_discounted:
        numbers = sample.reliability.item(), sample.familiar_from
        parts.append(reliability_text(*numbers) if unlike and not on_theta else _number(*numbers))
    return "; ".join(part for part in parts if part)


def set_name(budget: Budget, k: int) -> str:
    """Return a short name of a set."""
    return "Θ (all classes)" if k == len(budget) - 1 else braces(list(budget.names_of(k)), shorten=8)


def columns(random_set: RandomSet, *, probabilities: bool) -> dict[str, Any]:
    """Return the columns of a table with one row per sample."""
    count = random_set.shape.numel()
    label = random_set.labels.unsqueeze(-1)
    mass, top = random_set.mass.max(-1)
    numbers = {
        "confidence": random_set.confidence,
        "lower": random_set.lower.gather(-1, label),
        "upper": random_set.upper.gather(-1, label),
        "credal_width": random_set.credal_width,
        "entropy": random_set.entropy,
        "nonspecificity": random_set.nonspecificity,
        "top_mass": mass,
    }
    if random_set.is_discounted:
        numbers["reliability"] = random_set.reliability
        numbers["familiar"] = random_set.familiar
    if random_set.disagreement is not None:
        numbers["disagreement"] = random_set.disagreement
    table: dict[str, Any] = {"label": random_set.label_names}
    table |= {name: value.detach().flatten().tolist() for name, value in numbers.items()}
    table["top_set"] = [set_name(random_set.budget, k) for k in top.flatten().tolist()]
    if probabilities:
        rows = random_set.pignistic.detach().reshape(count, random_set.budget.num_classes).T.tolist()
        table |= {f"p({c})": row for c, row in zip(random_set.budget.classes, rows, strict=True)}
    return table


def html(random_set: RandomSet) -> str:
    """Return an HTML table of the first samples, with the probability interval drawn as a bar."""
    total = random_set.shape.numel()
    shown = random_set if not random_set.shape else random_set[torch.arange(len(random_set)) < _ROWS]
    table = columns(shown, probabilities=False)
    rows = []
    for i, label in enumerate(table["label"][:_ROWS]):
        lower, upper, p = (table[name][i] for name in ("lower", "upper", "confidence"))
        bar = (
            "<div style='position:relative;width:8em;height:.8em;background:#8882'>"
            f"<div style='position:absolute;left:{lower:.1%};width:{upper - lower:.1%};"
            "height:100%;background:#4a90d9'></div>"
            f"<div style='position:absolute;left:{p:.1%};width:2px;height:100%;background:#000'></div></div>"
        )
        cells = [
            str(i),
            escape(label),
            f"{p:.3f}",
            f"[{lower:.3f}, {upper:.3f}]",
            bar,
            f"{table['entropy'][i]:.3f}",
            escape(f"{table['top_mass'][i]:.2f} on {table['top_set'][i]}"),
        ]
        if random_set.is_discounted:
            cells.append(reliability_text(table["reliability"][i], random_set.familiar_from))
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = ["", "label", "BetP", "interval", "0 … 1", "entropy (bits)", "largest mass"]
    heads += ["reliability"] if random_set.is_discounted else []
    head = "".join(f"<th>{name}</th>" for name in heads)
    more = f"<p>… and {total - len(rows)} more</p>" if total > len(rows) else ""
    title = escape(summary(random_set))
    return f"<p><b>{title}</b></p><table><tr>{head}</tr>{''.join(rows)}</table>{more}"
