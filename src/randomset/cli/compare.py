"""`randomset compare`: several methods on the same data, trained where they are missing, in one table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from randomset._core.files import check_writable
from randomset._core.locks import lock_folder
from randomset.cli.checks import as_place, check_drawing, number_or_auto
from randomset.cli.comparable import check_data, check_same, contents_of, is_whole
from randomset.cli.measuring import MEASURED, costs_of, measured, timed
from randomset.cli.voice import aloud
from randomset.errors import FileFormatError, RandomSetError

__all__ = ["compare"]


def compare(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="labelled data, as for `randomset train`")],
    methods: Annotated[
        str, typer.Option(help="names separated by commas, as for `randomset train --method`")
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
    sets: Annotated[str, typer.Option(help="sets of the random-set network beside the singletons")] = "20",
    recipe: Annotated[str, typer.Option(help="fast, fast-head or paper")] = "fast",
    from_first: Annotated[
        bool, typer.Option("--from-first", help="start the random-set network as `randomset train` would")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="how often the data are seen")] = None,
    batch_size: Annotated[int | None, typer.Option(help="samples in one step")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="the highest one; else the recipe's")] = None,
    weights: Annotated[str, typer.Option(help="as for `randomset train`")] = "none",
    freeze: Annotated[bool, typer.Option("--freeze", help="train the heads alone")] = False,
    size: Annotated[int | None, typer.Option(help="side in pixels that images are brought to")] = None,
    label_column: Annotated[str | None, typer.Option(help="the column of labels in a table")] = None,
    text_column: Annotated[str | None, typer.Option(help="the column of texts in a table")] = None,
    figures: Annotated[bool, typer.Option(help="draw figures")] = True,
) -> None:
    """Compare methods: the same backbone, data, epochs and measures for each.

    What is trained and measured already in --out is used again; what was interrupted goes on. The table is
    written as Markdown, CSV and JSON; the best is bold where it leads by more than the spread over seeds.
    """
    from randomset.cli.evaluate import named_sources
    from randomset.data.splits import usual_shares
    from randomset.evaluation.comparison import Comparison
    from randomset.runs.making import train_run
    from randomset.training.method import METHODS, MethodConfig
    from randomset.training.report import TrainingStopped

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if strange := [name for name in names if name not in METHODS]:
        raise RandomSetError(
            "--methods has an unknown one", got=strange[0], expected=f"some of {', '.join(METHODS)}"
        )
    if not names:
        raise RandomSetError("--methods names none", expected=f"some of {', '.join(METHODS)}")
    if len(set(names)) != len(names):
        raise RandomSetError("--methods names one twice", got=methods)
    for option, value in (("--seeds", seeds), ("--ood-samples", 1 if ood_samples is None else ood_samples)):
        if value < 1:
            raise RandomSetError(f"{option} is out of range", got=value, expected="1 or more")
    check_drawing(figures)
    unknown = named_sources(ood or [])
    check_writable(out / "comparison.md")
    place = as_place(source)
    settings: dict[str, Any] = {
        **{"source": place, "backbone": backbone, "num_sets": number_or_auto(sets), "recipe": recipe},
        **{"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "width": width},
        **{"weights": as_place(weights), "freeze": freeze, "size": size, "label_column": label_column},
        **{"text_column": text_column, **usual_shares(place)},
    }

    def config_of(name: str, seed: int = 0) -> MethodConfig:
        return MethodConfig(method=name, seed=seed, from_first=from_first and name == "rsnn", **settings)

    runs = [
        (config_of(name, seed).checked(), out / name / f"seed-{seed}")
        for seed in range(seeds)
        for name in names
    ]
    for config, run in runs:
        check_same(run, config)
    marks = contents_of(runs[0][0], unknown)
    if size is None and weights == "none" and not backbone.startswith("hf:"):
        for _, run in runs:  # of tokens and resized images a run has marks of its own, and checks them itself
            check_data(run, marks[""])
    others = [name for name in METHODS if name not in names and is_whole(out / name, seeds)]
    for name in others:
        check_same(out / name / "seed-0", config_of(name))
    if others:
        typer.echo(f"Also in the table, since {out} has them: {', '.join(others)}.")
        names += others
    with lock_folder(out):
        started, trained = time.perf_counter(), 0
        for number, (config, run) in enumerate(runs):
            if (run / "test.json").exists():
                continue
            left = sum(not (other / "test.json").exists() for _, other in runs[number:])
            spent = time.perf_counter() - started
            guess = f", {max(1, round(spent / trained * left / 60))} min to go" if trained else ""
            typer.echo(f"{number + 1} of {len(runs)}: {config.method}, seed {config.seed}{guess}")
            base = out / "softmax" / f"seed-{config.seed}"
            built = config.method in ("temperature", "laplace-bridge") and (base / "test.json").exists()
            built = built and not config.freeze  # heads are trained on features, and in seconds
            try:
                with lock_folder(run):
                    resume = (run / "config.json").exists()
                    train_run(config, run, resume=resume, base=base if built else None, **aloud())
            except TrainingStopped as stop:
                typer.echo(_STOPPED, err=True)
                raise typer.Exit(128 + stop.signal) from None
            except KeyboardInterrupt:
                typer.echo(_STOPPED, err=True)
                raise typer.Exit(130) from None
            except FileFormatError as error:
                if not (run / "checkpoints").exists():
                    raise
                raise FileFormatError(f"{error}. To train it anew, delete {run}") from None
            trained += 1
        results: dict[str, list[Any]] = {name: [] for name in names}
        costs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        try:
            for seed in range(seeds):
                mark = {"contents": marks, "ood": unknown, "ood_samples": ood_samples, "seed": seed}
                models = {name: out / name / f"seed-{seed}" for name in names}
                times = timed(models, out / f"timing-{seed}.json")
                for name, run in models.items():
                    results[name].append(measured(run, mark, figures))
                    costs[name].append({**costs_of(run), "milliseconds": times[name]})
        except KeyboardInterrupt:
            typer.echo(_STOPPED, err=True)
            raise typer.Exit(130) from None
        comparison = Comparison(results, costs)
        typer.echo("\n" + comparison.to_text())
        for path in comparison.save(out):
            typer.echo(f"Wrote {path}.")
        if figures and unknown:
            from randomset.report.comparison_figures import draw_comparison

            folders = {name: out / name / "seed-0" / MEASURED for name in names}
            for path in draw_comparison(folders, out / "figures"):
                typer.echo(f"Wrote {path}.")
        if figures:
            from randomset.evaluation import Evaluation
            from randomset.report.html import comparison_report, write_report

            first = {name: Evaluation.load(out / name / "seed-0" / MEASURED) for name in names}
            title = f"{len(names)} methods on {source}"
            about = {"seeds": seeds, "ood": unknown, "ood_samples": ood_samples, "config": settings}
            text = comparison_report(comparison, first, title=title, settings=about)
            typer.echo(f"Wrote {write_report(text, out / 'report.html')}.")


_STOPPED = "Stopped. The same command goes on from here."
