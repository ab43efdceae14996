"""`randomset export`: write a network as a single file that does not need randomset."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from randomset._core.files import check_writable, lock_folder
from randomset.errors import RandomSetError
from randomset.models.random_set import RandomSetNetwork
from randomset.runs import Run
from randomset.serving.export import Deployed, export_onnx, export_torch

__all__ = ["export"]

_FILES = {"onnx": "model.onnx", "torch-export": "model.pt2"}


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder of a random-set network")],
    format: Annotated[str, typer.Option(help="onnx, or torch-export for torch.export.load")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="the file; default: model.onnx or model.pt2 in RUN")
    ] = None,
    bytes: Annotated[
        bool,
        typer.Option("--bytes", help="take images as bytes from 0 to 255 instead of numbers from 0 to 1"),
    ] = False,
) -> None:
    """Write the whole prediction as one graph: preprocessing, network, masses, probabilities, bounds, known.

    Batches may have any size. Class names, sets and threshold are in the file's metadata.
    """
    if format not in _FILES:
        raise RandomSetError("unknown format", got=format, expected=" or ".join(_FILES))
    path = out or run / _FILES[format]
    network: Any = Run(run).model
    threshold = Run(run).threshold
    if not network.bounded:
        raise RandomSetError(
            "only random-set networks can be exported", got=f"{run}, a run of {network.method}"
        )
    check_writable(path)
    example = _example(network, run, bytes)
    deployed = Deployed(network, threshold)
    typer.echo("Exporting …")
    write = export_onnx if format == "onnx" else export_torch
    into_run = path.parent.resolve() == run.resolve()
    with lock_folder(run) if into_run else nullcontext():
        distance = write(deployed, example, path)
    shape = " × ".join(["batch", *map(str, example.shape[1:])])
    typer.echo(f"Wrote {path}, {path.stat().st_size / 1e6:.1f} MB: inputs {shape}, {str(example.dtype)[6:]}.")
    typer.echo("Outputs: " + ", ".join(deployed(example)) + ".")
    if threshold is None:
        typer.echo(
            "The run has no threshold, so there is no output `known`: randomset evaluate RUN stores one."
        )
    if distance is None:
        typer.echo("Not verified: onnxruntime is not installed.")
    else:
        typer.echo(f"Verified: its outputs are within {distance:.1e} of the network's.")


def _example(network: RandomSetNetwork, run: Path, bytes: bool) -> Tensor:
    shape = network.notes.get("input_shape")
    if not shape:
        raise RandomSetError(
            "the run does not record the shape of its inputs",
            got=str(run),
            remedy="Call randomset.serving.export_onnx with an example",
        )
    if network.notes.get("tokens"):
        if bytes:
            raise RandomSetError("--bytes is for images", got="a network that takes tokens")
        example = torch.full((2, *shape), -1)
        example[0, :8], example[1, :4] = 1, 1
        return example
    draw = torch.Generator().manual_seed(0)
    if not bytes:
        return torch.rand(2, *shape, generator=draw) * float(network.notes.get("largest_input") or 1)
    if len(shape) != 3 or float(network.notes.get("largest_input") or 0) > 1.5:
        raise RandomSetError(
            "--bytes needs a network trained on images from 0 to 1", got=f"inputs of shape {tuple(shape)}"
        )
    return torch.randint(0, 256, (2, *shape), generator=draw, dtype=torch.uint8)
