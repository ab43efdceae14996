"""`randomset compare`: train and evaluate several methods on the same data, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from randomset._core.files import check_writable, lock_folder
from randomset.cli.checks import (
    check_at_least_one,
    check_drawing,
    class_weights,
    named_sources,
    number_or_auto,
)
from randomset.data.splits import usual_shares
from randomset.errors import RandomSetError
from randomset.evaluation import Evaluation
from randomset.models.ensemble import Ensemble
from randomset.models.storage import classifier_class
from randomset.models.storage import methods as known_methods
from randomset.report.detection_figures import draw_comparison
from randomset.report.evaluation_figures import draw_all
from randomset.report.html import comparison_report, write_report
from randomset.runs import RunStore
from randomset.runs.store import MEASURED, fingerprints
from randomset.training.config import TrainConfig

__all__ = ["compare"]


def compare(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="labelled data, as for `randomset train`")],
    methods: Annotated[
        str, typer.Option(help="names separated by commas, as for `randomset train --method`")
    ] = "rsnn,softmax,ensemble,laplace-bridge,fsvi,epinet",
    ood: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SOURCE", help="data of unknown classes; repeatable")
    ] = None,
    ood_samples: Annotated[int | None, typer.Option(help="maximum number of inputs of each")] = None,
    seeds: Annotated[int, typer.Option(help="number of training runs per method")] = 3,
    out: Annotated[Path, typer.Option(help="a folder for the runs and the table")] = Path("comparison"),
    backbone: Annotated[str, typer.Option(help="as for `randomset train`")] = "auto",
    width: Annotated[int | None, typer.Option(help="as for `randomset train`")] = None,
    sets: Annotated[
        str, typer.Option(help="number of sets besides the singletons, for the random-set network")
    ] = "20",
    reliability: Annotated[str, typer.Option(help="as for `randomset train`")] = "auto",
    members: Annotated[int | None, typer.Option(help="number of networks in an ensemble; default: 5")] = None,
    recipe: Annotated[str, typer.Option(help="fast, fast-head, speed or paper")] = "fast",
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="as for `randomset train`, for random-set networks")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="passes over the data")] = None,
    batch_size: Annotated[int | None, typer.Option(help="samples per step")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="the maximum; default: the recipe's")] = None,
    class_weight: Annotated[
        list[str] | None, typer.Option(metavar="NAME=WEIGHT", help="as for `randomset train`")
    ] = None,
    sampling: Annotated[str | None, typer.Option(help="as for `randomset train`")] = None,
    augment: Annotated[str | None, typer.Option(help="as for `randomset train`")] = None,
    ema: Annotated[float | None, typer.Option(help="as for `randomset train`")] = None,
    keep: Annotated[str, typer.Option(help="as for `randomset train`")] = "last",
    weights: Annotated[str, typer.Option(help="as for `randomset train`")] = "none",
    freeze: Annotated[bool, typer.Option("--freeze", help="train only the heads")] = False,
    mirror: Annotated[bool, typer.Option("--mirror", help="as for `randomset train`")] = False,
    size: Annotated[int | None, typer.Option(help="side in pixels to resize images to")] = None,
    label_column: Annotated[str | None, typer.Option(help="the column of labels in a table")] = None,
    text_column: Annotated[str | None, typer.Option(help="the column of texts in a table")] = None,
    figures: Annotated[bool, typer.Option(help="draw figures")] = True,
) -> None:
    """Compare methods with the same backbone, data, epochs and metrics.

    Runs in --out are not trained or evaluated again; interrupted training is resumed. The table is
    written as Markdown, CSV and JSON; the best value is bold if its lead exceeds the spread over seeds.
    """
    names = _methods(methods)
    check_at_least_one(seeds=seeds, ood_samples=ood_samples)
    check_drawing(figures)
    ensembles = [name for name in names if issubclass(classifier_class(name), Ensemble)]
    if members is not None and not ensembles:
        raise RandomSetError("--members is for ensembles, and --methods names none", got=methods)
    unknown = named_sources(ood or [])
    check_writable(out / "comparison.md")
    paths = TrainConfig(source=source, backbone=backbone, weights=weights).located()
    settings: dict[str, Any] = dict(
        source=paths.source, backbone=paths.backbone, num_sets=number_or_auto(sets), recipe=recipe,
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate,
        class_weight=class_weights(class_weight), sampling=sampling, augment=augment, ema=ema, keep=keep,
        width=width, weights=paths.weights, freeze=freeze, mirror=mirror, size=size,
        label_column=label_column, text_column=text_column, **usual_shares(paths.source),
    )  # fmt: skip

    def configs_of(names: list[str]) -> list[TrainConfig]:
        def config(name: str, seed: int) -> TrainConfig:
            cls = classifier_class(name)
            return TrainConfig(
                method=name,
                seed=seed,
                from_scratch=from_scratch and cls.chooses_sets,
                reliability=reliability if cls.bounded else "auto",
                members=members if issubclass(cls, Ensemble) else None,
                **settings,
            )

        return [config(name, seed) for seed in range(seeds) for name in names]

    store, configs = RunStore(out), [config.checked() for config in configs_of(names)]
    store.check_same(configs)
    contents = fingerprints(configs[0], unknown)
    store.check_same(configs, contents[""])
    if stored := [name for name in store.complete_methods(seeds) if name not in names]:
        store.check_same(configs_of(stored))
        typer.echo(f"Also in the table, since {out} has them: {', '.join(stored)}.")
        names += stored
    with lock_folder(out):
        try:
            store.train(configs)
            comparison = store.compare(
                configs_of(names),
                contents=contents,
                ood=unknown,
                ood_samples=ood_samples,
                draw=draw_all if figures else None,
            )
        except KeyboardInterrupt as stop:  # also when training was stopped by another signal
            typer.echo("Stopped. Repeat the command to continue.", err=True)
            raise typer.Exit(128 + getattr(stop, "signal", 2)) from None
        typer.echo("\n" + comparison.to_text())
        files = comparison.save(out)
        if figures:
            folders = {name: out / name / "seed-0" / MEASURED for name in names}
            files += draw_comparison(folders, out / "figures") if unknown else []
            first = {name: Evaluation.load(folder) for name, folder in folders.items()}
            title = f"{len(names)} methods on {source}"
            about = {"seeds": seeds, "ood": unknown, "ood_samples": ood_samples, "config": settings}
            text = comparison_report(comparison, first, title=title, settings=about)
            files.append(write_report(text, out / "report.html"))
        for path in files:
            typer.echo(f"Wrote {path}.")


def _methods(text: str) -> list[str]:
    """Parse the value of --methods."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known_methods()]:
        raise RandomSetError(
            "unknown method in --methods", got=unknown[0], expected=f"some of {', '.join(known_methods())}"
        )
    if not names:
        raise RandomSetError("--methods is empty", expected=f"some of {', '.join(known_methods())}")
    if len(set(names)) != len(names):
        raise RandomSetError("--methods repeats a name", got=text)
    return names
