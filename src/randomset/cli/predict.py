"""`randomset predict`: predict inputs with a trained network, one line each."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from randomset._core.files import check_writable, replacing
from randomset.cli.checks import check_at_least_one
from randomset.errors import RandomSetError
from randomset.runs import Run
from randomset.serving.answers import Answers

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder of a trained network")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT…",
            help="folders of images, .npz files with `images` or `features`, tables, or names of data sets",
        ),
    ],
    format: Annotated[str, typer.Option(help="csv, or jsonl with probabilities and masses")] = "csv",
    out: Annotated[Path | None, typer.Option(help="a file to write; default: the standard output")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="add a column for each class to csv")
    ] = False,
    text_column: Annotated[
        str | None, typer.Option(help="the column of texts in a table; default: as in training")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="inputs per batch")] = 256,
    strict: Annotated[bool, typer.Option("--strict", help="fail if an image cannot be read")] = False,
) -> None:
    """Predict with a trained model: the class, its probability, its bounds, and the uncertainty.

    The column `known` says whether the uncertainty is within the run's threshold; `reliability`, if the
    network has one, how well the training data support the prediction. Images of another size or colour are
    converted, and a message on standard error says so.
    """
    if format not in ("csv", "jsonl"):
        raise RandomSetError("unknown format", got=format, expected="csv or jsonl")
    check_at_least_one(batch_size=batch_size)
    if out is not None:
        check_writable(out)
    opened = Run(run)
    model, threshold = opened.model, opened.threshold
    loaded = [
        (name, opened.load(name, labelled=False, strict=strict, text_column=text_column)) for name in inputs
    ]
    for name, source in loaded:
        for remark in source.remarks:
            typer.echo(f"{name}: {remark}.", err=True)
    count = 0
    # Inputs that do not match the network fail here, before anything is written.
    columns = list(Answers(model, loaded[0][1].inputs[:1], 1, loaded[0][0], threshold).columns)
    with _opened(out) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if format == "csv":
            chances = [f"p({name})" for name in model.classes] if probabilities else []
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
    if out is None:
        yield sys.stdout
        return
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        yield stream
