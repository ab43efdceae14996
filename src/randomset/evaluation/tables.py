"""Tables and a text summary of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from randomset.belief.text import FAMILIAR

__all__ = ["UNITS", "Table", "summary_of", "tables_of", "with_unit"]

ALL_ATTACKS, TRANSFER = "all of them", "transfer of PGD from a softmax twin"  # as stored in evaluation.json
_TITLES = {ALL_ATTACKS: "all attacks", TRANSFER: "transfer of PGD from a softmax model"}
UNITS = {"entropy": "bits", "non-specificity": "bits", "mutual information": "bits"}
"""All other scores are dimensionless: shares or differences of probabilities."""


def with_unit(score: str, shown: str | None = None) -> str:
    """Return the name of a score, or the name to show instead, with its unit.

    >>> with_unit("entropy"), with_unit("credal width")
    ('entropy, bits', 'credal width')
    """
    name = score if shown is None else shown
    return f"{name}, {UNITS[score]}" if score in UNITS else name


_MOST_CLASSES = 50  # in the table of classes


@dataclass(frozen=True)
class Table:
    """A table: title, column names, rows of text, and an explanatory note."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def to_markdown(self) -> str:
        """Return the table as Markdown.

        >>> print(Table("Sizes", ("set", "size"), (("a", "1"),)).to_markdown())
        ## Sizes
        <BLANKLINE>
        | set | size |
        |---|---|
        | a | 1 |
        """
        lines = [f"## {self.title}", ""]
        lines += [f"{self.note}", ""] if self.note else []
        lines += ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows]
        return "\n".join(lines)


def tables_of(numbers: dict[str, Any]) -> list[Table]:
    """Return one table for each section of an evaluation."""
    tables = [_test(numbers["test"])]
    if "by_class" in numbers:  # not in evaluations of earlier versions
        tables += _by_class(numbers["by_class"], numbers["classes"])
    if numbers["ood"]:
        tables.append(_ood(numbers["ood"]))
    if "reliability" in numbers:
        tables.append(_reliability(numbers["reliability"]))
    if "threshold" in numbers:
        tables.append(_threshold(numbers["threshold"]))
    tables.append(_selective(numbers["selective"]))
    if "decisions" in numbers:
        tables.append(_decisions(numbers["decisions"]))
    if "conformal" in numbers:
        tables.append(_conformal(numbers["conformal"]))
    for name, title in (("noise", "Noise"), ("rotation", "Rotation")):
        if name in numbers:
            tables.append(_levels(title, numbers[name], numbers["changed_samples"]))
    if "attacks" in numbers:
        tables.append(_attacks(numbers["attacks"], numbers["changed_samples"]))
    if "timing" in numbers:
        tables.append(_timing(numbers["timing"]))
    return tables


def summary_of(numbers: dict[str, Any]) -> list[str]:
    """Summarise the most important metrics in sentences."""
    test = numbers["test"]
    lines = [
        f"On {test['samples']} test inputs: accuracy {_share(test['accuracy'])}, calibration error "
        f"{test['ece']:.4f}, mean entropy {test['scores']['entropy']['mean']:.3f} bits."
    ]
    threshold = numbers.get("threshold")
    for name, measured in numbers["ood"].items():
        scores = [score for score in ("entropy", "credal width") if score in measured["scores"]]
        areas = " and ".join(f"{measured['scores'][score]['auroc']:.3f} by {score}" for score in scores)
        lines.append(f"Detecting {measured['samples']} inputs of {name}: AUROC {areas}.")
    if "reliability" in numbers:
        shares = (
            f"{_share(row['familiar'])} of {'the test inputs' if name == 'test' else name}"
            for name, row in numbers["reliability"].items()
        )
        limit = _familiar_from(numbers["reliability"])
        lines.append(f"Familiar, with a reliability of {limit:.4g} or more: {', '.join(shares)}.")
    if threshold is not None:
        kept, stopped = _share(threshold["kept"]), threshold["detected"]
        lines.append(
            f"An input counts as known if its {threshold['score']} is at most {threshold['value']:.4g}: "
            f"this accepts {kept} of the test inputs"
            + "".join(f" and rejects {_share(share)} of {name}" for name, share in stopped.items())
            + "."
        )
    if "conformal" in numbers:
        row, wanted = numbers["conformal"]["rows"][0], 1 - numbers["conformal"]["alpha"]
        lines.append(
            f"Conformal sets by {row['score']} contain the true class of {_share(row['coverage'])} of "
            f"the inputs (target: {wanted:.0%}), with {row['size']:.2f} classes on average."
        )
    if "attacks" in numbers:
        worst = [row for row in numbers["attacks"] if row["attack"] == ALL_ATTACKS][-1]
        lines.append(
            f"Under all attacks with ε = {worst['epsilon']:g}: accuracy {_share(worst['accuracy'])}."
        )
    if "timing" in numbers:
        one, many = numbers["timing"]["latency_ms"]["median"], numbers["timing"]["throughput"]["median"]
        lines.append(f"A single prediction takes {one:.2g} ms; in batches, {many:,.0f} inputs per second.")
    return lines


