"""Training of a run: data, split, model, test metrics and threshold, stored in the run folder."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from randomset._core.checks import is_number
from randomset._core.files import check_writable, write_document, write_text
from randomset._core.torchvision import import_lightning
from randomset.backbones.hugging_face import load_tokenizer, max_tokens, tokenize
from randomset.backbones.inputs import InputSpec, convert_images
from randomset.backbones.registry import check_name, default_image_size
from randomset.belief.budget import Budget
from randomset.data.sources import Source, load_source
from randomset.data.splits import Parts
from randomset.errors import FileFormatError, RandomSetError, RandomSetWarning, WriteError
from randomset.models import load as load_model
from randomset.models.base import Classifier
from randomset.models.prediction import Prediction, Threshold, calibration_error
from randomset.models.reliability import MIN_VALIDATION
from randomset.runs.data import TOKENIZER
from randomset.training.config import TrainConfig
from randomset.training.pipeline import train
from randomset.training.preparation import backbone_for, backbone_name, spec_for

__all__ = ["check_free", "cleanup", "clock", "finish_run", "seconds_of", "stored_tokenizer", "train_run"]

logger = logging.getLogger(__name__)


def train_run(
    config: TrainConfig,
    out: Path,
    *,
    budget: Path | None = None,
    resume: bool = False,
    strict: bool = False,
    base: Path | None = None,
) -> None:
    """Implement `Run.train`, with the same arguments: train, store and test a model in the folder `out`."""
    config = config.checked().located()
    if not config.source:
        raise RandomSetError(
            "no source was given",
            expected="a name of `randomset data`, a folder of images, a table, or an .npz file",
        )
    if not resume:
        check_free(out, "Resume it (--resume, or resume=True), or choose another folder")
    import_lightning()  # fail before the data are read
    if ":" in config.backbone:  # likewise
        check_name(config.backbone)
    if config.weights != "none" and config.size is None:
        config = dataclasses.replace(config, size=default_image_size(config.backbone))
    options: dict[str, Any] = {
        "label": config.label_column,
        "text": config.text_column,
        "strict": strict,
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
    with cleanup(out, resume):
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
        with clock(out, resume) as seconds:
            network = None if base is None else load_model(base)
            if network is not None and not seconds:  # else they were counted before an interruption
                seconds.append(float(network.notes.get("seconds", 0.0)))
            result = train(
                config,
                data.inputs,
                data.labels,
                data.classes,
                rows=parts.train,
                val_rows=parts.validation,
                budget=chosen,
                base=network,
                out=out,
                resume=resume,
            )
    model = result.model
    if model.bounded and result.fit is not None:
        logger.info("%s", result.fit)
    spec = spec_for(model.preprocess, InputSpec.of(data.inputs, data.classes))
    model.notes = {**spec.to_notes(), "seconds": sum(seconds)}
    finish_run(model, config, data, parts, tested, out)


def finish_run(
    model: Classifier, config: TrainConfig, data: Source, parts: Parts, tested: Source, out: Path
) -> None:
    """Test a model once, choose its threshold on the validation samples, and store both with the model."""
    measured = _test_numbers(model, tested)
    threshold = None
    if len(parts.validation):
        entropy = _predicted(model, data.part(parts.validation)).scores["entropy"]
        if len(entropy) < MIN_VALIDATION:
            warnings.warn(
                f"the threshold between known and unknown inputs was chosen on {len(entropy)} validation "
                f"samples, fewer than {MIN_VALIDATION}: it may be inaccurate. Hold out more: --validation",
                RandomSetWarning,
                stacklevel=2,
            )
        threshold = Threshold.keeping(0.95, entropy, "entropy")
    columns = None if data.columns is None else list(data.columns)
    model.notes |= {"config": dataclasses.asdict(config), "columns": columns, "test": measured}
    model.save(out)
    if threshold is not None:
        threshold.save(out)
    write_document(measured, out / "test.json", "randomset.test", 1)  # last: it marks a finished run
    if measured:
        more = f", mean credal width {measured['credal_width']:.3f}" if "credal_width" in measured else ""
        more += f", mean reliability {measured['reliability']:.3f}" if "reliability" in measured else ""
        logger.info(
            f"On {measured['samples']} held-out samples: accuracy {measured['accuracy']:.2%}, "
            f"ECE {measured['ece']:.3f}{more}."
        )


def check_free(out: Path, remedy: str = "Choose another folder") -> None:
    """Raise an error if a folder already contains a run, which another one would overwrite."""
    if (out / "config.json").exists():
        raise FileFormatError("the folder already contains a run", got=str(out), remedy=remedy)


@contextmanager
def cleanup(out: Path, resume: bool) -> Iterator[None]:
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
def clock(out: Path, resume: bool) -> Iterator[list[float]]:
    """Yield the seconds of training so far, as a list; add and store those of the block, even on errors."""
    before = seconds_of(out) if resume else None
    spent = [] if before is None else [before]
    start = time.perf_counter()
    try:
        yield spent
    finally:
        spent.append(time.perf_counter() - start)
        with suppress(WriteError):
            write_text(json.dumps(sum(spent)) + "\n", out / "seconds.json")


def seconds_of(run: Path) -> float | None:
    """Return the training time of a run in seconds, from its seconds.json; None without one."""
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
        inputs, done = convert_images(source.inputs, [source.inputs.shape[1], size, size])
        return dataclasses.replace(source, inputs=inputs, remarks=(*source.remarks, *done))

    return resize


def _tokenizer(config: TrainConfig, out: Path) -> Callable[[Source], Source]:
    """Return a function that tokenises the texts of a source; store the tokenizer in the run folder."""
    library, _, name = config.backbone.partition(":")
    if library != "hf" or not name:
        raise RandomSetError(
            "texts require a text encoder as the backbone",
            got=f"--backbone {config.backbone}",
            remedy="Name a Hugging Face model, or a folder with one: --backbone hf:MODEL",
        )
    tokenizer, length = stored_tokenizer(name, config.max_tokens, out)

    def tokenise(source: Source) -> Source:
        if source.kind != "text":
            return source
        return dataclasses.replace(source, kind="tokens", inputs=tokenize(source.inputs, tokenizer, length))

    return tokenise


def stored_tokenizer(name: str, wanted: int, out: Path) -> tuple[Any, int]:
    """Store a model's tokenizer in the run folder; return it, and the number of tokens in a text."""
    tokenizer, most = load_tokenizer(name), max_tokens(name)
    length = wanted if most is None else min(wanted, most)
    if length < wanted:
        logger.info(f"Texts are truncated to {length} tokens, the maximum length of the network.")
    check_writable(out / TOKENIZER / "tokenizer.json")
    tokenizer.save_pretrained(str(out / TOKENIZER))
    return tokenizer, length


