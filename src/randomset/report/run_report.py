"""The report of a run as one HTML file: its evaluation, with samples worth a look, sets and clusters."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from randomset._core.checks import braces, is_number
from randomset._core.files import check_version, check_writable, lock_folder
from randomset.backbones.hugging_face import load_tokenizer
from randomset.belief.budget import Budget
from randomset.belief.text import FAMILIAR, reliability_text
from randomset.data.images import png_from_image
from randomset.data.sources import Source
from randomset.errors import FileFormatError, RandomSetError
from randomset.evaluation.result import Evaluation
from randomset.models.prediction import Threshold
from randomset.report.charts import correct_predictions
from randomset.report.html import evaluation_report, write_report
from randomset.runs.data import TOKENIZER, drawn, measured_inputs
from randomset.runs.run import Run

__all__ = ["gallery_of", "report_of_run", "write_run_report"]

logger = logging.getLogger(__name__)

_MAX_PIXELS = 96  # per side
Group = tuple[str, str, list[dict[str, Any]]]


def report_of_run(run: Run, folder: Path) -> Path:
    """Write report.html from a stored evaluation.

    The samples are taken from the data that were evaluated, if they are still available.
    """
    if (run.folder / "comparison.json").exists():
        raise FileFormatError(
            "expected a run folder, got the folder of a comparison",
            got=str(run.folder),
            remedy="Open its report.html, or repeat the command that created it: nothing is trained again",
        )
    if not run.folder.is_dir():
        raise FileFormatError("the run folder does not exist", got=str(run.folder))
    if not (run.folder / "evaluation.json").exists():
        raise FileFormatError(
            "the run has not been evaluated",
            got=str(run.folder),
            remedy=f"Run randomset evaluate {run.folder} --ood NAME=SOURCE first",
        )
    check_writable(folder / "report.html")
    result = Evaluation.load(run.folder)
    about = result.numbers.get("run") or {}

    def samples(name: str, load: Callable[[], Source]) -> Source | None:
        """Return the data as they were evaluated; None, with a warning, if they are not available."""
        try:
            data = measured_inputs(load(), result, name)
            if len(data) != len(result.predictions[name]):
                raise FileFormatError("the data have changed since the evaluation", got=f"{len(data)} inputs")
            return data
        except RandomSetError as error:
            logger.warning("The report has no samples of %s: %s", name, error)
            return None

    def unknown(source: str) -> Source:
        return drawn(run.load(source, labelled=False), about.get("ood_samples"), about.get("seed", 0))

    tested = samples("test", lambda: run.data(about.get("test_source")).test)
    ood = {
        name: data
        for name, source in about.get("ood", {}).items()
        if (data := samples(name, lambda source=source: unknown(source))) is not None  # type: ignore[misc]
    }
    return write_run_report(run, folder, result, tested, ood)


def write_run_report(
    run: Run, folder: Path, result: Evaluation, tested: Source | None, ood: Mapping[str, Source]
) -> Path:
    """Write report.html for an evaluation of a run; without test data there is no gallery."""
    threshold, words = None, None
    if stored := result.numbers.get("threshold"):
        threshold = Threshold(stored["score"], stored["value"], stored["share"])
    if run.model.notes.get("tokens"):
        tokenizer = load_tokenizer(run.folder / TOKENIZER)
        words = lambda tokens: tokenizer.decode(tokens[tokens >= 0], skip_special_tokens=True)  # noqa: E731
    groups = []
    if tested is not None:
        groups = gallery_of(run.model, result, tested, ood, words=words, threshold=threshold)
    title = f"{run.folder.resolve().name}: {result['run']['test']}"
    with lock_folder(folder):
        text = evaluation_report(
            result, title=title, gallery=groups, space=_clusters(run.folder), sets=_overlaps(run.folder)
        )
        return write_report(text, folder / "report.html")


def _overlaps(run: Path) -> list[tuple[str, float]]:
    """Return the sets of a run's budget with their overlaps, the largest first."""
    if not (run / "budget.json").exists():
        return []
    budget = Budget.load(run / "budget.json")
    names = [braces(list(budget.names_of(i)), shorten=6) for i in range(budget.num_classes, len(budget))]
    overlaps = (budget.origin or {}).get("overlaps", [])
    if len(overlaps) != len(names):
        return []
    return sorted(zip(names, overlaps, strict=True), key=lambda pair: -pair[1])


