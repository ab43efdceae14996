"""Robustness to noise, rotation and attacks: the paper's, and attacks that a flat loss does not stop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from randomset._core.batches import evaluating, progress_bar
from randomset._core.packages import optional_package
from randomset.data.corruptions import gaussian_noise, rotated_between
from randomset.errors import RandomSetError, ShapeError
from randomset.evaluation.attacks import Objective, cross_entropy_objective, fgsm, margin_objective, pgd
from randomset.evaluation.predictor import Prediction, Predictor, as_predictor
from randomset.evaluation.tables import ALL_ATTACKS, TRANSFER
from randomset.models.base import Classifier
from randomset.models.objectives import belief_objective, logit_objective

__all__ = [
    "EPSILONS",
    "NOISE",
    "ROTATION",
    "attack_rows",
    "belief_objective",
    "check_autoattack",
    "corruption_rows",
    "logit_objective",
    "measured",
    "pixels_of",
]

# Levels from the paper's Tables 11 and 12.
NOISE = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
ROTATION = ((-180, -120), (-120, -60), (-60, 0), (0, 60), (60, 120), (120, 180), (0, 360))
EPSILONS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05)  # from the paper's Tables 13 and 14

Row = dict[str, Any]


def attack_rows(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilons: Sequence[float] = EPSILONS,
    *,
    surrogate: nn.Module | None = None,
    auto: Sequence[float] = (),
    steps: int = 40,
    restarts: int = 5,
    seed: int = 0,
    batch_size: int = 250,
    progress: bool | None = None,
) -> list[Row]:
    """Evaluate a model on adversarial images, whose pixels in [0, 1] differ by at most ε from the originals.

    The paper's attacks come first: FGSM, and PGD with 10 steps of 1/255 from the image itself, on the model's
    own loss and, for random-set networks, on the loss clipped at 1e-7. They are followed by attacks that a
    flat loss cannot stop: PGD with random restarts on the margin of log BetP and on belief logits; PGD images
    transferred from `surrogate`, a softmax model; and AutoAttack's standard set on log BetP, for every ε in
    `auto`. The last rows count a sample as correct only if it withstands all attacks.

    Args:
        model: a `RandomSetNetwork`, or a module that returns logits.
        images: (n × C × H × W), bytes or floats in [0, 1].
        labels: their classes (n).
        epsilons: values of ε.
        surrogate: a softmax model trained on the same data, whose adversarial images are transferred.
        auto: values of ε for AutoAttack, of package `pyautoattack`.
        steps: number of steps of the attacks with restarts.
        restarts: number of random starts.
        seed: seed of the random starts.
        batch_size: images per batch.
        progress: whether to show a progress bar; by default, on a terminal.
    """
    if not isinstance(model, nn.Module):
        raise RandomSetError(
            "attacks need a model with gradients", got=type(model).__name__, expected="a torch.nn.Module"
        )
    pixels, predictor = pixels_of(images), as_predictor(model)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    plan = _plan(model, surrogate, steps, restarts, seed)
    work = [(name, attack, epsilon) for name, attack in plan.items() for epsilon in epsilons]
    work += [("AutoAttack on log BetP", _autoattack(model, seed), epsilon) for epsilon in auto]
    clean = _right(predictor, pixels, labels)
    standing = dict.fromkeys((*epsilons, *auto), clean)
    rows: list[Row] = [{"attack": "none", "epsilon": 0.0} | measured(predictor, pixels, labels)]
    source = nn.Identity() if surrogate is None else surrogate
    bar = progress_bar("attacking", len(work) * len(pixels), progress)
    with evaluating(model), evaluating(source), bar as advance:
        for name, attack, epsilon in work:
            parts = []
            for x, y in zip(pixels.split(batch_size), labels.split(batch_size), strict=True):
                parts.append(attack(x.to(device), y.to(device), epsilon).cpu())
                advance(len(x))
            changed = torch.cat(parts)
            standing[epsilon] = standing[epsilon] & _right(predictor, changed, labels)
            rows.append({"attack": name, "epsilon": epsilon} | measured(predictor, changed, labels))
    for epsilon, right in standing.items():
        rows.append({"attack": ALL_ATTACKS, "epsilon": epsilon, "accuracy": right.double().mean().item()})
    return rows


def _right(predictor: Predictor, images: Tensor, labels: Tensor) -> Tensor:
    return torch.cat([predictor(part).labels for part in images.split(256)]) == labels


def check_autoattack() -> None:
    """Raise MissingPackageError if AutoAttack is not installed."""
    with optional_package("pyautoattack", "attack"):
        import pyautoattack  # noqa: F401


Attack = Callable[[Tensor, Tensor, float], Tensor]


def _plan(
    model: nn.Module, surrogate: nn.Module | None, steps: int, restarts: int, seed: int
) -> dict[str, Attack]:
    """Return the attacks that apply to a model, by name."""
    paper = partial(pgd, steps=10, step=1 / 255, seed=None)
    strong = partial(pgd, steps=steps, restarts=restarts, seed=seed)
    margin = "PGD, margin of log BetP" if getattr(model, "bounded", False) else "PGD, margin"
    objectives = _objectives(model)
    own = {name: objective for name, objective in objectives.items() if name.startswith("own loss")}
    plan: dict[str, Attack] = {f"FGSM, {name}": partial(fgsm, objective) for name, objective in own.items()}
    plan |= {f"PGD, {name}": partial(paper, objective) for name, objective in own.items()}
    plan[margin] = partial(strong, margin_objective(_logits_of(model)))
    plan |= {f"PGD, {name}": partial(strong, each) for name, each in objectives.items() if name not in own}
    if surrogate is not None:
        transfer = partial(strong, cross_entropy_objective(surrogate))
        home = next((p.device for p in surrogate.parameters()), torch.device("cpu"))
        plan[TRANSFER] = lambda x, y, e: transfer(x.to(home), y.to(home), e)
    return plan


def _logits_of(model: nn.Module) -> nn.Module:
    """Return a module whose softmax is what a model predicts."""
    return model.as_logits() if isinstance(model, Classifier) else model


def _objectives(model: nn.Module) -> dict[str, Objective]:
    return (
        model.objectives() if isinstance(model, Classifier) else {"own loss": cross_entropy_objective(model)}
    )


def _autoattack(model: nn.Module, seed: int) -> Attack:
    logits = _logits_of(model)

    def attack(images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        check_autoattack()
        from pyautoattack import AutoAttack

        with torch.no_grad():
            outputs = logits(images[:1]).shape[1]
        if outputs < 4:
            raise RandomSetError(
                "AutoAttack needs at least four classes",
                got=f"{outputs} classes",
                remedy="Omit it; PGD works with any number of classes",
            )
        logging.getLogger("auto-attack").setLevel(logging.ERROR)
        suite = AutoAttack(
            logits, norm="Linf", eps=epsilon, version="standard", device=images.device, seed=seed
        )
        suite.verbose = False
        suite.apgd_targeted.n_target_classes = suite.fab.n_target_classes = min(9, outputs - 1)
        with torch.random.fork_rng(devices=[]):
            changed, _ = suite.run_standard_evaluation(images, labels, batch_size=len(images))
        # Project back onto the ball: rounding can leave it.
        changed = torch.minimum(torch.maximum(changed, images - epsilon), images + epsilon)
        return changed.clamp(0, 1).detach()

    return attack


def corruption_rows(
    predictor: Predictor,
    images: Tensor,
    labels: Tensor,
    noise: Sequence[float] = NOISE,
    rotation: Sequence[tuple[float, float]] = ROTATION,
    *,
    seed: int = 0,
    batch_size: int = 256,
    progress: bool | None = None,
) -> dict[str, list[Row]]:
    """Evaluate a model on images in [0, 1] with noise at several scales and rotations in several ranges.

    Returns rows with `level`, `accuracy` and the mean of every uncertainty score; a level of None stands for
    the unchanged images.
    """
    pixels = pixels_of(images)
    changes: dict[str, list[tuple[Any, Callable[[Tensor], Tensor]]]] = {
        "noise": [(scale, partial(gaussian_noise, scale=scale, seed=seed)) for scale in noise],
        "rotation": [
            ([low, high], partial(rotated_between, low=low, high=high, seed=seed)) for low, high in rotation
        ],
    }
    rows: dict[str, list[Row]] = {}
    with progress_bar("noise and rotation", 1 + len(noise) + len(rotation), progress) as advance:
        clean = {"level": None} | measured(predictor, images, labels, batch_size)
        advance(1)
        for name, levels in changes.items():
            if levels:
                rows[name] = [clean]
            for level, change in levels:
                changed = change(pixels)
                if images.dtype == torch.uint8:
                    changed = (changed * 255).round().to(torch.uint8)
                rows[name].append({"level": level} | measured(predictor, changed, labels, batch_size))
                advance(1)
    return rows


def measured(predictor: Predictor, images: Tensor, labels: Tensor, batch_size: int = 256) -> Row:
    """Return the accuracy and the mean of every uncertainty score."""
    prediction = Prediction.concatenate([predictor(part) for part in images.split(batch_size)])
    means = {name: score.double().mean().item() for name, score in prediction.scores.items()}
    return {"accuracy": (prediction.labels == labels).double().mean().item()} | means


def pixels_of(images: Tensor) -> Tensor:
    """Return images as floats in [0, 1]; raise ShapeError for other inputs."""
    if images.dtype == torch.uint8:
        return images.float() / 255
    if images.dim() != 4 or not images.is_floating_point() or images.min() < 0 or images.max() > 1:
        raise ShapeError(
            "images must have pixels in [0, 1]",
            got=f"{images.dtype} {tuple(images.shape)} from {images.min():g} to {images.max():g}",
            expected="uint8, or floats in [0, 1], of shape (n × C × H × W)",
            remedy="Standardise inputs inside the model",
        )
    return images
