"""The result of an evaluation: metrics, tables and the underlying predictions."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import randomset
from randomset._core.files import expanded, read_document, replacing, write_text
from randomset._core.packages import optional_package
from randomset.data.arrays import read_arrays
from randomset.errors import FileFormatError, RandomSetError
from randomset.evaluation.predictor import Prediction
from randomset.evaluation.tables import Table, summary_of, tables_of

__all__ = ["Evaluation"]

_FORMAT, _VERSION = "randomset.evaluation", 1
_OWN = ("format", "version", "randomset", "scores")
_BESIDE = ("lower", "upper", "negative")
_PARTS = ("probabilities", "scores", "labels", *_BESIDE)
_FILES = ("evaluation.json", "evaluation.md", "scores.npz")


@dataclass(frozen=True)
class Evaluation:
    """Metrics by name, as in `evaluation.json`, with the predictions and labels of every data set.

    `result["test"]["accuracy"]` is a number; `print(result)` shows the tables. `predictions` has the keys
    "test", "validation" and the names of the out-of-distribution data sets.
    """

    numbers: dict[str, Any]
    predictions: Mapping[str, Prediction]
    labels: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Any:
        if name not in self.numbers:
            raise KeyError(f"{name!r} was not evaluated; available: {', '.join(self.numbers)}")
        return self.numbers[name]

    def __contains__(self, name: str) -> bool:
        return name in self.numbers

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names."""
        return tuple(self.numbers["classes"])

    @property
    def tables(self) -> list[Table]:
        """The metrics as tables."""
        return tables_of(self.numbers)

    @property
    def summary(self) -> str:
        """A short text with the most important metrics."""
        return "\n".join(summary_of(self.numbers))

    def to_json(self, path: str | Path | None = None, scores: str | None = None) -> str:
        """Return the metrics as JSON, and write them if a path is given; NaN and infinity become null.

        `scores` is the checksum of the matching scores file.
        """
        content = {"format": _FORMAT, "version": _VERSION, "randomset": randomset.__version__}
        content |= {} if scores is None else {"scores": scores}
        text = json.dumps(
            json_safe({**content, **self.numbers}), indent=1, ensure_ascii=False, allow_nan=False
        )
        return _written(text + "\n", path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the tables as Markdown, and write them if a path is given."""
        parts = [table.to_markdown() for table in self.tables]
        if "run" in self.numbers:
            run = self.numbers["run"]
            parts.insert(0, f"# Evaluation of {run['folder']}\n\nTest data: {run['test']}.")
        if self.numbers.get("remarks"):
            parts.append("## Remarks\n\n" + "\n".join(f"- {remark}" for remark in self.numbers["remarks"]))
        return _written("\n\n".join(parts) + "\n", path)

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        test, unknown = self.numbers["test"], ", ".join(self.numbers["ood"]) or "no unknown data"
        return f"Evaluation({test['samples']} test inputs, accuracy {test['accuracy']:.4f}, {unknown})"

    def save_scores(self, path: str | Path) -> Path:
        """Write the predictions, enough to redraw all figures, as .npz or .parquet (one row per input).

        Both contain labels, probabilities, scores, and lower and upper probabilities of every data set.
        """
        path = expanded(path)
        if path.suffix == ".npz":
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **self._arrays())
        elif path.suffix == ".parquet":
            with optional_package("pyarrow", "data"):
                frame = self.to_frame()
                with replacing(path) as temporary:
                    frame.to_parquet(temporary)
        else:
            raise RandomSetError(
                "unsupported file type for scores", got=str(path), expected=".npz or .parquet"
            )
        return path

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per input of every data set."""
        with optional_package("pandas", "frames"):
            import pandas
        parts = []
        for name, prediction in self.predictions.items():
            frame = pandas.DataFrame({"set": name, "row": np.arange(len(prediction))})
            labels = self.labels.get(name)
            frame["label"] = -1 if labels is None else labels.numpy()
            frame["predicted"] = prediction.labels.numpy()
            columns = {
                f"score {score}" if score in frame else score: values.numpy()
                for score, values in prediction.scores.items()
            }
            parts_of = {"p": prediction.probabilities, "lower": prediction.lower, "upper": prediction.upper}
            for title, values in parts_of.items():
                if values is not None:
                    columns |= {f"{title}({c})": values[:, k].numpy() for k, c in enumerate(self.classes)}
            parts.append(pandas.concat([frame, pandas.DataFrame(columns)], axis=1))
        return pandas.concat(parts, ignore_index=True)

    def save(self, folder: str | Path) -> list[Path]:
        """Write evaluation.json, evaluation.md and scores.npz to a folder."""
        folder = expanded(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in _FILES]
        self.save_scores(paths[2])
        self.to_markdown(paths[1])
        self.to_json(paths[0], _checksum(paths[2]))  # written last: if it exists, the others are complete
        return paths

    @classmethod
    def load(cls, folder: str | Path) -> Evaluation:
        """Load an evaluation from a folder written by `save`."""
        path, scores = expanded(folder) / _FILES[0], expanded(folder) / _FILES[2]
        numbers = read_document(path, _FORMAT, _VERSION, "the evaluation")
        mark = numbers.get("scores")
        numbers = {name: value for name, value in numbers.items() if name not in _OWN}
        if mark not in (None, _checksum(scores)):  # saving was interrupted
            raise FileFormatError(
                "evaluation.json and scores.npz do not belong together",
                got=str(folder),
                remedy="Evaluate again",
            )
        try:
            result = cls(numbers, *_restored(scores))
            result.to_markdown(), result.summary  # check that all metrics are present and valid
            _check_lengths(result)
        except RandomSetError:
            raise
        except Exception as error:  # missing or malformed content can raise anything
            raise FileFormatError(
                "the evaluation is incomplete or damaged",
                got=f"{folder}: {error!r:.100}",
                remedy="Evaluate again",
            ) from None
        return result

    def _arrays(self) -> dict[str, Any]:
        first = next(iter(self.predictions.values()))
        arrays: dict[str, Any] = {
            "classes": np.array(self.classes),
            "sets": np.array(list(self.predictions)),
            "scores": np.array(list(first.scores)),
        }
        for name, prediction in self.predictions.items():
            arrays[f"{name}.probabilities"] = prediction.probabilities.numpy()
            arrays[f"{name}.scores"] = torch.stack(list(prediction.scores.values()), 1).numpy()
            if name in self.labels:
                arrays[f"{name}.labels"] = self.labels[name].numpy()
            for side in _BESIDE:
                if getattr(prediction, side) is not None:
                    arrays[f"{name}.{side}"] = getattr(prediction, side).numpy()
        return arrays


def _restored(path: Path) -> tuple[dict[str, Prediction], dict[str, Tensor]]:
    """Read predictions and labels from a scores file."""
    titles = read_arrays(path, ("sets", "scores"), needed=("sets", "scores"))
    predictions, labels = {}, {}
    for name in titles["sets"].tolist():
        keys = [f"{name}.{part}" for part in _PARTS]
        arrays = read_arrays(path, tuple(keys), needed=tuple(keys[:2]))
        p, scores, own, *bounds = (torch.from_numpy(arrays[key]) if key in arrays else None for key in keys)
        assert p is not None
        assert scores is not None
        named = dict(zip(titles["scores"].tolist(), scores.unbind(1), strict=True))
        predictions[str(name)] = Prediction(p, named, *bounds)
        if own is not None:
            labels[name] = own
    return predictions, labels


def _check_lengths(result: Evaluation) -> None:
    """Raise if predictions have inconsistent shapes or class names are not strings."""
    "".join(result.classes).encode()
    if "test" not in result.predictions:
        raise FileFormatError("the scores file has no test data", got=", ".join(result.predictions))
    for name, prediction in result.predictions.items():
        whole = (len(prediction), len(result.classes))
        tables = (prediction.probabilities, prediction.lower, prediction.upper)
        columns = (*prediction.scores.values(), prediction.negative)
        right = all(each is None or tuple(each.shape) == whole for each in tables)
        right &= all(each is None or tuple(each.shape) == whole[:1] for each in columns)
        labels = result.labels.get(name)  # set-valued labels are 2-D
        if not right or (labels is not None and tuple(labels.shape) not in (whole, whole[:1])):
            raise FileFormatError("inconsistent shapes in the scores file", got=f"scores of {name}")


def _checksum(path: Path) -> str | None:
    """Return a checksum of a file, or None if it cannot be read."""
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    except OSError:
        return None


def json_safe(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not support, with None in nested mappings and lists."""
    if isinstance(value, Mapping):
        return {name: json_safe(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _written(text: str, path: str | Path | None) -> str:
    if path is not None:
        write_text(text, Path(path))
    return text