def _clusters(run: Path) -> Any:
    """Return the ellipsoids of a run's classes; None if there are none, or they cannot be read."""
    if not (run / "clusters.json").exists():
        return None
    try:
        clusters = json.loads((run / "clusters.json").read_text(encoding="utf-8"))
        check_version(clusters.get("version", 1), 1, "clusters.json")  # early versions had no version number
        count = len(clusters["classes"])
        points = np.array(clusters["points"], float).reshape(-1, 4)
        ellipsoids = clusters["ellipsoids"]
        shapes = {(np.shape(ellipsoid["centre"]), np.shape(ellipsoid["axes"])) for ellipsoid in ellipsoids}
        owners = [*points[:, 3], *(ellipsoid["of"] for ellipsoid in ellipsoids)]
        if shapes - {((3,), (3, 3))} or not all(0 <= owner < count for owner in owners):
            raise ValueError("unexpected shapes")
        if not np.isfinite(points).all() or not is_number(clusters["radius"]):
            raise ValueError("values are not finite")
        return {**clusters, "radius": float(clusters["radius"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        logger.warning("The class ellipsoids are not drawn: cannot read %s.", run / "clusters.json")
        return None


def gallery_of(
    model: Any,
    result: Evaluation,
    tested: Source,
    unknown: Mapping[str, Source],
    *,
    words: Callable[[Tensor], str] | None = None,
    threshold: Threshold | None = None,
    count: int = 8,
) -> list[Group]:
    """Choose samples of test and unknown data by their scores, as (title, note, samples) groups.

    Args:
        model: the model; masses are shown if it is a random-set network.
        result: its evaluation on these data, in the same order.
        tested: the test data, in the form that the model expects.
        unknown: the unknown data sets.
        words: decodes an input of a text model.
        threshold: decides whether a sample is known.
        count: the number of samples per group.
    """
    entropy = result.predictions["test"].scores["entropy"].double()
    correct = torch.from_numpy(correct_predictions(result))
    confidence = result.predictions["test"].confidence.double()

    def group(source: Source, order: Tensor, name: str = "test") -> list[dict[str, Any]]:
        rows = order[:count].tolist()
        labelled = name == "test" and source.labels.dim() == 1
        truths = [source.classes[int(source.labels[row])] if labelled else "" for row in rows]
        inputs = source.inputs[order[:count]]
        texts = ["" if words is None else words(sample) for sample in inputs]
        return _samples(model, inputs, truths, texts, result, name, rows, threshold)

    wrong = (~correct).nonzero()[:, 0]
    most_confident = wrong[confidence[wrong].argsort(descending=True)]
    least_certain = entropy.argsort(descending=True)
    groups = [
        ("Most certain", "Test inputs with the lowest entropy.", group(tested, entropy.argsort())),
        ("Least certain", "Test inputs with the highest entropy.", group(tested, least_certain)),
        ("Confidently wrong", "Errors with the highest confidence.", group(tested, most_confident)),
    ]
    if (reliability := result.predictions["test"].reliability) is not None:
        least = group(tested, reliability.argsort())
        groups.append(("Least familiar", "Test inputs with the lowest reliability.", least))
    for name, source in unknown.items():
        entropy = result.predictions[name].scores["entropy"].double()
        certain = group(source, entropy.argsort(), name)
        uncertain = group(source, entropy.argsort(descending=True), name)
        groups.append((f"{name}: most certain", "Unknown inputs with the lowest entropy.", certain))
        groups.append((f"{name}: least certain", "Unknown inputs with the highest entropy.", uncertain))
    return groups


def _samples(
    model: Any,
    inputs: Tensor,
    truths: Sequence[str],
    texts: Sequence[str],
    result: Evaluation,
    name: str,
    rows: Sequence[int],
    threshold: Threshold | None,
) -> list[dict[str, Any]]:
    if not len(inputs):
        return []
    predicted, classes = result.predictions[name], result.classes
    answer = model.predict(inputs, progress=False) if getattr(model, "bounded", False) else None
    samples = []
    for number, row in enumerate(rows):
        p = predicted.probabilities[row]
        top, *rest = p.argsort(descending=True)[:5].tolist()
        likely = [top, *(c for c in rest if p[c] >= 0.005)]
        low = p if predicted.lower is None else predicted.lower[row]
        high = p if predicted.upper is None else predicted.upper[row]
        known = None
        if threshold is not None and threshold.score in predicted.scores:
            known = bool(threshold.known(predicted.scores[threshold.score][row]))
        sample: dict[str, Any] = {
            "label": classes[int(p.argmax())],
            "truth": truths[number],
            "text": texts[number][:600],
            "known": known,
            "entropy": round(float(predicted.scores["entropy"][row]), 4),
            "classes": [[classes[c], *(round(float(v[c]), 4) for v in (p, low, high))] for c in likely],
            "sets": [],
        }
        if predicted.reliability is not None:
            limit = result["reliability"][name].get("familiar_from", FAMILIAR)
            sample["reliability"] = reliability_text(float(predicted.reliability[row]), limit)
        if inputs.dim() == 4:
            sample["image"] = base64.b64encode(png_from_image(inputs[number], _MAX_PIXELS)).decode("ascii")
        if answer is not None:
            mass, belief, budget = answer.mass[number], answer.belief[number], answer.budget
            heavy = [k for k in mass.argsort(descending=True)[:5].tolist() if mass[k] >= 0.005]
            sample["width"] = round(float(answer.credal_width[number]), 4)
            sample["sets"] = [
                [
                    "any class" if k == len(budget) - 1 else braces(list(budget.names_of(k)), shorten=4),
                    round(float(mass[k]), 4),
                    round(float(belief[k]), 4),
                ]
                for k in heavy
            ]
        samples.append(sample)
    return samples
