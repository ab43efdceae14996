"""The numbers of runs in a comparison: measured once, and kept while nothing changes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import typer

from randomset._core.checks import is_number
from randomset._core.files import read_document, write_document
from randomset.errors import FileFormatError

__all__ = ["MEASURED", "costs_of", "measured", "timed"]

_MARK, _TIMES = "randomset.measured", "randomset.times"
MEASURED = "comparison"
"""The folder of a run with what was measured for the table; `randomset evaluate` writes elsewhere."""


def measured(run: Path, mark: dict[str, Any], figures: bool) -> Any:
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


def costs_of(run: Path) -> dict[str, float]:
    """Return how many parameters a run has, and how many seconds its training took if that was noted."""
    from randomset.models import load as load_model

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


def timed(runs: dict[str, Path], path: Path) -> dict[str, float]:
    """Time one prediction of every model, in turns, unless these very models were timed before."""
    import torch

    from randomset.evaluation.timing import in_turns
    from randomset.models import load as load_model

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
