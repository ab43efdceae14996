"""A run folder from settings: data, split, training, test and threshold."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from randomset._core.checks import is_number
from randomset._core.files import check_writable, replacing, write_document
from randomset.errors import MissingPackageError, RandomSetError, WriteError
from randomset.runs.inputs import TOKENIZER

if TYPE_CHECKING:
    from randomset.data.sources import Source
    from randomset.evaluation.ood import Threshold
    from randomset.models.base import Baseline
    from randomset.models.random_set import RandomSetNetwork
    from randomset.training.method import MethodConfig

__all__ = ["seconds_of", "train_run"]


def train_run(
    settings: MethodConfig,
    out: Path,
    *,
    budget: Path | None = None,
    resume: bool = False,
    strict: bool = False,
    base: Path | None = None,
    say: Callable[[str], object] = lambda text: None,
    say_epoch: Callable[[str], object] | None = None,
) -> Threshold | None:
    """Train what the settings say into a run folder, and test it once on what was held back.

    Returns the threshold for known inputs, where there were validation data to choose it on. `base` is the
    run of a softmax network with the same settings, which some methods build on. `say` is called with a line
    of text at every stage, `say_epoch`, if it is given, with one for each epoch.
    """
    import torch

    from randomset._core.torchvision import import_torchvision_first

    import_torchvision_first()
    try:
        import lightning  # noqa: F401  (slow to import, and not a part of training)
    except ImportError:
        raise MissingPackageError("lightning", "train") from None
    from randomset.backbones.library import check_name, usual_size
    from randomset.data.sources import load_source
    from randomset.data.splits import Parts
    from randomset.evaluation.ood import Threshold
    from randomset.evaluation.prediction import predictions_of
    from randomset.evaluation.predictor import as_predictor
    from randomset.models import Softmax
    from randomset.models.random_set import RandomSetNetwork
    from randomset.training.environment import epoch_lines
    from randomset.training.method import train_method
    from randomset.training.preparation import backbone_for, backbone_name
    from randomset.training.rival_storage import load_model, save_rival
    from randomset.training.rivals import train_rival

    if ":" in settings.backbone:  # before the data are read, which may take long
        check_name(settings.backbone)
    if settings.weights != "none" and settings.size is None:
        settings = dataclasses.replace(settings, size=usual_size(settings.backbone))
    options: dict[str, Any] = {
        **{"label": settings.label_column, "text": settings.text_column, "strict": strict},
        "size": None if settings.size is None else (settings.size, settings.size),
    }
    data = load_source(settings.source, **options)
    for remark in data.remarks:
        say(f"{data.name}: {remark}.")
    as_seen = _reader(settings, out, say) if data.kind == "text" else _sized(settings.size)
    data = as_seen(data)
    settings = dataclasses.replace(settings, backbone=backbone_name(settings.backbone, data.inputs))
    if ":" not in settings.backbone:  # the others are built but once
        backbone_for(settings.backbone, data.inputs, settings.width, settings.weights)
    family = None if budget is None else _fitting_budget(budget, data)
    check_writable(out / "config.json")
    settings.save(out / "config.json")
    shares = (settings.validation, settings.calibration, settings.test)
    parts = Parts.of(data, settings.source, *shares, settings.seed)
    if resume and (out / "split.json").exists():
        parts = Parts.load(out / "split.json", data)  # which refuses other data
    parts.save(out / "split.json", data)
    tested = as_seen(parts.test_data(data, **options)).aligned(data.classes)
    say(
        f"{data.name}: {len(parts.train)} samples to train on, {len(parts.validation)} to validate, "
        f"{len(parts.calibration)} to calibrate conformal sets, {len(tested)} to test on."
    )
    shared: dict[str, Any] = {
        **{"rows": parts.train, "val_rows": parts.validation, "out": out, "resume": resume},
        "say": say,
        "callbacks": [] if say_epoch is None else [epoch_lines(say_epoch)],
    }
    model: RandomSetNetwork | Baseline
    with _undone(out, resume), _clock(out / "seconds.json", resume) as seconds:
        if settings.method == "rsnn":
            result = train_method(settings, data.inputs, data.labels, data.classes, budget=family, **shared)
            model = result.network
            say(str(result.fit))
        else:
            known = None if base is None else load_model(base)
            if isinstance(known, Softmax):
                if not seconds:  # what was spent before an interruption has it already
                    seconds.append(float(known.notes.get("seconds", 0.0)))
                shared["base"] = known
            model = train_rival(settings, data.inputs, data.labels, data.classes, **shared)
    found, entropy = _measured(model, tested), None
    if len(parts.validation):
        entropy = predictions_of(as_predictor(model), data.part(parts.validation), "validation").prediction
    model.notes = {
        "config": dataclasses.asdict(settings),
        "classes": list(data.classes),
        "input_shape": list(data.inputs.shape[1:]),
        "tokens": data.inputs.shape[1] if data.kind == "tokens" else None,
        "columns": None if data.columns is None else list(data.columns),
        "largest_input": float(data.inputs.max()) / (255 if data.inputs.dtype == torch.uint8 else 1),
        "test": found,
        "seconds": sum(seconds),
    }
    if isinstance(model, RandomSetNetwork):
        model.save(out)
    else:
        save_rival(model, out)
    threshold = None
    if entropy is not None:
        threshold = Threshold.keeping(0.95, entropy.scores["entropy"], "entropy")
        threshold.save(out)
    write_document(found, out / "test.json", "randomset.test", 1)
    if found:
        width = f", mean credal width {found['credal_width']:.3f}" if "credal_width" in found else ""
        say(
            f"On {found['samples']} samples that were held back: accuracy {found['accuracy']:.2%}, "
            f"ECE {found['ece']:.3f}{width}."
        )
    return threshold


@contextmanager
def _undone(out: Path, resume: bool) -> Iterator[None]:
    """Where a training is refused before it has begun, leave no folder behind that looks like a run."""
    try:
        yield
    except Exception:
        if not resume and not any(out.rglob("*.ckpt")):
            for name in ("config.json", "split.json", "seconds.json", "budget.json"):
                (out / name).unlink(missing_ok=True)
            shutil.rmtree(out / TOKENIZER, ignore_errors=True)
        raise


@contextmanager
def _clock(path: Path, resume: bool) -> Iterator[list[float]]:
    """Give a list of seconds that were spent on a training; what is spent within is added and kept."""
    before = seconds_of(path.parent) if resume else None
    spent = [] if before is None else [before]
    start = time.perf_counter()
    try:
        yield spent
    finally:  # also of what was interrupted
        spent.append(time.perf_counter() - start)
        with suppress(WriteError), replacing(path) as temporary:  # where the disk is full, others say so
            temporary.write_text(json.dumps(sum(spent)) + "\n", encoding="utf-8")


def seconds_of(run: Path) -> float | None:
    """Return how long a run was trained, as its seconds.json says; None if it does not."""
    try:
        found = json.loads((run / "seconds.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return float(found) if is_number(found) else None


def _sized(size: int | None) -> Callable[[Source], Source]:
    """Return what brings images to a size."""
    from randomset.data.conversion import converted

    def read(source: Source) -> Source:
        if size is None or source.kind != "images" or tuple(source.inputs.shape[2:]) == (size, size):
            return source
        inputs, done = converted(source.inputs, [source.inputs.shape[1], size, size])
        return dataclasses.replace(source, inputs=inputs, remarks=(*source.remarks, *done))

    return read


def _reader(settings: MethodConfig, out: Path, say: Callable[[str], object]) -> Callable[[Source], Source]:
    """Return what turns texts into tokens, and keep the tokenizer in the run folder."""
    from randomset.backbones.text import load_tokenizer, most_tokens, tokenised

    library, _, name = settings.backbone.partition(":")
    if library != "hf" or not name:
        raise RandomSetError(
            "texts need a network that reads them",
            got=f"--backbone {settings.backbone}",
            remedy="Name one of Hugging Face's, or a folder with one: --backbone hf:MODEL",
        )
    tokenizer, most = load_tokenizer(name), most_tokens(name)
    length = settings.max_tokens if most is None else min(settings.max_tokens, most)
    if length < settings.max_tokens:
        say(f"Of each text {length} tokens are read, as many as the network takes.")
    check_writable(out / TOKENIZER / "tokenizer.json")
    tokenizer.save_pretrained(str(out / TOKENIZER))

    def read(source: Source) -> Source:
        if source.kind != "text":
            return source
        tokens = tokenised(source.inputs, tokenizer, length)
        return dataclasses.replace(source, kind="tokens", inputs=tokens)

    return read


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
    from randomset.evaluation.prediction import predictions_of
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
