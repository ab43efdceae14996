"""`evaluate`: all metrics of a model on test and out-of-distribution data, section by section."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from randomset.backbones.inputs import InputSpec
from randomset.belief.decision import utility
from randomset.belief.text import FAMILIAR
from randomset.errors import RandomSetError, ShapeError
from randomset.evaluation.by_class import class_section, numbers_or_none
from randomset.evaluation.conformal import SCORES, Conformal
from randomset.evaluation.metrics import (
    balanced_accuracy,
    brier_score,
    calibration_error,
    check_labels,
    classwise_calibration_error,
    detection,
    fitted_temperature,
    measure_time,
    negative_log_likelihood,
    rank_average,
    risk_coverage,
    tempered,
    top_accuracy,
)
from randomset.evaluation.prediction import Outcome, predictions_of, reliability_section
from randomset.evaluation.predictor import as_predictor
from randomset.evaluation.result import Evaluation
from randomset.evaluation.robustness import attack_rows, check_autoattack, corruption_rows
from randomset.models.prediction import Threshold, check_score, reliability_diagram

__all__ = ["RANKS", "evaluate"]


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
    shared: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "devices": devices}
    shared |= {"seed": seed, "progress": progress, "known": known}
    spec: InputSpec | None = getattr(model, "input_spec", None)
    form: Any = {"like": spec, "resize": False}  # test data keep their size
    tested = predictions_of(predictor, test, "test", labelled=True, keep=samples * changed, **shared, **form)
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
    if spec is not None and tested.layout is not None:
        shared["like"] = dataclasses.replace(tested.layout, columns=spec.columns)
    check_labels(tested.prediction.probabilities, _labels(tested))
    check_score(score, tested.prediction.scores)
    others = {
        name: predictions_of(predictor, data, name, **shared).apart_from(tested)
        for name, data in (ood or {}).items()
    }

    def held_out(data: Any, name: str) -> Outcome:
        return predictions_of(predictor, data, name, labelled=True, **shared).apart_from(tested)

    held = None if validation is None else held_out(validation, "validation")
    calibrating = held if calibration is None else held_out(calibration, "calibration")
    numbers: dict[str, Any] = {
        "classes": list(known),
        "test": test_section(tested, bins),
        "by_class": class_section(_labels(tested), tested.prediction.labels, len(known)),
        "ood": ood_section(tested, others, held),
        "selective": selective_section(tested),
    }
    limit = getattr(model, "familiar_from", None)
    if found := reliability_section(tested, others, FAMILIAR if limit is None else limit):
        numbers["reliability"] = found
    if held is not None:
        numbers["test"]["scaled"] = scaled_section(tested, held, bins)
    if tested.prediction.lower is not None:
        numbers["decisions"] = decisions_section(tested)
    if threshold is not None:
        numbers["threshold"] = threshold_section(threshold, tested, others)
    elif held is not None:
        threshold = Threshold.keeping(keep, held.prediction.scores[score], score)
        numbers["threshold"] = threshold_section(threshold, tested, others, held)
    if calibrating is not None:
        numbers["conformal"] = conformal_section(calibrating, tested, alpha, seed)
    if changed:
        if tested.kept is None:
            raise ShapeError("noise, rotation, attacks and timing require tensor inputs")
        images, targets = tested.kept
        options: dict[str, Any] = {"seed": seed, "progress": progress}
        if noise or rotation:
            numbers |= corruption_rows(
                predictor, images, targets, noise, rotation, batch_size=batch_size, **options
            )
        if attacks or autoattack:
            numbers["attacks"] = attack_rows(
                model, images, targets, attacks, surrogate=surrogate, auto=autoattack, **options
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
    needed = math.ceil(1 / alpha - 1e-9) - 1
    fewest = int(torch.bincount(_labels(calibration), minlength=classes).min())
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


# -- sections of an evaluation ---------------------------------------------------------------------


RANKS = "rank average"


def test_section(tested: Outcome, bins: int) -> dict[str, Any]:
    """Accuracy, calibration and scores on test data."""
    p, labels = tested.prediction.probabilities, _labels(tested)
    right = tested.prediction.labels == labels
    negative = tested.prediction.negative
    diagram = reliability_diagram(tested.prediction.confidence, right, bins)
    return {
        "samples": len(tested),
        "accuracy": top_accuracy(p, labels),
        "top_5_accuracy": top_accuracy(p, labels, 5),
        "balanced_accuracy": balanced_accuracy(p, labels),
        "nll": negative_log_likelihood(p, labels),
        "brier": brier_score(p, labels),
        "ece": diagram.error,
        "ece_equal_mass": calibration_error(p, labels, bins, "mass"),
        "classwise_ece": classwise_calibration_error(p, labels, bins).mean().item(),
        "confidence": tested.prediction.confidence.double().mean().item(),
        **({} if negative is None else {"negative_mass": negative.double().mean().item()}),
        "reliability": {
            name: getattr(diagram, name).tolist() for name in ("edges", "count", "confidence", "accuracy")
        },
        "scores": {name: _moments(values) for name, values in tested.prediction.scores.items()},
    }


def scaled_section(tested: Outcome, held: Outcome, bins: int) -> dict[str, float]:
    """NLL and ECE after temperature scaling of the probabilities, fitted on validation data."""
    temperature = fitted_temperature(held.prediction.probabilities, _labels(held))
    p, labels = tempered(tested.prediction.probabilities, temperature), _labels(tested)
    return {
        "temperature": temperature,
        "nll": negative_log_likelihood(p, labels),
        "ece": calibration_error(p, labels, bins),
    }


def ood_section(tested: Outcome, others: dict[str, Outcome], held: Outcome | None) -> dict[str, Any]:
    """Out-of-distribution detection by every score; ranks are relative to the validation inputs."""
    reference = (held or tested).prediction.scores
    known = {**tested.prediction.scores, RANKS: rank_average(reference, tested.prediction.scores)}
    section = {}
    for name, other in others.items():
        scores = {**other.prediction.scores, RANKS: rank_average(reference, other.prediction.scores)}
        measured = {}
        for score, values in scores.items():
            numbers = dataclasses.asdict(detection(known[score], values))
            measured[score] = {**numbers, "known": _moments(known[score]), "unknown": _moments(values)}
        section[name] = {"samples": len(other), "scores": measured}
    return section


def selective_section(tested: Outcome) -> dict[str, Any]:
    """Selective prediction by every score: accuracy when the most uncertain inputs are rejected."""
    right = tested.prediction.labels == _labels(tested)
    section = {}
    for name, values in tested.prediction.scores.items():
        curve = risk_coverage(values, right)
        accuracy = {f"{share:.0%}": value for share, value in curve.accuracy_at().items()}
        section[name] = {"aurc": curve.area, "accuracy_at": accuracy}
    return section


def decisions_section(tested: Outcome) -> dict[str, Any]:
    """Evaluate set-valued decisions by interval dominance: all classes that could be the most likely one."""
    lower, upper = tested.prediction.lower, tested.prediction.upper
    assert lower is not None
    assert upper is not None
    sets, labels = upper >= lower.amax(1, keepdim=True), _labels(tested)
    size = sets.sum(1).double()
    single = size == 1
    hit = sets.gather(1, labels[:, None]).squeeze(1).double()
    numbers = {
        "coverage": hit.mean().item(),
        "size": size.mean().item(),
        "single": single.double().mean().item(),
        "single_accuracy": hit[single].mean().item() if single.any() else float("nan"),
    }
    return {"interval dominance": {**numbers, **_utilities(sets, labels)}}


def threshold_section(
    threshold: Threshold, tested: Outcome, others: dict[str, Outcome], held: Outcome | None = None
) -> dict[str, Any]:
    """Effect of a threshold on test inputs and on out-of-distribution inputs."""
    known = threshold.known_by(tested.prediction.scores)
    right = (tested.prediction.labels == _labels(tested)).double()
    return {
        **dataclasses.asdict(threshold),
        "kept": known.double().mean().item(),
        "accuracy_of_kept": right[known].mean().item() if known.any() else float("nan"),
        "detected": {
            name: (~threshold.known_by(other.prediction.scores)).double().mean().item()
            for name, other in others.items()
        },
        "validation_samples": None if held is None else len(held),
    }


def conformal_section(calibration: Outcome, tested: Outcome, alpha: float, seed: int) -> dict[str, Any]:
    """Coverage and size of conformal sets for every applicable score, marginal and class-conditional."""
    rows = []
    bounded = tested.prediction.lower is not None
    for score in SCORES:
        if score in ("1 - Pl", "1 - Bel") and not bounded:
            continue
        for by_class in (False, True):
            conformal = Conformal(
                calibration.prediction, _labels(calibration), score=score, by_class=by_class, seed=seed
            )
            sets = conformal.sets(tested.prediction, alpha)
            result = Conformal.measure(sets, _labels(tested))
            rows.append(
                {
                    "score": score,
                    "by_class": by_class,
                    "coverage": result.coverage,
                    "size": result.size,
                    "empty": result.empty,
                    "class_coverage": numbers_or_none(result.by_class),
                    "class_size": numbers_or_none(result.size_by_class),
                    **_utilities(sets, _labels(tested)),
                }
            )
    return {"alpha": alpha, "samples": len(calibration), "rows": rows}


def _utilities(sets: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the mean discounted utilities of set-valued decisions."""
    return {
        "u65": utility(sets, labels, "u65").double().mean().item(),
        "u80": utility(sets, labels, "u80").double().mean().item(),
    }


def _labels(outcome: Outcome) -> Tensor:
    assert outcome.labels is not None
    return outcome.labels


def _moments(values: Tensor) -> dict[str, float]:
    return {"mean": values.double().mean().item(), "std": values.double().std(correction=0).item()}
