"""Samples worth a look: the most and least certain predictions, confident errors, and unknown inputs."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from randomset.belief.focal_sets import braces
from randomset.data.images import png_from_image
from randomset.data.sources import Source
from randomset.evaluation.result import Evaluation
from randomset.models.threshold import Threshold
from randomset.report.series import correct_predictions

__all__ = ["gallery_of"]

_MAX_PIXELS = 96  # per side
Group = tuple[str, str, list[dict[str, Any]]]


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
