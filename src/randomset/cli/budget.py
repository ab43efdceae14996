"""`randomset budget`: choose the sets of classes from features."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from randomset._core.files import check_writable, replacing
from randomset.cli.checks import number_or_auto
from randomset.data.arrays import read_arrays
from randomset.errors import FileFormatError, RandomSetWarning
from randomset.report.budget_figures import plot_clusters, plot_overlaps

if TYPE_CHECKING:
    from randomset.budgeting.budgeter import Budgeter

__all__ = ["budget"]


def budget(
    features: Annotated[
        Path,
        typer.Argument(
            metavar="FEATURES.npz", help="an .npz file with `features`, `labels` and, optionally, `classes`"
        ),
    ],
    sets: Annotated[str, typer.Option(help="number of sets besides the singletons, or `auto`")] = "20",
    out: Annotated[Path, typer.Option(help="where to write the budget")] = Path("budget.json"),
    reducer: Annotated[str, typer.Option(help="pca, lda, tsne, umap, autoencoder or none")] = "pca",
    dimensions: Annotated[int, typer.Option(help="number of dimensions that the reducer keeps")] = 3,
    coverage: Annotated[float, typer.Option(help="share of a class inside its ellipsoid")] = 0.95,
    grow: Annotated[bool, typer.Option(help="enlarge the ellipsoids if too few sets overlap")] = True,
    components: Annotated[int, typer.Option(help="number of Gaussians per class")] = 1,
    seed: Annotated[int, typer.Option(help="seed of all random numbers")] = 0,
    figures: Annotated[
        Path | None, typer.Option(help="a folder for figures of clusters and overlaps")
    ] = None,
) -> None:
    """Choose from features which sets of classes matter, and write them as JSON."""
    num_sets = number_or_auto(sets)
    if not features.is_file():
        raise FileFormatError("the file with features does not exist", got=str(features))
    arrays = read_arrays(features, ("features", "labels", "classes"), needed=("features", "labels"))
    check_writable(out)
    if figures is not None:
        check_writable(figures / "clusters.png")
    from randomset.budgeting.budgeter import Budgeter  # imports scikit-learn

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


def _draw(budgeter: Budgeter, folder: Path) -> list[Path]:
    clusters, overlaps = folder / "clusters.png", folder / "overlaps.png"
    for path, figure in ((clusters, plot_clusters(budgeter)), (overlaps, plot_overlaps(budgeter))):
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, format="png")
    return [clusters, overlaps]
