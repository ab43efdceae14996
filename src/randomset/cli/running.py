"""A run folder from settings: data, split, training, test and threshold; for `train` and `compare`."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from randomset.cli.checks import check_writable
from randomset.errors import RandomSetError

if TYPE_CHECKING:
    from randomset.baselines.baseline import Baseline
    from randomset.data.sources import Source
    from randomset.evaluation.ood import Threshold
    from randomset.nn.network import RandomSetNetwork
    from randomset.training.method import MethodConfig

__all__ = ["Trained", "train_run"]


@dataclass(frozen=True)
class Trained:
    """What a training left behind."""

    test: dict[str, Any]
    threshold: Threshold | None
    seconds: float


def train_run(
    settings: MethodConfig,
    out: Path,
    *,
    budget: Path | None = None,
    resume: bool = False,
    strict: bool = False,
) -> Trained:
    """Train what the settings say into a run folder, and test it once on what was held back."""
    import torch

    from randomset.belief.storage import replacing
    from randomset.data.sources import load_source
    from randomset.data.splits import Parts
    from randomset.evaluation.ood import Threshold
    from randomset.evaluation.passes import predictions_of
    from randomset.evaluation.predictor import as_predictor
    from randomset.nn.network import RandomSetNetwork
    from randomset.progress import on_terminal
    from randomset.training.method import backbone_for, backbone_name, train_method
    from randomset.training.rival_storage import save_rival
    from randomset.training.rivals import train_rival
    from randomset.training.surroundings import epoch_lines

    started = time.perf_counter()
    options: dict[str, Any] = {
        **{"label": settings.label_column, "text": settings.text_column, "strict": strict},
        "size": None if settings.size is None else (settings.size, settings.size),
    }
    data = load_source(settings.source, **options)
    for remark in data.remarks:
        typer.echo(f"{data.name}: {remark}.")
    if data.kind == "text":
        raise RandomSetError(
            "texts need a network that reads them",
            got=data.name,
            expected="images or numbers",
            remedy="Put them through an encoder and train on its features, an .npz file",
        )
    settings = dataclasses.replace(settings, backbone=backbone_name(settings.backbone, data.inputs))
    backbone_for(settings.backbone, data.inputs, settings.width)
    family = None if budget is None else _fitting_budget(budget, data)
    check_writable(out / "config.json")
    settings.save(out / "config.json")
    shares = (settings.validation, settings.calibration, settings.test)
    parts = Parts.of(data, settings.source, *shares, settings.seed)
    parts.save(out / "split.json", data)
    tested = parts.test_data(data, **options).aligned(data.classes)
    typer.echo(
        f"{data.name}: {len(parts.train)} samples to train on, {len(parts.validation)} to validate, "
        f"{len(parts.calibration)} to calibrate conformal sets, {len(tested)} to test on."
    )
    shared: dict[str, Any] = {
        **{"rows": parts.train, "val_rows": parts.validation, "out": out, "resume": resume},
        "say": typer.echo,
        "callbacks": [] if on_terminal() else [epoch_lines(lambda line: typer.echo(line, err=True))],
    }
    model: RandomSetNetwork | Baseline
    if settings.method == "rsnn":
        result = train_method(settings, data.inputs, data.labels, data.classes, budget=family, **shared)
        model = result.network
        typer.echo(str(result.fit))
    else:
        model = train_rival(settings, data.inputs, data.labels, data.classes, **shared)
    seconds = time.perf_counter() - started
    found, entropy = _measured(model, tested), None
    if len(parts.validation):
        entropy = predictions_of(as_predictor(model), data.part(parts.validation), "validation").prediction
    model.notes = {
        "config": dataclasses.asdict(settings),
        "classes": list(data.classes),
        "input_shape": list(data.inputs.shape[1:]),
        "columns": None if data.columns is None else list(data.columns),
        "largest_input": float(data.inputs.max()) / (255 if data.inputs.dtype == torch.uint8 else 1),
        "test": found,
        "seconds": seconds,
    }
    if isinstance(model, RandomSetNetwork):
        model.save(out)
    else:
        save_rival(model, out)
    threshold = None
    if entropy is not None:
        threshold = Threshold.keeping(0.95, entropy.scores["entropy"], "entropy")
        threshold.save(out)
    with replacing(out / "test.json") as temporary:
        temporary.write_text(json.dumps(found) + "\n", encoding="utf-8")
    if found:
        width = f", mean credal width {found['credal_width']:.3f}" if "credal_width" in found else ""
        typer.echo(
            f"On {found['samples']} samples that were held back: accuracy {found['accuracy']:.2%}, "
            f"ECE {found['ece']:.3f}{width}."
        )
    return Trained(found, threshold, seconds)


def _fitting_budget(path: Path, data: Source) -> Any:
    from randomset.belief.budget import Budget

    family = Budget.load(path)
    if family.classes != data.classes:
        raise RandomSetError(
            "the budget is of other classes than the data",
            got=", ".join(family.classes[:5]),
            expected=", ".join(data.classes[:5]),
        )
    return family


def _measured(model: RandomSetNetwork | Baseline, tested: Source) -> dict[str, Any]:
    """Measure what was held back; a set-valued label is met by any of its classes."""
    from randomset.evaluation.calibration import reliability
    from randomset.evaluation.passes import predictions_of
    from randomset.evaluation.predictor import as_predictor

    if not len(tested):
        return {}
    found, labels = predictions_of(as_predictor(model), tested, "test").prediction, tested.labels
    right = found.labels == labels if labels.dim() == 1 else labels.gather(1, found.labels[:, None])[:, 0]
    width = found.scores.get("credal width")
    return {
        "samples": len(tested),
        "accuracy": right.double().mean().item(),
        "ece": reliability(found.confidence, right).error,
        **({} if width is None else {"credal_width": width.double().mean().item()}),
    }
