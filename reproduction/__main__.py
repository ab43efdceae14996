"""`python -m reproduction`: the paper's tables and figures, made here, beside what is printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from randomset._core.files import check_writable
from randomset._core.locks import lock_folder
from randomset.cli import main
from randomset.cli.checks import check_drawing
from randomset.errors import FileFormatError, RandomSetError

if TYPE_CHECKING:
    from reproduction import Outcome

__all__ = ["paper"]

paper = typer.Typer(
    invoke_without_command=True, help="Every table and figure of the paper, one command each."
)

_Folder = Annotated[Path, typer.Option("--folder", help="where models and results are kept")]
_Scale = Annotated[str, typer.Option(help="tiny (seconds), cpu (a desktop) or full (the paper's, on a GPU)")]
_PLACE = Path("paper")


@paper.callback()
def show(context: typer.Context, folder: _Folder = _PLACE) -> None:
    """List every table and figure: what it needs, how long that takes, whether results are here."""
    if context.invoked_subcommand is not None:
        return
    from reproduction import SCALES, Workshop, exhibits

    every, full = exhibits(), Workshop(SCALES["full"], folder / "full")
    titles, ids = max(len(one.title) for one in every), max(len(one.id) for one in every)
    for one in every:
        here = [scale for scale in SCALES if (folder / scale / one.id / "result.json").exists()]
        known = {scale: _outcome(folder, scale, one.id) for scale in SCALES}
        times = [f"{scale} {_time(outcome.seconds)}" for scale, outcome in known.items() if outcome]
        if "full" not in here and one.data:
            times.append(f"full {one.gpu_hours(full):.0f} h on a GPU")
        shipped = [scale for scale in SCALES if scale not in here and known[scale]]
        states = f"results here: {', '.join(here)}" if here else "no results here"
        states += f", with the library: {', '.join(shipped)}" * bool(shipped)
        parts = (f"needs {', '.join(one.data) or 'no data'}", ", ".join(times), states)
        typer.echo(f"{one.id:{ids}}  {one.title:{titles}}  {'; '.join(part for part in parts if part)}")
    typer.echo("Times are of all trainings and measurements; what was trained before is not trained again.")
    typer.echo("For full they follow from the minutes of the paper's Table 6. Scale tiny takes seconds.")
    typer.echo("Next: python -m reproduction run ID --scale tiny|cpu|full, or all of them: run all")


@paper.command("run")
def run(
    id: Annotated[str, typer.Argument(help="such as table-1 or figure-12; all for everything")],
    scale: _Scale = "cpu",
    seeds: Annotated[int | None, typer.Option(help="how many seeds; else the scale's own number")] = None,
    figures: Annotated[bool, typer.Option(help="draw figures")] = True,
    folder: _Folder = _PLACE,
) -> None:
    """Train what a table or figure needs, once, measure it, and write it beside the paper's.

    What was trained or measured before is used again. An interruption loses an epoch at most: the same
    command goes on.
    """
    from randomset._core.torchvision import import_torchvision_first

    import_torchvision_first()
    from randomset.training.report import TrainingStopped
    from reproduction import SCALES, Workshop, exhibit, exhibits
    from reproduction.workshop import time_to_go

    _check_scale(scale, SCALES)
    if seeds is not None and seeds < 1:
        raise RandomSetError("--seeds is out of range", got=seeds, expected="1 or more")
    wanted = exhibits() if id == "all" else [exhibit(id)]
    check_drawing(figures)
    place = folder / scale
    check_writable(place / wanted[0].id / "result.json")
    shop = Workshop(SCALES[scale], place, seeds)
    known = [_shipped(scale, one.id) for one in wanted]
    usual = [outcome.measuring * len(shop.seeds) / outcome.seeds if outcome else 0 for outcome in known]
    try:
        with lock_folder(place):
            configs = [config for one in wanted for config in one.models(shop)]
            shop.check({data for one in wanted for data in one.data}, configs)
            shop.train(configs, then=sum(usual))
            for number, one in enumerate(wanted):
                left = time_to_go(sum(usual[number:]) or None)
                typer.echo(f"{number + 1} of {len(wanted)}: {one.id}, {one.title}{left}")
                outcome = one.run(shop, figures)
                typer.echo("\n" + one.text(outcome) + "\n")
                typer.echo(f"Wrote {place / one.id}.")
    except (TrainingStopped, KeyboardInterrupt) as stop:
        typer.echo("Stopped. The same command goes on from here.", err=True)
        raise typer.Exit(128 + getattr(stop, "signal", 2)) from None


@paper.command("table")
def table(
    id: Annotated[str, typer.Argument(help="such as table-1 or figure-12")],
    scale: _Scale = "cpu",
    folder: _Folder = _PLACE,
) -> None:
    """Print ours beside the paper's: what was made here, else the results that come with the library."""
    from reproduction import SCALES, exhibit

    _check_scale(scale, SCALES)
    one, outcome = exhibit(id), _outcome(folder, scale, id)
    if outcome is None:
        raise FileFormatError(
            "there is no result yet",
            got=f"{id} at scale {scale}",
            remedy=f"First: python -m reproduction run {id} --scale {scale}",
        )
    path = folder / scale / id / "result.json"
    origin = f"from {path}" if path.exists() else "as it comes with the library"
    typer.echo(f"# {one.id}: {one.title}, scale {outcome.scale}, seeds: {outcome.seeds}, {origin}\n")
    typer.echo(one.text(outcome))


@paper.command("page")
def page(
    out: Annotated[Path, typer.Option(help="the file; a folder beside it gets pictures")] = Path("paper.md"),
    scale: _Scale = "cpu",
    folder: _Folder = _PLACE,
) -> None:
    """Write all results as one page of Markdown: ours beside the paper's, commands, durations, verdicts."""
    from reproduction import SCALES, exhibits
    from reproduction.page import write_page

    _check_scale(scale, SCALES)
    found = {one.id: _outcome(folder, scale, one.id) for one in exhibits()}
    outcomes = {id: outcome for id, outcome in found.items() if outcome is not None}
    if not outcomes:
        raise FileFormatError(
            "there is no result yet",
            got=f"scale {scale} in {folder}",
            remedy=f"First: python -m reproduction run all --scale {scale}",
        )
    check_writable(out)
    typer.echo(
        f"Wrote {write_page(out, folder / scale, exhibits(), outcomes)}, with {len(outcomes)} results."
    )


def _check_scale(scale: str, scales: Mapping[str, object]) -> None:
    if scale not in scales:
        raise RandomSetError("unknown scale", got=scale, expected=", ".join(scales))


def _outcome(folder: Path, scale: str, id: str) -> Outcome | None:
    """Return a result of this folder, or one that comes with the library; None if there is none."""
    from reproduction import Outcome

    path = folder / scale / id / "result.json"
    return Outcome.load(path) if path.exists() else _shipped(scale, id)


def _shipped(scale: str, id: str) -> Outcome | None:
    """Return a stored result; None if there is none."""
    from reproduction import Outcome

    kept = Path(__file__).parent / "results" / scale / f"{id}.json"
    return Outcome.load(kept) if kept.exists() else None


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


if __name__ == "__main__":
    main(paper)
