"""The command line: `randomset budget`."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from randomset.errors import FileFormatError, RandomSetError, RandomSetWarning

if TYPE_CHECKING:
    from randomset.budgeting.budgeter import Budgeter

__all__ = ["app", "main"]

app = typer.Typer(
    help="Random-set neural networks: classifiers that know when they do not know.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import randomset

        typer.echo(randomset.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def budget(
    features: Annotated[
        Path,
        typer.Argument(
            metavar="FEATURES.npz", help="an .npz file with `features`, `labels` and, if you like, `classes`"
        ),
    ],
    sets: Annotated[str, typer.Option(help="how many sets beside the singletons, or `auto`")] = "20",
    out: Annotated[Path, typer.Option(help="where to write the budget")] = Path("budget.json"),
    reducer: Annotated[str, typer.Option(help="pca, lda, tsne, umap, autoencoder or none")] = "pca",
    dimensions: Annotated[int, typer.Option(help="how many dimensions the reducer keeps")] = 3,
    coverage: Annotated[float, typer.Option(help="the share of a class inside its ellipsoid")] = 0.95,
    grow: Annotated[bool, typer.Option(help="enlarge the ellipsoids if fewer sets overlap")] = True,
    components: Annotated[int, typer.Option(help="how many Gaussians for each class")] = 1,
    seed: Annotated[int, typer.Option(help="makes the result repeatable")] = 0,
    figures: Annotated[
        Path | None, typer.Option(help="a folder for pictures of clusters and overlaps")
    ] = None,
) -> None:
    """Choose the sets of classes that matter from features, and write them as JSON."""
    num_sets = _number_or_auto(sets)
    from randomset.data.sources import read_arrays

    if not features.is_file():
        raise FileFormatError("the file with features does not exist", got=str(features))
    arrays = read_arrays(features, ("features", "labels", "classes"), needed=("features", "labels"))
    _check_writable(out)
    if figures is not None:
        _check_writable(figures / "clusters.png")
    from randomset.budgeting.budgeter import Budgeter

    budgeter = Budgeter(
        num_sets,
        reducer=reducer,
        dimensions=dimensions,
        coverage=coverage,
        grow=grow,
        components=components,
        classes=arrays.get("classes"),
        seed=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RandomSetWarning)  # the report repeats them
        budgeter.fit(arrays["features"], arrays["labels"])
    typer.echo(budgeter.table(100))
    typer.echo(f"\n{budgeter.report_}")
    budgeter.budget_.save(out)
    typer.echo(f"Wrote {out}.")
    if figures is not None:
        for path in _draw(budgeter, figures):
            typer.echo(f"Wrote {path}.")
    typer.echo(f'Next, in Python: budget = randomset.Budget.load("{out}")')


def main() -> None:
    """Run the command line; a mistake of the user ends with one clear line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows question marks
    try:
        app()
    except RandomSetError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        sys.exit(130)


def _fail(message: str) -> NoReturn:
    typer.echo(f"Error: {message}", err=True)
    sys.exit(2)


def _number_or_auto(sets: str) -> Any:
    if sets == "auto":
        return sets
    try:
        return int(sets)
    except ValueError:
        raise RandomSetError("--sets is neither a number nor auto", got=sets) from None


def _check_writable(path: Path) -> None:
    """Find out before the work whether its result can be kept."""
    if path.is_dir():
        raise FileFormatError(
            "the result would replace a folder", got=str(path), expected="the name of a file"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.parent / f".{path.name}.part"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FileFormatError("the result cannot be written there", got=f"{path}: {error.strerror}") from None


def _draw(budgeter: Budgeter, folder: Path) -> list[Path]:
    from randomset.report.budget_figures import plot_clusters, plot_overlaps

    clusters, overlaps = folder / "clusters.png", folder / "overlaps.png"
    plot_clusters(budgeter).savefig(clusters, dpi=150)
    plot_overlaps(budgeter).savefig(overlaps, dpi=150)
    return [clusters, overlaps]
