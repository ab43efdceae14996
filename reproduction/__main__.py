"""`python -m reproduction`: reproduce the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from randomset._core.files import check_writable, lock_folder
from randomset._core.torchvision import import_torchvision_first
from randomset.cli import main
from randomset.cli.checks import check_drawing
from randomset.errors import FileFormatError, RandomSetError
from randomset.training.resuming import TrainingStopped
from reproduction import SCALES, Outcome, Workshop, exhibit, exhibits
from reproduction.page import write_page
from reproduction.workshop import time_to_go

__all__ = ["app"]

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    help="Reproduce the paper's tables and figures, one command each.",
)

_Folder = Annotated[Path, typer.Option("--folder", help="folder for models and results")]
_Scale = Annotated[str, typer.Option(help="tiny (seconds), cpu (a desktop) or full (the paper's, on a GPU)")]
_FOLDER = Path("paper")


@app.callback()
def show(context: typer.Context, folder: _Folder = _FOLDER) -> None:
    """List all tables and figures with the data they need, their run times and the available results."""
    if context.invoked_subcommand is not None:  # which takes the folder as its default
        context.default_map = {context.invoked_subcommand: {"folder": str(folder)}}
        return
    listed, full = exhibits(), Workshop(SCALES["full"], folder / "full")
    title_width, id_width = max(len(item.title) for item in listed), max(len(item.id) for item in listed)
    for item in listed:
        local = [scale for scale in SCALES if (folder / scale / item.id / "result.json").exists()]
        outcomes = {scale: _outcome(folder, scale, item.id) for scale in SCALES}
        times = [f"{scale} {_time(outcome.seconds)}" for scale, outcome in outcomes.items() if outcome]
        if "full" not in local and item.data:
            times.append(f"full {item.gpu_hours(full):.0f} h on a GPU")
        stored = [scale for scale in SCALES if scale not in local and outcomes[scale]]
        results = f"results: {', '.join(local)}" if local else "no results"
        results += f", stored results: {', '.join(stored)}" * bool(stored)
        parts = (f"needs {', '.join(item.data) or 'no data'}", ", ".join(times), results)
        details = "; ".join(part for part in parts if part)
        typer.echo(f"{item.id:{id_width}}  {item.title:{title_width}}  {details}")
    typer.echo("Times include training and measurement; models that are already trained are reused.")
    typer.echo("Times at full are estimated from the paper's Table 6. Scale tiny takes seconds.")
    typer.echo("Next: python -m reproduction run ID --scale tiny|cpu|full, or run all")


@app.command("run")
def run(
    id: Annotated[str, typer.Argument(help="a table or figure, such as table-1 or figure-12, or all")],
    scale: _Scale = "cpu",
    seeds: Annotated[int | None, typer.Option(help="number of seeds; default: that of the scale")] = None,
    figures: Annotated[bool, typer.Option(help="draw figures")] = True,
    folder: _Folder = _FOLDER,
) -> None:
    """Train and measure what a table or figure needs, and write it beside the paper's values.

    Existing models and measurements are reused. After an interruption, repeat the command to resume; at
    most one epoch is lost.
    """
    import_torchvision_first()
    _check_scale(scale)
    if seeds is not None and seeds < 1:
        raise RandomSetError("--seeds is out of range", got=seeds, expected="1 or more")
    selected = exhibits() if id == "all" else [exhibit(id)]
    check_drawing(figures)
    place = folder / scale
    check_writable(place / selected[0].id / "result.json")
    shop = Workshop(SCALES[scale], place, seeds)
    stored = [_stored(scale, item.id) for item in selected]
    expected = [outcome.measuring * len(shop.seeds) / outcome.seeds if outcome else 0 for outcome in stored]
    try:
        with lock_folder(place):
            configs = [config for item in selected for config in item.models(shop)]
            shop.check({data for item in selected for data in item.data}, configs)
            shop.train(configs, then=sum(expected))
            for index, item in enumerate(selected):
                remaining = time_to_go(sum(expected[index:]) or None)
                typer.echo(f"{index + 1} of {len(selected)}: {item.id}, {item.title}{remaining}")
                outcome = item.run(shop, figures)
                typer.echo("\n" + item.text(outcome) + "\n")
                typer.echo(f"Wrote {place / item.id}.")
    except (TrainingStopped, KeyboardInterrupt) as stop:
        typer.echo("Stopped. Repeat the command to resume.", err=True)
        raise typer.Exit(128 + getattr(stop, "signal", 2)) from None


@app.command("table")
def table(
    id: Annotated[str, typer.Argument(help="a table or figure, such as table-1 or figure-12")],
    scale: _Scale = "cpu",
    folder: _Folder = _FOLDER,
) -> None:
    """Print a result beside the paper's values: your own if there is one, else the stored one."""
    _check_scale(scale)
    item, outcome = exhibit(id), _outcome(folder, scale, id)
    if outcome is None:
        raise FileFormatError(
            "no result found",
            got=f"{id} at scale {scale}",
            remedy=f"First: python -m reproduction run {id} --scale {scale}",
        )
    path = folder / scale / id / "result.json"
    origin = f"from {path}" if path.exists() else "stored result"
    typer.echo(f"# {item.id}: {item.title}, scale {outcome.scale}, seeds: {outcome.seeds}, {origin}\n")
    typer.echo(item.text(outcome))


@app.command("page")
def page(
    out: Annotated[
        Path, typer.Option(help="Markdown file to write; figures go into a folder of the same name")
    ] = Path("paper.md"),
    scale: _Scale = "cpu",
    folder: _Folder = _FOLDER,
) -> None:
    """Write all results to one Markdown page, with commands, run times and conclusions."""
    _check_scale(scale)
    loaded = {item.id: _outcome(folder, scale, item.id) for item in exhibits()}
    outcomes = {id: outcome for id, outcome in loaded.items() if outcome is not None}
    if not outcomes:
        raise FileFormatError(
            "no result found",
            got=f"scale {scale} in {folder}",
            remedy=f"First: python -m reproduction run all --scale {scale}",
        )
    check_writable(out)
    path = write_page(out, folder / scale, exhibits(), outcomes)
    typer.echo(f"Wrote {path}, with {len(outcomes)} results.")


def _check_scale(scale: str) -> None:
    if scale not in SCALES:
        raise RandomSetError("unknown scale", got=scale, expected=", ".join(SCALES))


def _outcome(folder: Path, scale: str, id: str) -> Outcome | None:
    """Load the result in a folder, else the stored one; None if there is neither."""
    path = folder / scale / id / "result.json"
    return Outcome.load(path) if path.exists() else _stored(scale, id)


def _stored(scale: str, id: str) -> Outcome | None:
    """Load the result that comes with this program, None if there is none."""
    path = Path(__file__).parent / "results" / scale / f"{id}.json"
    return Outcome.load(path) if path.exists() else None


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


if __name__ == "__main__":
    main(app)
