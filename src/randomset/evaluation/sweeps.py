"""Robustness to noise and rotation: accuracy and uncertainty at every level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from randomset._core.progress import progress_bar
from randomset.data.corruptions import gaussian_noise, rotated_between
from randomset.errors import ShapeError
from randomset.evaluation.predictor import Prediction, Predictor

__all__ = ["NOISE", "ROTATION", "corruption_rows", "measured", "pixels_of"]

# Levels from the paper's Tables 11 and 12.
NOISE = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
ROTATION = ((-180, -120), (-120, -60), (-60, 0), (0, 60), (60, 120), (120, 180), (0, 360))

Row = dict[str, Any]


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
