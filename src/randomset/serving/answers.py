"""What a model says about inputs, as plain values: for tables, for JSON, for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from randomset.errors import ShapeError
from randomset.evaluation.ood import Threshold
from randomset.evaluation.predictor import Prediction
from randomset.models.base import Classifier

__all__ = ["Answers", "classes_of"]


def classes_of(model: Classifier) -> Sequence[str]:
    """Return the names of the classes."""
    return model.classes


class Answers:
    """The predictions for a batch: a line for each input, and more on request.

    Args:
        model: a random-set network or a baseline.
        inputs: as the model takes them.
        batch_size: how many go through it at once.
        name: what to call the inputs in an error.
        threshold: what decides which inputs are known.
    """

    def __init__(
        self,
        model: Classifier,
        inputs: Tensor,
        batch_size: int = 256,
        name: str = "the inputs",
        threshold: Threshold | None = None,
    ) -> None:
        self.classes = classes_of(model)
        self.answer: Any = None
        try:
            answer: Any = model.predict(inputs, batch_size=batch_size, progress=False)
            self.answer = answer if model.bounded else None
            found = Prediction.from_random_set(answer) if model.bounded else answer
        except RuntimeError as error:  # torch's own words on shapes that do not fit
            raise ShapeError(
                "the network cannot take these inputs",
                got=f"{name} with samples of shape {tuple(inputs.shape[1:])}: {str(error).splitlines()[0]}",
            ) from None
        self.probabilities = found.probabilities
        self.columns: dict[str, list[Any]] = {
            "label": [self.classes[label] for label in found.labels.tolist()],
            "confidence": found.confidence.tolist(),
        }
        if self.answer is None:
            own = {
                key.replace(" ", "_"): score for key, score in found.scores.items() if key != "1 - maximum"
            }
            self.columns |= {key: score.tolist() for key, score in own.items()}
        else:
            top = found.labels[:, None]
            self.columns |= {
                "lower": self.answer.lower.gather(1, top)[:, 0].tolist(),
                "upper": self.answer.upper.gather(1, top)[:, 0].tolist(),
                "credal_width": self.answer.credal_width.tolist(),
                "entropy": self.answer.entropy.tolist(),
                "repaired": self.answer.validity.repaired.tolist(),
                "negative_mass": self.answer.validity.negative.tolist(),
            }
        self.columns["known"] = [None] * len(found)
        if threshold is not None:
            self.columns["known"] = threshold.known_by(found.scores).tolist()

    def __len__(self) -> int:
        return len(self.probabilities)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def details(self, row: int) -> dict[str, Any]:
        """Return the probabilities, and of a random set the masses of every set that has one."""
        chances = dict(zip(self.classes, self.probabilities[row].tolist(), strict=True))
        if self.answer is None:
            return {"probabilities": chances}
        budget = self.answer.budget
        return {
            "probabilities": chances,
            "masses": [
                {"set": list(budget.names_of(place)), "mass": mass}
                for place, mass in enumerate(self.answer.mass[row].tolist())
                if mass > 0
            ],
        }

    def intervals(self, row: int) -> dict[str, tuple[float, float]]:
        """Return lower and upper probability of every class; a baseline has none."""
        if self.answer is None:
            return {}
        bounds = zip(self.answer.lower[row].tolist(), self.answer.upper[row].tolist(), strict=True)
        return dict(zip(self.classes, bounds, strict=True))
