"""`randomset wrap`: turn a trained softmax classifier into a random-set classifier, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from randomset.cli.checks import check_seed, share_or_number
from randomset.runs import Run

__all__ = ["wrap"]


def wrap(
    classifier: Annotated[
        str,
        typer.Argument(
            metavar="CLASSIFIER",
            help="the run folder of a softmax network, its model.safetensors, or a trained classifier by "
            "name: timm:MODEL, torchvision:MODEL, hf:MODEL or hf:FOLDER",
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="[SOURCE]",
            help="labelled data, as for `randomset train`; default: those that the run was trained on",
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="the run folder to write")] = Path("wrapped"),
    weights: Annotated[
        str,
        typer.Option(help="for a classifier by name: default, the published weights, or a file"),
    ] = "default",
    size: Annotated[
        int | None,
        typer.Option(help="for a classifier by name: size of its images; default: that of the weights"),
    ] = None,
    reliability: Annotated[
        str,
        typer.Option(help="how to recognise unfamiliar inputs: auto, neighbours or gaussians"),
    ] = "auto",
    validation: Annotated[
        float | None,
        typer.Option(help="for another source: share or number of samples to validate on; default: 0.1"),
    ] = None,
    calibration: Annotated[
        float | None, typer.Option(help="the same for conformal sets; default: 0.05")
    ] = None,
    test: Annotated[
        float | None, typer.Option(help="the same to test on; default: 0.2, or the published test data")
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="the column of labels in a table")] = None,
    text_column: Annotated[str | None, typer.Option(help="the column of texts in a table")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="fail if an image cannot be read")] = False,
    seed: Annotated[int | None, typer.Option(help="for another source: seed of the split")] = None,
) -> None:
    """Turn a trained softmax classifier into a random-set classifier, without training.

    Its probabilities are calibrated, and discounted for inputs unlike the data that it was trained on. The
    run folder is like that of `randomset train`, for `evaluate`, `predict`, `report`, `export` and `serve`.
    """
    shares = {"validation": validation, "calibration": calibration, "test": test}
    split: dict[str, Any] = {
        name: share_or_number(value, 0, name) for name, value in shares.items() if value is not None
    }
    if seed is not None:
        check_seed(seed)
        split["seed"] = seed
    columns = {"label_column": label_column, "text_column": text_column}
    network = {"weights": weights, "size": size}
    run = Run.wrap(
        classifier, out, source or None, reliability=reliability, strict=strict, **network, **columns, **split
    )
    threshold = run.threshold
    if threshold is not None:
        typer.echo(f"{threshold}")
    written = "model.safetensors, budget.json, config.json, split.json, test.json and threshold.json"
    typer.echo(f"Wrote {written} into {out}.")
    typer.echo(f"Next: randomset evaluate {out} --ood NAME=SOURCE, or randomset predict {out} INPUT")
