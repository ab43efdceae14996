"""Export of a trained network as one graph, from raw inputs to predictions: ONNX or torch.export."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import randomset
from randomset._core.files import replacing
from randomset._core.packages import optional_package
from randomset.errors import FileFormatError, RandomSetError, first_line
from randomset.models.prediction import Threshold
from randomset.models.random_set import RandomSetNetwork

__all__ = ["TOLERANCE", "Deployed", "export_onnx", "export_torch"]

TOLERANCE = 1e-4
"""The largest difference allowed between the exported graph and torch."""

_MAX_PROTOBUF = 2**31 - 2**24  # bytes in a protocol buffer file


class Deployed(nn.Module):
    """The whole prediction as a module: raw inputs → labels, probabilities, bounds, uncertainties, masses.

    Includes the network's preprocessing, its calibration, the repair of the masses and, if the network has
    one, its reliability, by which they are discounted. Bytes (uint8) are divided by 255, as in `predict`.

    Args:
        network: a trained network.
        threshold: decides the output `known`, by any score of the network; without it, `known` is omitted.

    >>> from randomset import Budget
    >>> network = RandomSetNetwork(nn.Linear(8, 16), Budget.powerset(3)).eval()
    >>> {name: tuple(value.shape) for name, value in Deployed(network)(torch.randn(5, 8)).items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'label': (5,), 'confidence': (5,), 'probabilities': (5, 3), 'lower': (5, 3), 'upper': (5, 3),
     'credal_width': (5,), 'entropy': (5,), 'mass': (5, 7)}
    """

    def __init__(self, network: RandomSetNetwork, threshold: Threshold | None = None) -> None:
        super().__init__()
        if not network.portable:
            raise RandomSetError(
                "a model with a scikit-learn estimator cannot be exported",
                got=type(network).__name__,
                expected="a network of torch modules",
            )
        self.network, self.threshold = network, threshold

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Return labels, probabilities with their bounds, uncertainties and masses."""
        answer = self.network.predict_batch(inputs)
        outputs = {
            "label": answer.labels,
            "confidence": answer.confidence,
            "probabilities": answer.pignistic,
            "lower": answer.lower,
            "upper": answer.upper,
            "credal_width": answer.credal_width,
            "entropy": answer.entropy,
            "mass": answer.mass,
        }
        if answer.is_discounted:
            outputs["reliability"], outputs["familiar"] = answer.reliability, answer.familiar
        if answer.disagreement is not None:
            outputs["disagreement"] = answer.disagreement
        if self.threshold is not None:
            outputs["known"] = self.threshold.known_by(answer.scores)
        return outputs

    def description(self, example: Tensor) -> dict[str, str]:
        """Return the metadata of the file, as strings."""
        budget = self.network.budget.with_universal_set()
        notes = self.network.notes
        threshold = None
        if self.threshold is not None:
            threshold = {"score": self.threshold.score, "value": self.threshold.value}
        return {
            "randomset": randomset.__version__,
            "classes": json.dumps(list(budget.classes), ensure_ascii=False),
            "sets": json.dumps([list(budget.names_of(i)) for i in range(len(budget))], ensure_ascii=False),
            "threshold": json.dumps(threshold),
            "input": json.dumps(
                {
                    "shape": list(example.shape[1:]),
                    "dtype": str(example.dtype)[6:],
                    "largest": 255 if example.dtype == torch.uint8 else notes.get("largest_input"),
                }
            ),
            "tokens": json.dumps(notes.get("tokens")),
            "entropy": "bits",
        }


