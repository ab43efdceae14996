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
from randomset.cli.inputs import NetworkInputs
from randomset.errors import RandomSetError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor

    from randomset.belief.random_set import RandomSet
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
    from randomset.training.rival_storage import load_model

    network, threshold = load_model(run), Threshold.load(run)
    if not isinstance(network, RandomSetNetwork):
        raise RandomSetError(
            "predict takes random-set networks",
            got=f"a run of {network.method}",
            remedy="randomset evaluate measures it; its predictions are in scores.npz",
        )
    load = NetworkInputs(network, strict)
    loaded = [(name, load(name, labelled=False)) for name in inputs]
    for name, source in loaded:
        for remark in source.remarks:
            typer.echo(f"{name}: {remark}.", err=True)
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


_COLUMNS = (
    "label",
    "confidence",
    "lower",
    "upper",
    "credal_width",
    "entropy",
    "repaired",
    "negative_mass",
    "known",
)


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
        answer.validity.negative.tolist(),
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


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    from randomset.belief.storage import replacing

    if out is None:
        yield sys.stdout
        return
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        yield stream
