"""Samples worth a look: the surest, the least sure, the most wrong, and unknown ones that pass."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from randomset.belief.naming import braces
from randomset.data.png import png_from_image
from randomset.data.sources import Source
from randomset.evaluation.ood import Threshold
from randomset.evaluation.result import Evaluation
from randomset.report.detection_figures import right_answers

__all__ = ["gallery_of"]

_LARGEST = 96  # pixels of a side in the report
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
    """Choose samples of test and unknown data by what was measured, and predict them once more.

    Args:
        model: a random-set network, whose masses are shown; of any other, the probabilities alone.
        result: what was measured on these data, in the same order.
        tested: test inputs, as the model takes them.
        unknown: inputs of every unknown set.
        words: from an input of a network that reads texts to what it says.
        threshold: what decides whether a sample is known.
        count: samples in each group.
    """
    entropy = result.predictions["test"].scores["entropy"].double()
    right = torch.from_numpy(right_answers(result))
    confidence = result.predictions["test"].confidence.double()

    def shown(source: Source, places: Tensor, name: str, named: bool) -> list[dict[str, Any]]:
        rows = places[:count].tolist()
        named = named and source.labels.dim() == 1
        truths = [source.classes[int(source.labels[row])] if named else "" for row in rows]
        inputs = source.inputs[places[:count]]
        texts = ["" if words is None else words(one) for one in inputs]
        return _samples(model, inputs, truths, texts, result, name, rows, threshold)

    wrong = (~right).nonzero()[:, 0]
    groups = [
        ("Surest", "Test inputs with the lowest entropy.", shown(tested, entropy.argsort(), "test", True)),
        (
            "Least sure",
            "Test inputs with the highest entropy.",
            shown(tested, entropy.argsort(descending=True), "test", True),
        ),
        (
            "Most wrong",
            "Wrong answers with the highest confidence: what to worry about.",
            shown(tested, wrong[confidence[wrong].argsort(descending=True)], "test", True),
        ),
    ]
    for name, source in unknown.items():
        doubt = result.predictions[name].scores["entropy"].double()
        passed = shown(source, doubt.argsort(), name, False)
        stopped = shown(source, doubt.argsort(descending=True), name, False)
        groups.append((f"{name}: surest", "Unknown inputs with the lowest entropy.", passed))
        groups.append((f"{name}: least sure", "Unknown inputs with the highest entropy.", stopped))
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
    found, classes = result.predictions[name], result.classes
    answer = model.predict(inputs, progress=False) if model.bounded else None
    samples = []
    for number, row in enumerate(rows):
        p = found.probabilities[row]
        likely = p.argsort(descending=True)[:5].tolist()
        likely = [c for place, c in enumerate(likely) if not place or p[c] >= 0.005]
        low = p if found.lower is None else found.lower[row]
        high = p if found.upper is None else found.upper[row]
        known = None
        if threshold is not None and threshold.score in found.scores:
            known = bool(threshold.known(found.scores[threshold.score][row]))
        one: dict[str, Any] = {
            "label": classes[int(p.argmax())],
            "truth": truths[number],
            "text": texts[number][:600],
            "known": known,
            "entropy": round(float(found.scores["entropy"][row]), 4),
            "classes": [[classes[c], *(round(float(v[c]), 4) for v in (p, low, high))] for c in likely],
            "sets": [],
        }
        if inputs.dim() == 4:
            one["image"] = base64.b64encode(png_from_image(inputs[number], _LARGEST)).decode("ascii")
        if answer is not None:
            mass, belief, budget = answer.mass[number], answer.belief[number], answer.budget
            heavy = [k for k in mass.argsort(descending=True)[:5].tolist() if mass[k] >= 0.005]
            one["width"] = round(float(answer.credal_width[number]), 4)
            one["sets"] = [
                [
                    "any class" if k == len(budget) - 1 else braces(list(budget.names_of(k)), shorten=4),
                    round(float(mass[k]), 4),
                    round(float(belief[k]), 4),
                ]
                for k in heavy
            ]
        samples.append(one)
    return samples
