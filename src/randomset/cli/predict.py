"""`randomset predict`: a run folder and inputs in, a line for each prediction out."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from randomset._core.files import check_writable
from randomset.errors import RandomSetError
from randomset.runs.inputs import NetworkInputs

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
    text_column: Annotated[
        str | None, typer.Option(help="the column of texts in a table; else that of the training")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="inputs that go through the network at once")] = 256,
    strict: Annotated[bool, typer.Option("--strict", help="stop at an image that cannot be read")] = False,
) -> None:
    """Predict with a trained model: the class, its probability, bounds of a random set, and the uncertainty.

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
    from randomset.serving.answers import Answers, classes_of
    from randomset.training.rival_storage import load_model

    model, threshold = load_model(run), Threshold.load(run)
    load = NetworkInputs(model, run, strict, text_column)
    loaded = [(name, load(name, labelled=False)) for name in inputs]
    for name, source in loaded:
        for remark in source.remarks:
            typer.echo(f"{name}: {remark}.", err=True)
    count = 0
    # a network that cannot take these inputs says so before anything is written
    columns = list(Answers(model, loaded[0][1].inputs[:1], 1, loaded[0][0], threshold).columns)
    with _opened(out) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if format == "csv":
            chances = [f"p({name})" for name in classes_of(model)] if probabilities else []
            writer.writerow(["input", "row", *columns, *chances])
        for name, source in loaded:
            answers = Answers(model, source.inputs, batch_size, name, threshold)
            names = [name] * len(answers) if source.files is None else source.files
            rows = range(len(answers)) if source.rows is None else source.rows
            for row, line in enumerate(answers):
                if format == "csv":
                    more = answers.probabilities[row].tolist() if probabilities else []
                    writer.writerow([names[row], rows[row], *map(_short, line.values()), *map(_short, more)])
                else:
                    whole = {"input": names[row], "row": rows[row], **line, **answers.details(row)}
                    stream.write(json.dumps(whole, ensure_ascii=False) + "\n")
            count += len(answers)
    if out is not None:
        typer.echo(f"Wrote {count} predictions into {out}.")


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    from randomset._core.files import replacing

    if out is None:
        yield sys.stdout
        return
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        yield stream
