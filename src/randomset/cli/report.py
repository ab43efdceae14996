"""`randomset report`: what was measured in a run, as one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from randomset._core.files import check_writable
from randomset._core.locks import lock_folder
from randomset.cli.evaluate import write_report_of
from randomset.data.sources import Source
from randomset.errors import FileFormatError, RandomSetError
from randomset.runs.inputs import NetworkInputs, as_measured, few, own_data

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
    if not run.is_dir():
        raise FileFormatError("there is no such run folder", got=str(run))
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
    seed, most = about.get("seed", 0), about.get("ood_samples")

    def found(name: str, get: Callable[[], Source]) -> Source | None:
        """Return data as they were, or say why their samples are missing."""
        try:
            data = as_measured(get(), result, name)
            if len(data) != len(result.predictions[name]):
                raise FileFormatError("the data have changed since", got=f"{len(data)} inputs")
            return data
        except RandomSetError as error:
            typer.echo(f"The report has no samples of {name}: {error}", err=True)
            return None

    tested = found("test", lambda: own_data(run, load, about.get("test_source"))[0])
    unknown = {
        name: found(name, lambda source=source: few(load(source, labelled=False), most, seed))  # type: ignore[misc]
        for name, source in about.get("ood", {}).items()
    }
    others = {name: data for name, data in unknown.items() if data is not None}
    with lock_folder(folder):
        typer.echo(f"Wrote {write_report_of(run, folder, result, network, tested, others)}.")
