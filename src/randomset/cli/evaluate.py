"""`randomset evaluate`: metrics, tables and figures of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from randomset.cli.checks import check_at_least_one, check_drawing, check_seed, named_sources
from randomset.report.evaluation_figures import draw_all
from randomset.report.run_report import write_run_report
from randomset.runs import Run
from randomset.runs.run import evaluate_run

__all__ = ["evaluate"]


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder of a trained network")],
    test: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="labelled data to test on; default: the run's held-out samples"),
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SOURCE", help="data of unknown classes; repeatable"),
    ] = None,
    ood_samples: Annotated[
        int | None, typer.Option(help="maximum number of inputs of each, drawn at random (the paper: 10000)")
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE", help="data to choose the threshold on; default: the run's held-out samples"
        ),
    ] = None,
    keep: Annotated[float, typer.Option(help="share of known inputs that the threshold accepts")] = 0.95,
    score: Annotated[
        str, typer.Option(help="uncertainty score to choose the threshold on, such as 1 - reliability")
    ] = "entropy",
    alpha: Annotated[float, typer.Option(help="share of conformal sets that may miss the true class")] = 0.05,
    sweeps: Annotated[bool, typer.Option(help="evaluate on noisy and rotated images")] = True,
    attacks: Annotated[bool, typer.Option(help="evaluate on adversarial images (slow)")] = False,
    autoattack: Annotated[
        float | None, typer.Option(help="also run AutoAttack with this ε (very slow)")
    ] = None,
    samples: Annotated[int, typer.Option(help="test inputs for noise, rotation and attacks")] = 1000,
    timing: Annotated[bool, typer.Option(help="measure the prediction time (slow)")] = False,
    figures: Annotated[bool, typer.Option(help="draw figures, and write report.html")] = True,
    strict: Annotated[bool, typer.Option("--strict", help="fail if an image cannot be read")] = False,
    batch_size: Annotated[int, typer.Option(help="inputs per batch")] = 256,
    devices: Annotated[int, typer.Option(help="number of processes that predict")] = 1,
    seed: Annotated[int, typer.Option(help="seed of all random numbers")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="a folder for the results; default: the run folder")
    ] = None,
) -> None:
    """Evaluate a trained network: accuracy, calibration, unknown inputs, conformal sets, robustness.

    Writes evaluation.json, evaluation.md, scores.npz, figures/ and report.html, and the threshold that
    separates known from unknown inputs. Without --out, `randomset predict` uses this threshold.

    Test inputs that the network was trained on are recognised by their content and excluded.
    """
    check_at_least_one(samples=samples, batch_size=batch_size, devices=devices, ood_samples=ood_samples)
    check_seed(seed)
    check_drawing(figures)
    opened, folder = Run(run), run if out is None else out
    measured = evaluate_run(
        opened,
        test=test,
        ood=named_sources(ood or []),
        ood_samples=ood_samples,
        validation=validation,
        sweeps=sweeps,
        attacks=attacks,
        autoattack=autoattack,
        timing=timing,
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
    result, files = measured.result, measured.files
    for remark in result["remarks"]:
        typer.echo(f"{remark}.")
    typer.echo(result.summary)
    if figures:
        files += draw_all(result, folder / "figures")
        files.append(write_run_report(opened, folder, result, measured.test, measured.ood))
    for path in files:
        typer.echo(f"Wrote {path}.")
    typer.echo(f"Next: randomset predict {run} INPUT")
