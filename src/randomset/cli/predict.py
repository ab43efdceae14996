"""`randomset predict`: a run folder and inputs in, a line for each prediction out."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from randomset.cli.checks import check_writable
from randomset.errors import RandomSetError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor

    from randomset.belief.random_set import RandomSet
    from randomset.data.sources import Source
    from randomset.evaluation.ood import Threshold
    from randomset.nn.network import RandomSetNetwork

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder of a trained network")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT…",
            help="folders of images, .npz files with `images` or `features`, tables, or known names",
        ),
    ],
    format: Annotated[
        str, typer.Option(help="csv or jsonl; the latter has probabilities and masses")
    ] = "csv",
    out: Annotated[Path | None, typer.Option(help="a file to write; else the standard output")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="add a column for each class to csv")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="inputs that go through the network at once")] = 256,
    strict: Annotated[bool, typer.Option("--strict", help="stop at an image that cannot be read")] = False,
) -> None:
    """Predict with a trained network: the class, its probability with bounds, and how uncertain it is.

    The column `known` says whether the uncertainty is within the threshold of the run. Images of another
    size or colour are converted, and the error stream says so.
    """
    if format not in ("csv", "jsonl"):
        raise RandomSetError("unknown format", got=format, expected="csv or jsonl")
    if batch_size < 1:
        raise RandomSetError("--batch-size is out of range", got=batch_size, expected="1 or more")
    if out is not None:
        check_writable(out)
    from randomset.evaluation.ood import Threshold
    from randomset.nn.network import RandomSetNetwork

    network, threshold = RandomSetNetwork.load(run), Threshold.load(run)
    loaded = [(name, _fitting(name, network, strict)) for name in inputs]
    count = 0
    if loaded:  # a network that cannot take these inputs says so before anything is written
        _predicted(network, loaded[0][1].inputs[:1], 1, loaded[0][0])
    with _opened(out) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if format == "csv":
            columns = ["input", "row", *_COLUMNS]
            writer.writerow(
                columns + ([f"p({name})" for name in network.budget.classes] if probabilities else [])
            )
        for name, source in loaded:
            answer = _predicted(network, source.inputs, batch_size, name)
            names = [name] * len(answer) if source.files is None else source.files
            for row, line in enumerate(_lines(answer, threshold)):
                name = names[row]
                if format == "csv":
                    more = answer.pignistic[row].tolist() if probabilities else []
                    writer.writerow([name, row, *map(_short, line.values()), *map(_short, more)])
                else:
                    stream.write(
                        json.dumps(
                            {"input": name, "row": row, **line, **_details(answer[row])}, ensure_ascii=False
                        )
                        + "\n"
                    )
            count += len(answer)
    if out is not None:
        typer.echo(f"Wrote {count} predictions into {out}.")


def _predicted(network: RandomSetNetwork, tensor: Tensor, batch_size: int, name: str) -> RandomSet:
    try:
        return network.predict(tensor, batch_size=batch_size)
    except RuntimeError as error:  # torch's own words on shapes that do not fit
        raise ShapeError(
            "the network cannot take these inputs",
            got=f"{name} with samples of shape {tuple(tensor.shape[1:])}: {str(error).splitlines()[0]}",
        ) from None


_COLUMNS = ("label", "confidence", "lower", "upper", "credal_width", "entropy", "repaired", "known")


def _lines(answer: RandomSet, threshold: Threshold | None) -> Iterator[dict[str, Any]]:
    from randomset.evaluation.predictor import Prediction

    top = answer.labels[:, None]
    known: list[bool] | list[None] = [None] * len(answer)
    if threshold is not None:
        known = threshold.known(Prediction.from_random_set(answer).scores[threshold.score]).tolist()
    columns = (
        answer.label_names,
        answer.confidence.tolist(),
        answer.lower.gather(1, top)[:, 0].tolist(),
        answer.upper.gather(1, top)[:, 0].tolist(),
        answer.credal_width.tolist(),
        answer.entropy.tolist(),
        answer.validity.repaired.tolist(),
        known,
    )
    for values in zip(*columns, strict=True):
        yield dict(zip(_COLUMNS, values, strict=True))


def _details(answer: RandomSet) -> dict[str, Any]:
    """Return the probabilities, and the masses of every set that has one."""
    budget = answer.budget
    return {
        "probabilities": dict(zip(budget.classes, answer.pignistic.tolist(), strict=True)),
        "masses": [
            {"set": list(budget.names_of(place)), "mass": mass}
            for place, mass in enumerate(answer.mass.tolist())
            if mass > 0
        ],
    }


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _fitting(name: str, network: RandomSetNetwork, strict: bool) -> Source:
    """Load inputs and bring them into the form that the network was trained on."""
    import dataclasses

    from randomset.data.conversion import converted
    from randomset.data.sources import load_source

    expected: list[int] | None = network.notes.get("input_shape")
    config = network.notes.get("config") or {}
    size = (expected[1], expected[2]) if expected is not None and len(expected) == 3 else None
    source = load_source(
        name,
        "test",
        labelled=False,
        label=config.get("label_column"),
        text=config.get("text_column"),
        size=size,
        strict=strict,
    )
    remarks, tensor = list(source.remarks), source.inputs
    if source.kind == "text":
        raise ShapeError("the network takes no texts", got=name)
    if expected is not None and size is not None and tensor.dim() == 4:
        tensor, done = converted(tensor, expected)
        remarks += done
    for remark in remarks:
        typer.echo(f"{name}: {remark}.", err=True)
    if expected is not None and list(tensor.shape[1:]) != expected:
        raise ShapeError(
            "the inputs do not fit the network",
            got=f"{name} with samples of shape {tuple(tensor.shape[1:])}",
            expected=str(tuple(expected)),
        )
    largest = network.notes.get("largest_input")
    if isinstance(largest, float) and tensor.dim() == 4 and tensor.is_floating_point():
        found = float(tensor.abs().max())
        if largest > 0 and found > 20 * largest:
            raise ShapeError(
                "the images are on another scale than those of the training",
                got=f"{name} with values up to {found:g}",
                expected=f"values up to about {largest:g}, or bytes (uint8), which are divided by 255",
            )
    return dataclasses.replace(source, inputs=tensor)


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    from randomset.belief.storage import replacing

    if out is None:
        yield sys.stdout
        return
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        yield stream
