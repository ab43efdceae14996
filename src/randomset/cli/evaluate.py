"""`randomset evaluate`: a run folder and data in; numbers, tables and figures out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from randomset._core.checks import is_number
from randomset._core.files import check_version
from randomset._core.locks import lock_folder
from randomset.cli.checks import check_drawing, check_seed
from randomset.cli.voice import aside
from randomset.errors import RandomSetError
from randomset.runs.inputs import TOKENIZER, NetworkInputs, as_measured, few, own_data

if TYPE_CHECKING:
    from randomset.data.sources import Source
    from randomset.evaluation.result import Evaluation

__all__ = ["evaluate", "evaluate_run", "named_sources", "write_report_of"]


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder of a trained network")],
    test: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="labelled data to test on; else what the run held back"),
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SOURCE", help="data of no class that the network knows; repeatable"),
    ] = None,
    ood_samples: Annotated[
        int | None, typer.Option(help="use at most so many of each, drawn by the seed (the paper: 10000)")
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="data to choose the threshold on; else the run's"),
    ] = None,
    keep: Annotated[float, typer.Option(help="the share of known inputs that the threshold keeps")] = 0.95,
    score: Annotated[str, typer.Option(help="the uncertainty that the threshold is on")] = "entropy",
    alpha: Annotated[float, typer.Option(help="how often a conformal set may miss the true class")] = 0.05,
    sweeps: Annotated[bool, typer.Option(help="measure images with noise, and turned")] = True,
    attacks: Annotated[bool, typer.Option(help="measure adversarial images (takes long)")] = False,
    autoattack: Annotated[
        float | None, typer.Option(help="run AutoAttack with this ε, too (takes very long)")
    ] = None,
    samples: Annotated[int, typer.Option(help="test inputs for noise, rotation and attacks")] = 1000,
    timing: Annotated[bool, typer.Option(help="measure how long predictions take")] = True,
    figures: Annotated[bool, typer.Option(help="draw figures")] = True,
    strict: Annotated[bool, typer.Option("--strict", help="stop at an image that cannot be read")] = False,
    batch_size: Annotated[int, typer.Option(help="inputs that go through the network at once")] = 256,
    devices: Annotated[int, typer.Option(help="processes that predict at the same time")] = 1,
    seed: Annotated[int, typer.Option(help="makes the result repeatable")] = 0,
    out: Annotated[Path | None, typer.Option(help="a folder for the results; else the run folder")] = None,
) -> None:
    """Measure a trained network: accuracy, calibration, unknown inputs, conformal sets, robustness.

    Writes evaluation.json, evaluation.md, scores.npz and figures/, and stores the threshold that tells known
    inputs from unknown ones beside them: without --out in the run, for `randomset predict`.
    """
    numbers = {"--samples": samples, "--batch-size": batch_size, "--devices": devices}
    numbers["--ood-samples"] = 1 if ood_samples is None else ood_samples
    for name, value in numbers.items():
        if value < 1:
            raise RandomSetError(f"{name} is out of range", got=value, expected="1 or more")
    check_seed(seed)
    evaluate_run(
        run,
        test=test,
        ood=named_sources(ood or []),
        ood_samples=ood_samples,
        validation=validation,
        sweeps=sweeps,
        attacks=attacks,
        autoattack=autoattack,
        timing=timing,
        figures=figures,
        strict=strict,
        out=out,
        seed=seed,
        devices=devices,
        keep=keep,
        score=score,
        alpha=alpha,
        samples=samples,
        batch_size=batch_size,
    )
    typer.echo(f"Next: randomset predict {run} INPUT")


def evaluate_run(
    run: Path,
    *,
    test: str | None = None,
    ood: dict[str, str] | None = None,
    ood_samples: int | None = None,
    validation: str | None = None,
    sweeps: bool = True,
    attacks: bool = False,
    autoattack: float | None = None,
    timing: bool = True,
    figures: bool = True,
    strict: bool = False,
    out: Path | None = None,
    seed: int = 0,
    devices: int = 1,
    quiet: bool = False,
    **options: Any,
) -> Evaluation:
    """Measure what is in a run folder, write everything, say the most important; options go to `evaluate`."""
    from randomset.evaluation import Threshold
    from randomset.evaluation import evaluate as measure
    from randomset.evaluation.robustness import EPSILONS
    from randomset.evaluation.sweeps import NOISE, ROTATION
    from randomset.training.rival_storage import load_model

    check_drawing(figures)
    unknown, folder = ood or {}, run if out is None else out
    network = load_model(run)
    with lock_folder(folder):
        load = NetworkInputs(network, run, strict)
        tested, held, calibrating = own_data(run, load, test, validation, aside)
        others = {
            name: few(load(source, labelled=False), ood_samples, seed) for name, source in unknown.items()
        }
        images = tested.kind == "images" and _are_pixels(tested)
        if sweeps and tested.kind == "images" and not images:
            typer.echo("The images are not in the range of pixels: no noise and rotation.")
        result = measure(
            network,
            tested,
            others,
            validation=held,
            calibration=calibrating,
            classes=network.notes.get("classes"),
            threshold=Threshold.load(run) if held is None else None,
            noise=NOISE if sweeps and images else (),
            rotation=ROTATION if sweeps and images else (),
            attacks=EPSILONS if attacks else (),
            autoattack=() if autoattack is None else (autoattack,),
            timing=timing and devices == 1,
            devices=devices,
            seed=seed,
            **options,
        )
        result.numbers["run"] = {
            "folder": str(run),
            "test": tested.name,
            "test_source": test,
            "ood": unknown,
            "ood_samples": ood_samples,
            "seed": seed,
            "config": load.config,
        }
        if not quiet:
            for remark in result["remarks"]:
                typer.echo(f"{remark}.")
            typer.echo(result.summary)
        written = result.save(folder)
        if held is not None:
            found = result["threshold"]
            written.append(Threshold(found["score"], found["value"], found["share"]).save(folder))
        if figures:
            written += _drawn(result, folder / "figures")
            if not quiet:
                shown = {name: as_measured(source, result, name) for name, source in others.items()}
                written.append(write_report_of(run, folder, result, network, tested, shown))
        for path in written if not quiet else []:
            typer.echo(f"Wrote {path}.")
        return result


def write_report_of(
    run: Path,
    folder: Path,
    result: Evaluation,
    network: Any,
    tested: Source | None,
    others: dict[str, Source],
) -> Path:
    """Write report.html; without the data there is no gallery."""
    from randomset.belief.budget import Budget
    from randomset.belief.naming import braces
    from randomset.evaluation import Threshold
    from randomset.report.gallery import gallery_of
    from randomset.report.html import evaluation_report, write_report

    threshold, words = None, None
    if found := result.numbers.get("threshold"):
        threshold = Threshold(found["score"], found["value"], found["share"])
    if network.notes.get("tokens"):
        from randomset.backbones.text import load_tokenizer

        tokenizer = load_tokenizer(run / TOKENIZER)
        words = lambda tokens: tokenizer.decode(tokens[tokens >= 0], skip_special_tokens=True)  # noqa: E731
    groups = []
    if tested is not None:
        groups = gallery_of(network, result, tested, others, words=words, threshold=threshold)
    sets: list[tuple[str, float]] = []
    if (run / "budget.json").exists():
        budget = Budget.load(run / "budget.json")
        names = [braces(list(budget.names_of(i)), shorten=6) for i in range(budget.num_classes, len(budget))]
        overlaps = (budget.origin or {}).get("overlaps", [])
        if len(overlaps) == len(names):
            sets = sorted(zip(names, overlaps, strict=True), key=lambda pair: -pair[1])
    title = f"{run.resolve().name}: {result['run']['test']}"
    text = evaluation_report(result, title=title, gallery=groups, space=_clusters(run), sets=sets)
    return write_report(text, folder / "report.html")


def _clusters(run: Path) -> Any:
    """Return the ellipsoids of a run's classes; a report can do without."""
    import numpy as np

    if not (run / "clusters.json").exists():
        return None
    try:
        found = json.loads((run / "clusters.json").read_text(encoding="utf-8"))
        check_version(found.get("version", 1), 1, "clusters.json")  # the first ones had none
        count = len(found["classes"])
        points = np.array(found["points"], float).reshape(-1, 4)
        shapes = [(np.shape(one["centre"]), np.shape(one["axes"])) for one in found["ellipsoids"]]
        owners = [*points[:, 3], *(one["of"] for one in found["ellipsoids"])]
        if set(shapes) - {((3,), (3, 3))} or not all(0 <= owner < count for owner in owners):
            raise ValueError("other shapes")
        if not np.isfinite(points).all() or not is_number(found["radius"]):
            raise ValueError("no numbers")
        return {**found, "radius": float(found["radius"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        typer.echo(f"The classes are not drawn in space: {run / 'clusters.json'} cannot be read.", err=True)
        return None


def named_sources(texts: list[str]) -> dict[str, str]:
    """Read NAME=SOURCE several times; a source alone is named by itself."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if not name or (equals and not source):
            raise RandomSetError("--ood is not NAME=SOURCE", got=text, expected="such as kmnist=kmnist")
        name, source = (name, source) if equals else (Path(text).stem, text)
        if name in found:
            raise RandomSetError("two sources have the same name", got=", ".join(texts))
        found[name] = source
    return found


def _are_pixels(source: Source) -> bool:
    whole = not source.inputs.is_floating_point()
    return whole or bool(source.inputs.min() >= 0 and source.inputs.max() <= 1)


def _drawn(result: Evaluation, folder: Path) -> list[Path]:
    from randomset.report.evaluation_figures import draw_all

    return draw_all(result, folder)
