"""`evaluate`: computes all metrics of a model on test and out-of-distribution data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from randomset.errors import RandomSetError, ShapeError
from randomset.evaluation.metrics import check_labels, measure_time
from randomset.evaluation.prediction import Outcome, predictions_of
from randomset.evaluation.predictor import as_predictor
from randomset.evaluation.result import Evaluation
from randomset.evaluation.robustness import attack_rows, check_autoattack, corruption_rows
from randomset.evaluation.sections import (
    conformal_section,
    decisions_section,
    ood_section,
    reliability_section,
    scaled_section,
    selective_section,
    test_section,
    threshold_section,
)
from randomset.models.threshold import Threshold

__all__ = ["evaluate"]


def evaluate(
    model: Any,
    test: Any,
    ood: Mapping[str, Any] | None = None,
    *,
    validation: Any = None,
    calibration: Any = None,
    classes: Sequence[str] | None = None,
    score: str = "entropy",
    keep: float = 0.95,
    threshold: Threshold | None = None,
    alpha: float = 0.05,
    bins: int = 15,
    noise: Sequence[float] = (),
    rotation: Sequence[tuple[float, float]] = (),
    attacks: Sequence[float] = (),
    surrogate: nn.Module | None = None,
    autoattack: Sequence[float] = (),
    samples: int = 1000,
    timing: bool = False,
    batch_size: int = 256,
    workers: int | None = None,
    devices: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Evaluation:
    """Evaluate a model on test data and out-of-distribution data, in one pass over each.

    Data are a name or path of `randomset.data`, (inputs, labels), a torch or Hugging Face data set, or an
    iterable of batches such as a data loader. Images whose size or colour differs from the test data's are
    converted, and bytes are divided by 255 if the test data are floats; the result's remarks report this.

    Args:
        model: a `RandomSetNetwork`, a module that returns logits, or a function from inputs to probabilities.
        test: labelled data of the known classes.
        ood: data of unknown classes, by name; labels are ignored.
        validation: labelled data to choose the threshold on.
        calibration: labelled data for conformal sets, separate from training and validation data; by default,
            the validation data.
        classes: the names of the classes, in label order; by default, the model's.
        score: the uncertainty score to choose the threshold on.
        keep: the share of known inputs that the threshold accepts.
        threshold: a threshold chosen previously, instead.
        alpha: the share of conformal sets that may miss the true class.
        bins: number of bins of the calibration error.
        noise: scales of noise to add to images, such as `randomset.evaluation.robustness.NOISE`.
        rotation: ranges of angles to rotate images by, such as `randomset.evaluation.robustness.ROTATION`.
        attacks: values of ε for adversarial attacks, such as `randomset.evaluation.robustness.EPSILONS`.
        surrogate: a softmax model whose adversarial images are transferred to the model.
        autoattack: values of ε for AutoAttack.
        samples: number of test inputs for noise, rotation and attacks.
        timing: whether to measure the prediction time.
        batch_size: inputs per batch.
        workers: processes that read a data set; by default two, on systems where this is safe.
        devices: number of processes that predict, with Lightning.
        seed: seed of all random numbers.
        progress: whether to show progress bars; by default, on a terminal.

    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> inputs, labels = torch.randn(200, 2, generator=generator), torch.arange(200) % 2
    >>> inputs[:, 0] += 4 * labels - 2
    >>> result = evaluate(lambda x: torch.stack((-x[:, 0], x[:, 0]), 1).softmax(1), (inputs, labels),
    ...                   {"noise": torch.randn(100, 2, generator=generator)})
    >>> round(result["test"]["accuracy"], 2), round(result["ood"]["noise"]["scores"]["entropy"]["auroc"], 2)
    (0.99, 0.89)
    """
    predictor = as_predictor(model)
    known: tuple[str, ...] = tuple(classes or getattr(model, "known_classes", ()) or ())
    if not 0 < alpha < 1:
        raise RandomSetError("alpha is out of range", got=alpha, expected="0 < alpha < 1")
    if not 0 < keep <= 1:
        raise RandomSetError("keep is out of range", got=keep, expected="0 < keep ≤ 1")
    if autoattack:
        check_autoattack()
    changed = bool(noise or rotation or attacks or autoattack or timing)
    if ood is not None and not isinstance(ood, Mapping):
        raise RandomSetError(
            "ood must be a mapping of names to data", got=type(ood).__name__, expected='{"name": data, …}'
        )
    if taken := {"test", "validation", "calibration"} & set(ood or {}):
        raise RandomSetError("reserved name in ood", got=taken.pop(), expected="another name")
    if (attacks or autoattack) and not isinstance(model, nn.Module):
        raise RandomSetError(
            "attacks need a model with gradients", got=type(model).__name__, expected="a torch.nn.Module"
        )
    if changed and devices > 1:
        raise RandomSetError(
            "noise, rotation, attacks and timing support only one device", got=f"devices={devices}"
        )
    shared: dict[str, Any] = {
        **{"batch_size": batch_size, "devices": devices},
        "workers": workers,
        **{"seed": seed, "progress": progress, "known": known},
    }
    spec: Any = {"like": getattr(model, "input_spec", None), "resize": False}  # test data keep their size
    tested = predictions_of(predictor, test, "test", labelled=True, keep=samples * changed, **shared, **spec)
    known = known or tested.classes or tuple(map(str, range(tested.prediction.probabilities.shape[1])))
    outputs = tested.prediction.probabilities.shape[1]
    if not shared["known"]:  # names come from the data, where trailing classes may not occur
        known = known[:outputs]
    if len(known) != outputs:
        raise RandomSetError(
            "the number of outputs does not match the number of class names",
            got=f"{outputs} outputs for {len(known)} names",
            remedy="Pass the class names in the order of the outputs: classes=[…]",
        )
    shared["known"], shared["like"] = known, tested.layout
    assert tested.labels is not None
    check_labels(tested.prediction.probabilities, tested.labels)
    if score not in tested.prediction.scores:
        raise RandomSetError(
            "unknown score", got=score, expected=f"one of {', '.join(tested.prediction.scores)}"
        )
    others = {}
    for name, data in (ood or {}).items():
        others[name] = _apart(predictions_of(predictor, data, name, **shared), tested)

    def held_out(data: Any, name: str) -> Outcome:
        return _apart(predictions_of(predictor, data, name, labelled=True, **shared), tested)

    held = None if validation is None else held_out(validation, "validation")
    calibrating = held if calibration is None else held_out(calibration, "calibration")
    numbers: dict[str, Any] = {
        "classes": list(known),
        "test": test_section(tested, bins),
        "ood": ood_section(tested, others, held),
        "selective": selective_section(tested),
    }
    if found := reliability_section(tested, others):
        numbers["reliability"] = found
    if held is not None:
        numbers["test"]["scaled"] = scaled_section(tested, held, bins)
    if tested.prediction.lower is not None:
        numbers["decisions"] = decisions_section(tested)
    fitted = threshold is None and held is not None
    if threshold is None and held is not None:
        threshold = Threshold.keeping(keep, held.prediction.scores[score], score)
    if threshold is not None:
        numbers["threshold"] = threshold_section(threshold, tested, others, held if fitted else None)
    if calibrating is not None:
        numbers["conformal"] = conformal_section(calibrating, tested, alpha, seed)
    if changed:
        if tested.kept is None:
            raise ShapeError("noise, rotation, attacks and timing require tensor inputs")
        images, targets = tested.kept
        if noise or rotation:
            options: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "progress": progress}
            numbers |= corruption_rows(predictor, images, targets, noise, rotation, **options)
        if attacks or autoattack:
            numbers["attacks"] = attack_rows(
                model,
                images,
                targets,
                attacks,
                surrogate=surrogate,
                auto=autoattack,
                seed=seed,
                progress=progress,
            )
        numbers["changed_samples"] = len(images)
        if timing:
            numbers["timing"] = measure_time(model, images, batch_size=batch_size)
    outcomes = [tested, *others.values(), *([] if held is None else [held])]
    if calibrating is not None and calibrating is not held:
        outcomes.append(calibrating)
    numbers["left_out"] = {outcome.name: list(outcome.left_out) for outcome in outcomes if outcome.left_out}
    numbers["remarks"] = [f"{outcome.name}: {remark}" for outcome in outcomes for remark in outcome.remarks]
    if calibrating is not None:
        numbers["remarks"] += _conformal_remarks(calibrating, calibrating is held, alpha, len(known))
    predictions = {outcome.name: outcome.prediction for outcome in outcomes}
    labels = {outcome.name: outcome.labels for outcome in outcomes if outcome.labels is not None}
    return Evaluation(numbers, predictions, labels)


def _conformal_remarks(calibration: Outcome, shared: bool, alpha: float, classes: int) -> list[str]:
    """Return remarks on conformal sets with a weak guarantee or too few calibration samples."""
    assert calibration.labels is not None
    needed = math.ceil(1 / alpha - 1e-9) - 1
    fewest = int(torch.bincount(calibration.labels, minlength=classes).min())
    remarks = []
    if shared:
        remarks.append(
            "conformal: calibrated on the validation data; separate calibration data give a strict guarantee"
        )
    if len(calibration) < needed:
        remarks.append(
            f"conformal: {len(calibration)} inputs; with fewer than {needed}, every set contains all classes"
        )
    elif fewest < needed:
        remarks.append(
            f"conformal: {len(calibration)} inputs, {fewest} of the rarest class; class-conditional sets "
            f"always contain a class with fewer than {needed}"
        )
    return remarks


def _apart(other: Outcome, tested: Outcome) -> Outcome:
    """Drop inputs that also occur in the test data; raise if there are many of them.

    If test inputs contain duplicates, as tables of small integers do, matches may be coincidental.
    """
    known = set(tested.digests.tolist()) - {0}
    same = torch.tensor([digest in known for digest in other.digests.tolist()])
    count = int(same.sum())
    if not count:
        return other
    if len(known) < 0.99 * len(tested):
        remark = f"{count} of {len(other)} inputs equal a test input, but the test data contain duplicates"
        return replace(other, remarks=(*other.remarks, remark))
    if count > 0.01 * len(other):
        raise RandomSetError(
            f"{other.name} overlaps with the test data",
            got=f"{count} of {len(other)} inputs, the first in row {int(same.nonzero()[0])}",
            expected="inputs that are not in the test data",
            remedy="Use other data, or remove these inputs",
        )
    return other.without(same, f"{count} of {len(other)} inputs are in the test data and were dropped")