def _test(test: dict[str, Any]) -> Table:
    names = {
        "accuracy": "accuracy",
        "top_5_accuracy": "top-5 accuracy",
        "balanced_accuracy": "balanced accuracy",
        "confidence": "mean confidence",
        "nll": "negative log-likelihood, nats",
        "brier": "Brier score",
        "ece": "calibration error (ECE)",
        "ece_equal_mass": "ECE, bins of equal count",
        "classwise_ece": "class-wise ECE",
    }
    shares = ("accuracy", "top_5_accuracy", "balanced_accuracy", "confidence")
    rows = [
        (title, _share(test[key]) if key in shares else _number(test[key])) for key, title in names.items()
    ]
    if "scaled" in test:
        scaled = test["scaled"]
        after = f"after temperature scaling (T = {scaled['temperature']:.3f}, from validation data)"
        rows.append((f"negative log-likelihood {after}", _number(scaled["nll"])))
        rows.append((f"calibration error {after}", _number(scaled["ece"])))
    rows += [(f"mean {with_unit(name)}", _spread(value)) for name, value in test["scores"].items()]
    if "negative_mass" in test:
        rows.append(("share of raw mass that was negative and repaired", _share(test["negative_mass"])))
    return Table(f"Test data, {test['samples']} inputs", ("measure", "value"), tuple(rows))


def _by_class(section: dict[str, Any], classes: Sequence[str]) -> list[Table]:
    """Return a table of classes (if there are many, those with the lowest recall) and one of confusions."""
    counts, recall = section["samples"], section["recall"]
    order: Sequence[int] = range(len(classes))
    note = ""
    if len(classes) > _MOST_CLASSES:
        present = [c for c in order if counts[c]]
        order = sorted(present, key=lambda c: recall[c])[:_MOST_CLASSES]
        note = f"The {len(order)} of {len(classes)} classes with the lowest recall."
    shown = ("precision", "recall", "f1")
    rows = tuple((classes[c], str(counts[c]), *(_share(section[name][c]) for name in shown)) for c in order)
    tables = [Table("Classes", ("class", "test inputs", "precision", "recall", "F1"), rows, note)]
    if section["confused"]:
        pairs = tuple(
            (classes[true], classes[predicted], str(count), _share(count / counts[true]))
            for true, predicted, count in section["confused"]
        )
        columns = ("true class", "predicted class", "test inputs", "share of the true class")
        tables.append(Table("Most confused classes", columns, pairs))
    return tables


def _ood(ood: dict[str, Any]) -> Table:
    rows = []
    for name, measured in ood.items():
        for score, value in measured["scores"].items():
            cells = [_number(value[key]) for key in ("auroc", "auprc", "auprc_known", "fpr95", "error")]
            cells += [_spread(value["known"]), _spread(value["unknown"])]
            rows.append((f"{name} ({measured['samples']})", with_unit(score), *cells))
    columns = (
        "unknown inputs",
        "score",
        "AUROC",
        "AUPRC",
        "AUPRC known",
        "FPR at 95 % TPR",
        "detection error",
        "known, mean ± std",
        "unknown, mean ± std",
    )
    return Table("Out-of-distribution detection", columns, tuple(rows), "Unknown is the positive class.")


def _reliability(section: dict[str, Any]) -> Table:
    quantiles = list(next(iter(section.values()))["quantiles"])
    rows = tuple(
        (
            f"{name} ({row['samples']})",
            _number(row["mean"]),
            *(_number(row["quantiles"][q]) for q in quantiles),
            _share(row["familiar"]),
        )
        for name, row in section.items()
    )
    columns = ("inputs", "mean", *(f"{q[:-1]} % quantile" for q in quantiles), "familiar")
    note = (
        "How well the training data support the predictions, which are discounted by it. Inputs with a "
        f"reliability of at least {_familiar_from(section):.4g} count as familiar, the others as unlike the "
        "training data."
    )
    return Table("Reliability", columns, rows, note)


def _familiar_from(section: dict[str, Any]) -> float:
    """Return the smallest reliability of a familiar input; earlier versions used the same for all models."""
    return next(iter(section.values())).get("familiar_from", FAMILIAR)


