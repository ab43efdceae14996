"""`randomset compare`: several methods on the same data, trained where they are missing, in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from randomset.cli.checks import check_seed, check_writable
from randomset.errors import FileFormatError, RandomSetError

if TYPE_CHECKING:
    from randomset.training.method import MethodConfig

__all__ = ["compare"]


def compare(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="labelled data, as for `randomset train`")],
    methods: Annotated[
        str, typer.Option(help="names behind commas, as for `randomset train --method`")
    ] = "rsnn,softmax,ensemble,laplace-bridge,fsvi,epinet",
    ood: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SOURCE", help="data of no class that is known; repeatable"),
    ] = None,
    ood_samples: Annotated[int | None, typer.Option(help="use at most so many of each")] = None,
    seeds: Annotated[int, typer.Option(help="how often each method is trained")] = 3,
    out: Annotated[Path, typer.Option(help="a folder for the runs and the table")] = Path("comparison"),
    backbone: Annotated[str, typer.Option(help="as for `randomset train`")] = "auto",
    width: Annotated[int | None, typer.Option(help="as for `randomset train`")] = None,
    sets: Annotated[int, typer.Option(help="sets of the random-set network beside the singletons")] = 20,
    recipe: Annotated[str, typer.Option(help="fast or paper")] = "fast",
    epochs: Annotated[int | None, typer.Option(help="how often the data are seen")] = None,
    batch_size: Annotated[int | None, typer.Option(help="samples in one step")] = None,
    figures: Annotated[bool, typer.Option(help="draw figures")] = True,
) -> None:
    """Compare methods: the same backbone, data, epochs and measures for each.

    What is trained and measured already in --out is used again; what was interrupted goes on. The table is
    written as Markdown, CSV and JSON; the best is bold where it leads by more than the spread over seeds.
    """
    from randomset.cli.evaluate import evaluate_run, named_sources
    from randomset.cli.running import train_run
    from randomset.data.splits import usual_shares
    from randomset.evaluation.comparison import Comparison
    from randomset.progress import progress_bar
    from randomset.training.method import METHODS, MethodConfig
    from randomset.training.report import TrainingStopped

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names or len(set(names)) != len(names) or not set(names) <= set(METHODS):
        raise RandomSetError(
            "--methods are not different methods", got=methods, expected=f"some of {', '.join(METHODS)}"
        )
    if seeds < 1:
        raise RandomSetError("--seeds is out of range", got=seeds, expected="1 or more")
    check_seed(seeds)
    unknown = named_sources(ood or [])
    check_writable(out / "comparison.md")
    place = str(Path(source).resolve()) if Path(source).exists() else source
    settings: dict[str, Any] = {
        **{"source": place, "backbone": backbone, "num_sets": sets, "recipe": recipe, "epochs": epochs},
        **{"batch_size": batch_size, "width": width, **usual_shares(place)},
    }
    results: dict[str, list[Any]] = {name: [] for name in names}
    costs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with progress_bar("comparing", len(names) * seeds) as advance:
        for seed in range(seeds):
            for name in names:
                run = out / name / f"seed-{seed}"
                config = MethodConfig(method=name, seed=seed, **settings).checked()
                _check_same(run, config)
                if not (run / "test.json").exists():
                    typer.echo(f"{name}, seed {seed}:")
                    try:
                        train_run(config, run, resume=(run / "config.json").exists())
                    except TrainingStopped as stop:
                        typer.echo("Stopped. The same command goes on from here.", err=True)
                        raise typer.Exit(128 + stop.signal) from None
                wanted = {"ood": unknown, "ood_samples": ood_samples}
                results[name].append(_measured(run, wanted, evaluate_run, seed, figures))
                costs[name].append(_costs(run))
                advance(1)
    comparison = Comparison(results, costs)
    typer.echo("\n" + comparison.to_markdown())
    for path in comparison.save(out):
        typer.echo(f"Wrote {path}.")
    if figures and unknown:
        from randomset.report.comparison_figures import draw_comparison

        for path in draw_comparison({name: out / name / "seed-0" for name in names}, out / "figures"):
            typer.echo(f"Wrote {path}.")


def _check_same(run: Path, config: MethodConfig) -> None:
    """Refuse to mix runs of other settings into a comparison."""
    from randomset.training.method import MethodConfig

    if not (run / "config.json").exists():
        return
    stored = MethodConfig.load(run)
    names = ("source", "width", "num_sets", "recipe", "epochs", "batch_size", "seed", "method")
    other = [name for name in names if getattr(stored, name) != getattr(config, name)]
    if config.backbone not in ("auto", stored.backbone):
        other.append("backbone")
    if other:
        raise FileFormatError(
            "the folder holds a run with other settings",
            got=f"{run}: {', '.join(f'{name} {getattr(stored, name)}' for name in other)}",
            remedy="Choose another folder with --out, or the settings of before",
        )


def _measured(run: Path, wanted: dict[str, Any], evaluate_run: Any, seed: int, figures: bool) -> Any:
    """Return the numbers of a run; measure it if it was not, or on other unknown data."""
    mark, place = {**wanted, "seed": seed}, run / "compared.json"
    try:
        if json.loads(place.read_text(encoding="utf-8")) == mark:
            return json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        pass
    result = evaluate_run(
        run, ood=wanted["ood"], ood_samples=wanted["ood_samples"], sweeps=False, figures=figures, seed=seed
    )
    place.write_text(json.dumps(mark) + "\n", encoding="utf-8")
    return result.numbers


def _costs(run: Path) -> dict[str, float]:
    from randomset.training.rival_storage import load_model

    model = load_model(run)
    count = float(sum(p.numel() for p in model.parameters()))
    seconds = model.notes.get("seconds")
    return {"parameters": count} | ({} if seconds is None else {"seconds": float(seconds)})