def _budget_for(data: Source, path: Path) -> Budget:
    budget = Budget.load(path)
    if budget.classes != data.classes:
        raise RandomSetError(
            "the classes of the budget differ from those of the data",
            got=", ".join(budget.classes[:5]),
            expected=", ".join(data.classes[:5]),
        )
    return budget


def _predicted(model: Classifier, source: Source) -> Prediction:
    """Predict a source in chunks, since the masses of many sets may not fit into memory."""
    return Prediction.concatenate([Prediction.of(model.predict(part)) for part in source.inputs.split(8192)])


def _test_numbers(model: Classifier, tested: Source) -> dict[str, Any]:
    """Evaluate a model on held-out samples; for a set-valued label, any of its classes is correct."""
    if not len(tested):
        return {}
    prediction, labels = _predicted(model, tested), tested.labels
    right = (
        labels.gather(1, prediction.labels[:, None])[:, 0]
        if labels.dim() > 1
        else prediction.labels == labels
    )
    means = {"credal_width": prediction.scores.get("credal width"), "reliability": prediction.reliability}
    return {
        "samples": len(tested),
        "accuracy": right.double().mean().item(),
        "ece": calibration_error(prediction.confidence, right),
        **{name: values.double().mean().item() for name, values in means.items() if values is not None},
    }