def _threshold(threshold: dict[str, Any]) -> Table:
    score = threshold["score"]
    rows = [
        ("test inputs accepted", _share(threshold["kept"])),
        ("accuracy on accepted inputs", _share(threshold["accuracy_of_kept"])),
    ]
    rows += [(f"inputs of {name} rejected", _share(v)) for name, v in threshold["detected"].items()]
    samples = threshold["validation_samples"]
    where = "chosen previously"
    if samples is not None:
        where = f"chosen to accept {threshold['share']:.0%} of {samples} validation inputs"
    note = f"An input counts as known if its {score} is at most {threshold['value']:.6g}, {where}."
    return Table("Deployment threshold", ("metric", "share"), tuple(rows), note)


def _selective(selective: dict[str, Any]) -> Table:
    shares = list(next(iter(selective.values()))["accuracy_at"])
    rows = [
        (with_unit(name), _number(value["aurc"]), *(_share(value["accuracy_at"][s]) for s in shares))
        for name, value in selective.items()
    ]
    columns = (
        "score",
        "area under risk–coverage curve",
        *(f"accuracy at {share} coverage" for share in shares),
    )
    return Table("Selective prediction", columns, tuple(rows))


def _decisions(decisions: dict[str, Any]) -> Table:
    rows = [
        (
            name,
            _share(value["coverage"]),
            f"{value['size']:.3f}",
            _share(value["single"]),
            _share(value["single_accuracy"]),
            _number(value["u65"]),
            _number(value["u80"]),
        )
        for name, value in decisions.items()
    ]
    columns = ("rule", "coverage", "mean set size", "single class", "single-class accuracy", "u65", "u80")
    return Table("Set-valued decisions", columns, tuple(rows))


def _conformal(conformal: dict[str, Any]) -> Table:
    rows = []
    for row in conformal["rows"]:
        lowest = min((v for v in row["class_coverage"] if v is not None), default=None)
        rows.append(
            (
                row["score"],
                "each class" if row["by_class"] else "marginal",
                _share(row["coverage"]),
                _share(lowest),
                f"{row['size']:.3f}",
                _share(row["empty"]),
                _number(row["u65"]),
                _number(row["u80"]),
            )
        )
    columns = (
        "score",
        "guarantee for",
        "coverage",
        "lowest class coverage",
        "mean set size",
        "empty sets",
        "u65",
        "u80",
    )
    wanted, samples = 1 - conformal["alpha"], conformal["samples"]
    note = f"Target: at least {wanted:.0%} coverage; calibrated on {samples} inputs."
    return Table("Conformal sets", columns, tuple(rows), note)


def _levels(title: str, rows: Sequence[dict[str, Any]], samples: int) -> Table:
    scores = [name for name in rows[0] if name not in ("level", "accuracy")]
    body = []
    for row in rows:
        level, text = row["level"], "none"
        if level is not None:
            text = f"{level:g}" if title == "Noise" else f"{level[0]:g}° to {level[1]:g}°"
        body.append((text, _share(row["accuracy"]), *(_number(row[name]) for name in scores)))
    first = "standard deviation" if title == "Noise" else "angle"
    columns = (first, "accuracy", *(f"mean {with_unit(name)}" for name in scores))
    return Table(f"{title}, {samples} test inputs", columns, tuple(body))


def _attacks(rows: Sequence[dict[str, Any]], samples: int) -> Table:
    levels = sorted({row["epsilon"] for row in rows})
    cells: dict[str, dict[float, str]] = {}
    clean = next(row for row in rows if row["attack"] == "none")
    for row in rows:
        if row["attack"] != "none":
            by_level = cells.setdefault(row["attack"], {0.0: _share(clean["accuracy"])})
            by_level[row["epsilon"]] = _share(row["accuracy"])
    body = tuple(
        (_TITLES.get(name, name), *(by.get(level, "–") for level in levels)) for name, by in cells.items()
    )
    columns = ("attack", *(f"ε = {level:g}" for level in levels))
    note = "Accuracy when every pixel (in [0, 1]) may change by up to ε."
    return Table(f"Attacks, {samples} test inputs", columns, body, note)


def _timing(timing: dict[str, Any]) -> Table:
    names = {
        "latency_ms": "one input, ms",
        "throughput": f"inputs per second, {timing['batch_size']} at once",
        "ratio_single": "time relative to softmax on the same backbone, one input",
        "ratio_batch": f"time relative to softmax on the same backbone, {timing['batch_size']} at once",
    }
    rows = tuple(
        (title, f"{timing[k]['median']:.4g}", f"{timing[k]['low']:.4g} to {timing[k]['high']:.4g}")
        for k, title in names.items()
        if k in timing
    )
    return Table("Prediction time, including uncertainty scores", ("measure", "median", "quartiles"), rows)


def _share(value: float | None) -> str:
    return "–" if value is None or value != value else f"{100 * value:.2f} %"


def _number(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.4f}"


def _spread(value: dict[str, float]) -> str:
    return f"{_number(value['mean'])} ± {_number(value['std'])}"
