"""Train a run: data, split, training, test and threshold, each stored in the run folder."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from randomset._core.checks import is_number
from randomset._core.files import replacing, write_document
from randomset._core.locks import check_writable
from randomset._core.torchvision import before_others
from randomset.backbones.library import check_name, usual_size
from randomset.backbones.text import load_tokenizer, most_tokens, tokenised
from randomset.belief.budget import Budget
from randomset.data.conversion import converted
from randomset.data.sources import Source, load_source
from randomset.data.splits import Parts
from randomset.errors import MissingPackageError, RandomSetError, WriteError
from randomset.evaluation.calibration import reliability
from randomset.evaluation.ood import Threshold
from randomset.evaluation.prediction import predictions_of
from randomset.evaluation.predictor import Prediction, as_predictor
from randomset.models import Softmax
from randomset.runs.inputs import TOKENIZER
from randomset.training.config import MethodConfig
from randomset.training.environment import epoch_lines
from randomset.training.preparation import backbone_for, backbone_name
from randomset.training.rival_storage import load_model, save_rival

__all__ = ["seconds_of", "train_run"]

logger = logging.getLogger(__name__)
_epochs = logging.getLogger("randomset.training.epochs")


def train_run(
    config: MethodConfig,
    out: Path,
    *,
    budget: Path | None = None,
    resume: bool = False,
    strict: bool = False,
    base: Path | None = None,
) -> None:
    """Train a model as configured, store it in a run folder, and test it once on the held-out samples.

    Args:
        config: the settings.
        out: the run folder.
        budget: a budget.json to use instead of choosing the sets.
        resume: continue from what is in the folder.
        strict: reject images that cannot be read instead of leaving them out.
        base: the run of a softmax network with the same settings, which some methods build on.
    """
    before_others()
    try:
        import lightning  # noqa: F401  (fail before the data are read)
    except ImportError:
        raise MissingPackageError("lightning", "train") from None
    if ":" in config.backbone:  # likewise
        check_name(config.backbone)
    if config.weights != "none" and config.size is None:
        config = dataclasses.replace(config, size=usual_size(config.backbone))
    options: dict[str, Any] = {
        **{"label": config.label_column, "text": config.text_column, "strict": strict},
        "size": None if config.size is None else (config.size, config.size),
    }
    data = load_source(config.source, **options)
    for remark in data.remarks:
        logger.info("%s: %s.", data.name, remark)
    transform = _tokenizer(config, out) if data.kind == "text" else _resize(config.size)
    data = transform(data)
    config = dataclasses.replace(config, backbone=backbone_name(config.backbone, data.inputs))
    if ":" not in config.backbone:  # fail early; backbones of other libraries are slow to build twice
        backbone_for(config.backbone, data.inputs, config.width, config.weights)
    chosen = None if budget is None else _budget_for(data, budget)
    check_writable(out / "config.json")
    with _cleanup(out, resume):
        config.save(out / "config.json")
        parts = Parts.of(data, config.source, config.validation, config.calibration, config.test, config.seed)
        if resume and (out / "split.json").exists():
            parts = Parts.load(out / "split.json", data)
        parts.save(out / "split.json", data)
        tested = transform(parts.test_data(data, **options)).aligned(data.classes)
        logger.info(
            f"{data.name}: {len(parts.train)} samples to train on, {len(parts.validation)} to validate, "
            f"{len(parts.calibration)} to calibrate conformal sets, {len(tested)} to test on."
        )
        with _clock(out, resume) as seconds:
            model = _trained(config, data, parts, chosen, base, seconds, out=out, resume=resume)
    measured = _test_numbers(model, tested)
    threshold = None
    if len(parts.validation):
        entropy = _predicted(model, data.part(parts.validation), "validation").scores["entropy"]
        threshold = Threshold.keeping(0.95, entropy, "entropy")
    model.notes = {
        "config": dataclasses.asdict(config),
        "classes": list(data.classes),
        "input_shape": list(data.inputs.shape[1:]),
        "tokens": data.inputs.shape[1] if data.kind == "tokens" else None,
        "columns": None if data.columns is None else list(data.columns),
        "largest_input": float(data.inputs.max()) / (255 if data.inputs.dtype == torch.uint8 else 1),
        "test": measured,
        "seconds": sum(seconds),
    }
    _save(model, out)
    if threshold is not None:
        threshold.save(out)
    write_document(measured, out / "test.json", "randomset.test", 1)  # last: it marks a finished run
    if measured:
        width = f", mean credal width {measured['credal_width']:.3f}" if "credal_width" in measured else ""
        logger.info(
            f"On {measured['samples']} held-out samples: accuracy {measured['accuracy']:.2%}, "
            f"ECE {measured['ece']:.3f}{width}."
        )


def _trained(
    config: MethodConfig,
    data: Source,
    parts: Parts,
    budget: Budget | None,
    base: Path | None,
    seconds: list[float],
    **options: Any,
) -> Any:
    """Train the configured method; the time spent on a base network is added to `seconds`."""
    from randomset.training.method import train_method
    from randomset.training.rivals import train_rival

    options |= {"rows": parts.train, "val_rows": parts.validation, "say": logger.info}
    options["callbacks"] = [epoch_lines(_epochs.info)] if _epochs.isEnabledFor(logging.INFO) else []
    given = (config, data.inputs, data.labels, data.classes)
    if config.method == "rsnn":
        result = train_method(*given, budget=budget, **options)
        logger.info("%s", result.fit)
        return result.network
    known = None if base is None else load_model(base)
    if isinstance(known, Softmax):
        if not seconds:  # else they were counted before an interruption
            seconds.append(float(known.notes.get("seconds", 0.0)))
        options["base"] = known
    return train_rival(*given, **options)


def _save(model: Any, out: Path) -> None:
    if hasattr(model, "save"):
        model.save(out)
    else:
        save_rival(model, out)


@contextmanager
def _cleanup(out: Path, resume: bool) -> Iterator[None]:
    """Remove the files of a run whose training fails before it begins."""
    try:
        yield
    except Exception:
        if not resume and not any(out.rglob("*.ckpt")):
            for name in ("config.json", "split.json", "seconds.json", "budget.json"):
                (out / name).unlink(missing_ok=True)
            shutil.rmtree(out / TOKENIZER, ignore_errors=True)
        raise


@contextmanager
def _clock(out: Path, resume: bool) -> Iterator[list[float]]:
    """Yield a list of seconds spent on training; the time within is added and stored, also if interrupted."""
    before = seconds_of(out) if resume else None
    spent = [] if before is None else [before]
    start = time.perf_counter()
    try:
        yield spent
    finally:
        spent.append(time.perf_counter() - start)
        with suppress(WriteError), replacing(out / "seconds.json") as temporary:
            temporary.write_text(json.dumps(sum(spent)) + "\n", encoding="utf-8")


def seconds_of(run: Path) -> float | None:
    """Return how long a run was trained, according to its seconds.json; None if there is none."""
    try:
        seconds = json.loads((run / "seconds.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return float(seconds) if is_number(seconds) else None


def _resize(size: int | None) -> Callable[[Source], Source]:
    """Return a function that resizes the images of a source."""

    def resize(source: Source) -> Source:
        if size is None or source.kind != "images" or tuple(source.inputs.shape[2:]) == (size, size):
            return source
        inputs, done = converted(source.inputs, [source.inputs.shape[1], size, size])
        return dataclasses.replace(source, inputs=inputs, remarks=(*source.remarks, *done))

    return resize


def _tokenizer(config: MethodConfig, out: Path) -> Callable[[Source], Source]:
    """Return a function that tokenises the texts of a source; store the tokenizer in the run folder."""
    library, _, name = config.backbone.partition(":")
    if library != "hf" or not name:
        raise RandomSetError(
            "texts need a network that reads them",
            got=f"--backbone {config.backbone}",
            remedy="Name a Hugging Face model, or a folder with one: --backbone hf:MODEL",
        )
    tokenizer, most = load_tokenizer(name), most_tokens(name)
    length = config.max_tokens if most is None else min(config.max_tokens, most)
    if length < config.max_tokens:
        logger.info(f"Texts are truncated to {length} tokens, the maximum length of the network.")
    check_writable(out / TOKENIZER / "tokenizer.json")
    tokenizer.save_pretrained(str(out / TOKENIZER))

    def tokenise(source: Source) -> Source:
        if source.kind != "text":
            return source
        return dataclasses.replace(source, kind="tokens", inputs=tokenised(source.inputs, tokenizer, length))

    return tokenise


def _budget_for(data: Source, path: Path) -> Budget:
    budget = Budget.load(path)
    if budget.classes != data.classes:
        raise RandomSetError(
            "the budget has other classes than the data",
            got=", ".join(budget.classes[:5]),
            expected=", ".join(data.classes[:5]),
        )
    return budget


def _predicted(model: Any, source: Source, name: str) -> Prediction:
    return predictions_of(as_predictor(model), source, name).prediction


def _test_numbers(model: Any, tested: Source) -> dict[str, Any]:
    """Measure a model on held-out samples; for a set-valued label, any of its classes is right."""
    if not len(tested):
        return {}
    prediction, labels = _predicted(model, tested, "test"), tested.labels
    right = (
        labels.gather(1, prediction.labels[:, None])[:, 0]
        if labels.dim() > 1
        else prediction.labels == labels
    )
    width = prediction.scores.get("credal width")
    return {
        "samples": len(tested),
        "accuracy": right.double().mean().item(),
        "ece": reliability(prediction.confidence, right).error,
        **({} if width is None else {"credal_width": width.double().mean().item()}),
    }
