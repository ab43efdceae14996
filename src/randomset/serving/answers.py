"""Predictions as plain values, for tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from randomset.errors import ShapeError
from randomset.evaluation.predictor import Prediction
from randomset.models.base import Classifier
from randomset.models.prediction import Threshold

__all__ = ["Answers"]


class Answers:
    """The predictions for a batch: one row of values per input, and details on request.

    Args:
        model: a random-set network or a baseline.
        inputs: a batch, as the model expects it.
        batch_size: inputs per batch.
        name: the name of the inputs in errors.
        threshold: decides which inputs are known.
    """

    def __init__(
        self,
        model: Classifier,
        inputs: Tensor,
        batch_size: int = 256,
        name: str = "the inputs",
        threshold: Threshold | None = None,
    ) -> None:
        self.classes = model.classes
        try:
            answer: Any = model.predict(inputs, batch_size=batch_size, progress=False)
        except ShapeError as error:
            raise ShapeError(f"{name}: {error}") from None
        self.answer = answer if model.bounded else None
        prediction = Prediction.from_random_set(answer) if model.bounded else answer
        self.probabilities = prediction.probabilities
        self.columns: dict[str, list[Any]] = {
            "label": [self.classes[label] for label in prediction.labels.tolist()],
            "confidence": prediction.confidence.tolist(),
        }
        if self.answer is None:
            self.columns |= {
                name.replace(" ", "_"): score.tolist()
                for name, score in prediction.scores.items()
                if name != "1 - maximum"
            }
        else:
            top = prediction.labels[:, None]
            self.columns |= {
                "lower": self.answer.lower.gather(1, top)[:, 0].tolist(),
                "upper": self.answer.upper.gather(1, top)[:, 0].tolist(),
                "credal_width": self.answer.credal_width.tolist(),
                "entropy": self.answer.entropy.tolist(),
                "repaired": self.answer.validity.repaired.tolist(),
                "negative_mass": self.answer.validity.negative.tolist(),
            }
            if self.answer.is_discounted:
                self.columns["reliability"] = self.answer.reliability.tolist()
                self.columns["familiar"] = self.answer.familiar.tolist()
            if self.answer.disagreement is not None:
                self.columns["disagreement"] = self.answer.disagreement.tolist()
        self.columns["known"] = [None] * len(prediction)
        if threshold is not None:
            self.columns["known"] = threshold.known_by(prediction.scores).tolist()

    def __len__(self) -> int:
        return len(self.probabilities)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def details(self, row: int) -> dict[str, Any]:
        """Return all probabilities and, for a random-set network, the sets with positive mass."""
        probabilities = dict(zip(self.classes, self.probabilities[row].tolist(), strict=True))
        if self.answer is None:
            return {"probabilities": probabilities}
        budget = self.answer.budget
        return {
            "probabilities": probabilities,
            "masses": [
                {"set": list(budget.names_of(index)), "mass": mass}
                for index, mass in enumerate(self.answer.mass[row].tolist())
                if mass > 0
            ],
        }

    def intervals(self, row: int) -> dict[str, tuple[float, float]]:
        """Return the lower and upper probability of every class; none for a baseline."""
        if self.answer is None:
            return {}
        bounds = zip(self.answer.lower[row].tolist(), self.answer.upper[row].tolist(), strict=True)
        return dict(zip(self.classes, bounds, strict=True))
