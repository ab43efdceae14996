"""`randomset compare`: several methods on the same data, trained where they are missing, in one table."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from randomset.belief.storage import read_document, write_document
from randomset.budgeting.inputs import is_number
from randomset.cli.checks import as_place, check_drawing, number_or_auto
from randomset.cli.voice import aloud
from randomset.errors import FileFormatError, RandomSetError, ShapeError
from randomset.folders import alone_in, check_writable

if TYPE_CHECKING:
    from randomset.training.method import MethodConfig

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
    if not names or len(set(names)) != len(names):
        raise RandomSetError("--methods are not different methods", got=methods)
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
    runs = [
        (MethodConfig(method=name, seed=seed, **settings).checked(), out / name / f"seed-{seed}")
        for seed in range(seeds)
        for name in names
    ]
    for config, run in runs:
        _check_same(run, config)
    marks = _contents(runs[0][0], unknown)
    if size is None and weights == "none" and not backbone.startswith("hf:"):
        for _, run in runs:  # of tokens and resized images a run has marks of its own, and checks them itself
            _check_data(run, marks[""])
    others = [name for name in METHODS if name not in names and _is_whole(out / name, seeds)]
    for name in others:
        _check_same(out / name / "seed-0", MethodConfig(method=name, **settings))
    if others:
        typer.echo(f"Also in the table, since {out} has them: {', '.join(others)}.")
        names += others
    with alone_in(out):
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
                with alone_in(run):
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
                times = _timed(models, out / f"timing-{seed}.json")
                for name, run in models.items():
                    results[name].append(_measured(run, mark, figures))
                    costs[name].append({**_costs(run), "milliseconds": times[name]})
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
_MARK, _TIMES = "randomset.measured", "randomset.times"
MEASURED = "comparison"
"""The folder of a run with what was measured for the table; `randomset evaluate` writes elsewhere."""


def _check_same(run: Path, config: MethodConfig) -> None:
    """Refuse to mix runs of other settings into a comparison."""
    from randomset.training.method import MethodConfig

    if not (run / "config.json").exists():
        return
    stored, wanted = (dataclasses.asdict(each) for each in (MethodConfig.load(run), config))
    if config.backbone == "auto":
        wanted["backbone"] = stored["backbone"]
    if config.weights != "none" and config.size is None:
        wanted["size"] = stored["size"]  # what the weights are used to
    other = [
        f"{name} {stored[name]} instead of {wanted[name]}" for name in wanted if stored[name] != wanted[name]
    ]
    if other:
        raise FileFormatError(
            "the folder holds a run with other settings",
            got=f"{run}: {', '.join(other)}",
            remedy="Choose another folder with --out, or the settings of before",
        )


def _check_data(run: Path, mark: str) -> None:
    """Refuse to go on with runs of other data, before anything is trained."""
    try:
        contents = json.loads((run / "split.json").read_text(encoding="utf-8")).get("contents")
    except (OSError, ValueError, AttributeError, RecursionError):
        return  # there is none yet, or its reader will say what is wrong
    if contents not in (None, mark):
        raise FileFormatError(
            "the data are others than those of a run in the folder",
            got=str(run),
            remedy="Bring the old data back, or choose another folder with --out",
        )


def _is_whole(folder: Path, seeds: int) -> bool:
    """Say whether a method was trained with every seed."""
    return all((folder / f"seed-{seed}" / "test.json").exists() for seed in range(seeds))


def _contents(config: MethodConfig, unknown: dict[str, str]) -> dict[str, str]:
    """Load all data once before the work, so that what cannot be used is said now; return their marks."""
    from randomset.data.sources import load_source
    from randomset.data.splits import fingerprint

    columns: dict[str, Any] = {"label": config.label_column, "text": config.text_column}
    size = None if config.size is None else (config.size, config.size)
    data = load_source(config.source, size=size, **columns)
    if data.labels.dim() > 1:
        raise RandomSetError(
            "methods are compared on data with one class for each sample",
            got=f"set-valued labels of {data.name}",
            remedy="randomset train takes them",
        )
    marks = {"": fingerprint(data)}
    for name, source in unknown.items():
        if name in ("test", "validation", "calibration"):
            raise RandomSetError("this name means something else", got=f"--ood {name}=…", expected="another")
        if as_place(source) == config.source and config.test:
            raise RandomSetError("the known data cannot be the unknown ones", got=f"--ood {name}={source}")
        more: dict[str, Any] = {"columns": data.columns} if data.kind == "features" else {}
        other = load_source(source, "test", labelled=False, size=size, **columns, **more)
        alike = other.kind == data.kind
        if alike and data.kind == "features":
            alike = other.inputs.shape[1:] == data.inputs.shape[1:]
        if not alike:
            raise ShapeError(
                "the unknown data are of another kind than the known ones",
                got=repr(other),
                expected=f"what {data!r} holds",
            )
        marks[name] = fingerprint(other)
    return marks


def _measured(run: Path, mark: dict[str, Any], figures: bool) -> Any:
    """Return the numbers of a run; measure it if it was not, or if anything is not as it was then."""
    from randomset.cli.evaluate import evaluate_run
    from randomset.evaluation.result import Evaluation

    folder = run / MEASURED
    mark = {"format": _MARK, "version": 1, **mark, "model": _digest(run), "figures": figures}
    try:
        kept = read_document(folder / "measured.json", _MARK, 1, "what was measured")
        if {**kept, "figures": kept["figures"] or not figures} == {**mark, "figures": True}:
            numbers = Evaluation.load(folder).numbers
            if set(numbers["ood"]) == set(mark["ood"]) and "test" in numbers:
                return numbers
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # FileFormatError is a ValueError
        pass
    typer.echo(f"Measuring {run} …")
    result = evaluate_run(
        run,
        ood=mark["ood"],
        ood_samples=mark["ood_samples"],
        seed=mark["seed"],
        sweeps=False,
        timing=False,
        figures=figures,
        quiet=True,
        out=folder,
    )
    write_document(mark, folder / "measured.json", _MARK, 1)
    return result.numbers


def _costs(run: Path) -> dict[str, float]:
    from randomset.training.rival_storage import load_model

    model = load_model(run)
    count = float(sum(p.numel() for p in model.parameters()))
    seconds = model.notes.get("seconds")
    return {"parameters": count} | ({} if seconds is None else {"seconds": float(seconds)})


def _digest(run: Path) -> str:
    try:
        return hashlib.blake2b((run / "model.safetensors").read_bytes(), digest_size=8).hexdigest()
    except OSError:
        raise FileFormatError(
            "a run has lost its model",
            got=str(run),
            remedy="Delete the folder: the same command trains it anew",
        ) from None


def _timed(runs: dict[str, Path], path: Path) -> dict[str, float]:
    """Time one prediction of every model, in turns, unless these very models were timed before."""
    import torch

    from randomset.evaluation.timing import in_turns
    from randomset.training.rival_storage import load_model

    marks = {name: _digest(run) for name, run in runs.items()}
    try:
        kept = read_document(path, _TIMES, 1, "the times")
        if kept["models"] == marks and all(is_number(kept["milliseconds"][name]) for name in runs):
            return {name: float(kept["milliseconds"][name]) for name in runs}
    except (FileFormatError, KeyError, TypeError):
        pass
    models = {name: load_model(run) for name, run in runs.items()}
    notes = next(iter(models.values())).notes
    one = torch.rand(1, *notes["input_shape"])
    if notes.get("tokens"):  # a text of a few words, filled up
        one = torch.full(one.shape, -1)
        one[:, :8] = 1
    found = in_turns(models, one)
    write_document({"models": marks, "milliseconds": found}, path, _TIMES, 1)
    return found
