"""`randomset report`: what was measured in a run, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from randomset.cli.evaluate import write_report_of
from randomset.errors import FileFormatError, RandomSetError
from randomset.runs.folders import check_writable
from randomset.runs.inputs import NetworkInputs, few, own_data

__all__ = ["report"]


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run folder that was evaluated")],
    out: Annotated[Path | None, typer.Option(help="a folder for report.html; else the run folder")] = None,
) -> None:
    """Write report.html: numbers, curves, a threshold to move, samples, the sets in space. No network needed.

    The samples are taken from the data that were evaluated, where they are still at their place.
    """
    from randomset.evaluation import Evaluation
    from randomset.training.rival_storage import load_model

    if (run / "comparison.json").exists():
        raise FileFormatError(
            "this is a comparison, whose report is written with it",
            got=str(run),
            remedy="Open report.html there, or repeat the command that made it: nothing is trained again",
        )
    if not (run / "evaluation.json").exists():
        raise FileFormatError(
            "the run was not evaluated yet",
            got=str(run),
            remedy=f"First: randomset evaluate {run} --ood NAME=SOURCE",
        )
    folder = out or run
    check_writable(folder / "report.html")
    result, network = Evaluation.load(run), load_model(run)
    about = result.numbers.get("run") or {}
    load = NetworkInputs(network, run, strict=False)
    tested, others = None, {}
    try:
        tested, _, _ = own_data(run, load, about.get("test_source"))
        for name, source in about.get("ood", {}).items():
            others[name] = few(load(source, labelled=False), about.get("ood_samples"), about.get("seed", 0))
        counts = {"test": tested, **others}
        if other := [name for name, data in counts.items() if len(data) != len(result.predictions[name])]:
            raise FileFormatError("the data have changed since", got=", ".join(other))
    except RandomSetError as error:
        typer.echo(f"There are no samples in the report: {error}", err=True)
        tested, others = None, {}
    typer.echo(f"Wrote {write_report_of(run, folder, result, network, tested, others)}.")