def export_onnx(deployed: Deployed, example: Tensor, path: str | Path) -> float | None:
    """Write an ONNX file for batches of any size, and compare it with torch if onnxruntime is installed.

    Args:
        deployed: the module to export.
        example: a batch of at least two inputs of the final type and shape.
        path: the file; weights beyond 2 GB go into a second file beside it.

    Returns:
        The largest difference between onnxruntime and torch, or None if onnxruntime is not installed.
    """
    with optional_package("onnxscript", "onnx"):
        import onnxscript  # noqa: F401  # requires onnx
    path = Path(path)
    with _silenced(deployed, example) as expected:
        program = torch.onnx.export(
            deployed,
            (example,),
            dynamo=True,
            dynamic_shapes=(_dynamic_shape(example),),
            input_names=["inputs"],
            output_names=list(expected),
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update(deployed.description(example))
    if sum(t.numel() * t.element_size() for t in deployed.state_dict().values()) > _MAX_PROTOBUF:
        program.save(str(path), external_data=True)
    else:
        with replacing(path) as temporary:
            program.save(str(temporary), external_data=False)
            return _compared(temporary, example, expected)  # an earlier file stays if this one fails
    return _compared(path, example, expected)


def export_torch(deployed: Deployed, example: Tensor, path: str | Path) -> float:
    """Write a program that `torch.export.load` reads without this package; otherwise as `export_onnx`."""
    path = Path(path)
    deployed = copy.deepcopy(deployed).requires_grad_(False)
    with _silenced(deployed, example) as expected:
        program = torch.export.export(deployed, (example,), dynamic_shapes=(_dynamic_shape(example),))
    extra = {"randomset.json": json.dumps(deployed.description(example), ensure_ascii=False)}
    with warnings.catch_warnings(), replacing(path) as temporary:
        warnings.simplefilter("ignore")
        target = io.BytesIO()
        torch.export.save(program, target, extra_files=extra)
        temporary.write_bytes(target.getvalue())
        loaded = torch.export.load(io.BytesIO(target.getvalue())).module()
        with torch.no_grad():
            outputs = loaded(example[:1])
        return _checked(_distance({name: value[:1] for name, value in expected.items()}, outputs))


def _dynamic_shape(example: Tensor) -> dict[int, Any]:
    """Return the dynamic dimensions: the batch and, for tokens, their number."""
    dimensions: dict[int, Any] = {0: torch.export.Dim("batch", min=1)}
    if example.dim() == 2 and example.dtype == torch.long:
        dimensions[1] = torch.export.Dim("tokens", min=2, max=example.shape[1])
    return dimensions


@contextlib.contextmanager
def _silenced(deployed: Deployed, example: Tensor) -> Iterator[dict[str, Tensor]]:
    """Yield torch's outputs for the example, and silence the exporters."""
    if len(example) < 2:
        raise RandomSetError(
            "the example batch is too small", got=f"{len(example)} inputs", expected="2 or more"
        )
    deployed.eval()
    with torch.no_grad():
        expected = deployed(example)
    level = logging.getLogger("torch.onnx").level
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        try:
            yield expected
        except Exception as error:
            raise RandomSetError(
                "the network cannot be exported",
                got=f"{type(error).__name__}: {first_line(error)[:200]}",
                remedy="The backbone's forward must not branch on the values of tensors",
            ) from error
        finally:
            logging.getLogger("torch.onnx").setLevel(level)


def _compared(path: Path, example: Tensor, expected: dict[str, Tensor]) -> float | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for rows in (slice(None), slice(0, 1)):
        answers = session.run(list(expected), {"inputs": example[rows].numpy()})
        outputs = {name: torch.from_numpy(value) for name, value in zip(expected, answers, strict=True)}
        worst = max(worst, _distance({name: value[rows] for name, value in expected.items()}, outputs))
    try:
        return _checked(worst)
    except FileFormatError:
        path.unlink()
        raise


def _checked(distance: float) -> float:
    if not distance <= TOLERANCE:
        raise FileFormatError(
            "the exported graph differs from the network", got=f"a difference of {distance:.2g}"
        )
    return distance


def _distance(expected: dict[str, Tensor], outputs: dict[str, Tensor]) -> float:
    """Return the largest difference of all floats; labels and `known` may differ in ties."""
    floats = {name: value for name, value in expected.items() if value.is_floating_point()}
    largest = [float((value - outputs[name]).abs().max()) for name, value in floats.items()]
    return max(largest) if all(map(math.isfinite, largest)) else math.inf
