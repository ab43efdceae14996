"""`fit`: train a module on Lightning, with a resumable run folder."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from randomset._core.batches import on_terminal, usual_workers
from randomset._core.files import locks_out_folder
from randomset._core.torchvision import import_lightning, torchvision
from randomset.errors import FileFormatError, LabelError, RandomSetError, RandomSetWarning, ShapeError
from randomset.models.base import Classifier
from randomset.models.reliability import MIN_VALIDATION, check_reliability
from randomset.models.reliability_fitting import ReliabilityReport
from randomset.models.temperature import CalibrationReport
from randomset.training.balance import ClassWeight, balanced_for
from randomset.training.loaders import (
    EpochLoader,
    seed_everything,
    seed_from,
    training_loader,
    validation_loader,
)
from randomset.training.preparation import (
    check_options,
    chosen_precision,
    loggers,
    note_inputs,
    preserve_random_state,
    quiet_lightning,
    spec_for,
)
from randomset.training.recipe import Recipe
from randomset.training.resuming import (
    FitReport,
    TrainingStopped,
    checked_checkpoint,
    find_checkpoint,
    joined_history,
)

__all__ = ["fit"]

logger = logging.getLogger("randomset.training")

_NOT_FITTED = (
    "The reliability was not fitted: %s. Inputs far from the training data may be accepted as known."
)


@locks_out_folder
def fit(
    network: nn.Module,
    train: Any,
    val: Any = None,
    *,
    epochs: int | None = None,
    recipe: str | Recipe = "fast",
    loss: nn.Module | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool | str | os.PathLike[str] = False,
    keep: Literal["last", "best"] = "last",
    class_weight: ClassWeight = None,
    sampling: Literal["uniform", "balanced"] | None = None,
    augment: str | None = None,
    ema: float | None = None,
    calibrated: bool | None = None,
    reliability: str = "auto",
    earlier: FitReport | None = None,
    checkpoint_steps: int | None = None,
    checkpoint_minutes: float = 5.0,
    workers: int | None = None,
    progress: bool | None = None,
    precision: str | None = None,
    **trainer_options: Any,
) -> FitReport:
    """Train a network in place; it ends in evaluation mode.

    Args:
        network: a `RandomSetNetwork`, or any module whose outputs the loss accepts.
        train: a data set of (inputs, labels) or (inputs, labels, weights), a data loader, or a Lightning data
            module. Labels can be anything that the loss accepts.
        val: validation data, in the same formats.
        epochs: number of epochs; by default, the recipe's.
        recipe: "fast", "fast-head", "speed", "paper", "text", or a `Recipe`.
        loss: a module called with (outputs, labels); by default, the network's own.
        batch_size: samples per step over all processes, for data sets; by default, the recipe's.
        learning_rate: the maximum learning rate; by default, the recipe's.
        seed: seed of the data order, dropout and augmentation. For reproducible initial weights, seed torch
            before building the network.
        out: a run folder for metrics.csv, checkpoints and TensorBoard's logs, locked against other processes.
            Without it, nothing is written.
        resume: whether to resume from the run folder's last checkpoint, or the path of another one. If the
            folder has no checkpoint, training starts from the beginning; if the last one is damaged,
            training resumes from the previous one, with a warning.
        keep: which epoch's weights the network ends with. "best" needs a run folder and validation data.
        class_weight: weights of the classes in the loss; by default, the recipe's: see `Recipe`.
        sampling: "balanced" draws each class equally often; by default, the recipe's.
        augment: augmentation by name, such as "photos"; by default, the recipe's.
        ema: decay of a moving average of the weights; by default, the recipe's.
        calibrated: whether to calibrate the network on the validation data afterwards; by default, for
            random-set networks with validation data.
        reliability: for random-set networks, how well the training data support a prediction, by which it is
            discounted: "auto" where there are enough validation data, "neighbours" or "gaussians" (see
            `randomset.models.Reliability`), or "none".
        earlier: the report of an earlier phase of this training; its epochs come first in the history and in
            metrics.csv.
        checkpoint_steps: batches between two checkpoints within an epoch; by default, by time.
        checkpoint_minutes: minutes between two checkpoints within an epoch.
        workers: processes that read a data set; by default two, on systems where this is safe.
        progress: whether to show a progress bar; by default, on a terminal.
        precision: a precision by its name in Lightning; by default mixed, where the device supports it.
        trainer_options: further arguments of `lightning.Trainer`: devices, strategy, logger, callbacks, …
    """
    lightning = import_lightning()
    from randomset.training.checkpoints import RunCheckpoints
    from randomset.training.engine import Engine

    changes: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
    changes |= {"class_weight": class_weight, "sampling": sampling, "augment": augment, "ema": ema}
    plan = Recipe.named(recipe, **changes)
    if "randaugment" in plan.augmentations:
        torchvision()  # fail early
    if loss is None:
        if not hasattr(network, "default_loss"):
            raise RandomSetError(
                "no loss given",
                got=type(network).__name__,
                remedy="Pass one, such as loss=nn.CrossEntropyLoss()",
            )
        loss = network.default_loss()  # type: ignore[operator]
    reliability = check_reliability(reliability)
    insists = reliability not in ("auto", "none")
    if insists and not hasattr(network, "fit_reliability"):
        raise RandomSetError(
            "only random-set networks have a reliability", got=f"{type(network).__name__}, {reliability}"
        )
    if keep not in ("last", "best"):
        raise RandomSetError("unknown value for keep", got=keep, expected="'last' or 'best'")
    check_options(trainer_options, train, batch_size)
    folder = None if out is None else Path(out).expanduser()
    if folder is None and (resume or keep == "best"):
        raise RandomSetError("resume and keep='best' require a run folder", remedy='Pass one with out="…"')
    data = _data(train, val, plan, seed, usual_workers(train) if workers is None else workers)
    loader = data.get("train_dataloaders")
    validated = val is not None or _has_validation(train)
    if not validated and (keep == "best" or calibrated or insists):
        needed = {"keep='best'": keep == "best", "calibrated=True": calibrated}
        needed[f"reliability={reliability!r}"] = insists
        raise RandomSetError(
            "no validation data given",
            got=", ".join(name for name, needs in needed.items() if needs),
            expected=f"labelled validation data, {MIN_VALIDATION} samples or more",
            remedy="Pass val=…",
        )
    weights = balanced_for(plan, network, loss, train, loader)
    checkpoints = None if folder is None else _checkpoint_folder(folder, resume)
    fitted = ("calibration", "reliability")  # they belong to the previous weights
    before = {name: getattr(network, name) for name in fitted if getattr(network, name, None) is not None}
    for name in before:
        setattr(network, name, None)
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    try:
        engine = Engine(network, loss.to(device), plan, seed, weights)
        engine.earlier = [] if earlier is None else earlier.history
        checkpoint = None if checkpoints is None else find_checkpoint(checkpoints, resume, engine, loader)
    except RandomSetError:
        for name, value in before.items():
            setattr(network, name, value)
        raise
    start, resumed = (None, None) if checkpoint is None else (checkpoint[0], checkpoint[1]["randomset"])
    del checkpoint  # free its tensors, which are several times the size of the network
    begun = 0 if resumed is None else resumed["epoch"]
    if resumed is not None and isinstance(loader, EpochLoader):
        loader.start_at(begun, resumed["position"])

    callbacks = trainer_options.pop("callbacks", None) or []
    callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    keeper: Any = None
    if checkpoints is not None:
        keeper = RunCheckpoints(
            checkpoints,
            loader,
            steps=checkpoint_steps,
            minutes=checkpoint_minutes,
            resumed=resumed,
            from_previous=start is not None and start.resolve() == (checkpoints / "previous.ckpt").resolve(),
        )
        callbacks.append(keeper)
    options = {
        "accelerator": "auto",
        "logger": loggers(folder, trainer_options.pop("logger", None)),
        "precision": chosen_precision(precision, trainer_options.get("accelerator", "auto")),
        "gradient_clip_val": plan.clip,
        "num_sanity_val_steps": 0,
        "enable_checkpointing": folder is not None,
        "enable_model_summary": False,
        "enable_progress_bar": on_terminal() if progress is None else progress,
        **({"devices": int(os.environ["LOCAL_WORLD_SIZE"])} if "LOCAL_WORLD_SIZE" in os.environ else {}),
        **trainer_options,
    }
    with quiet_lightning(), preserve_random_state():
        seed_everything(seed_from(seed, begun))
        network.train()
        trainer = lightning.Trainer(max_epochs=plan.epochs, callbacks=callbacks, **options)
        try:
            with _translated_errors(keeper, start):
                trainer.fit(engine, **data, ckpt_path=start, weights_only=True)
        finally:
            network.to(device).eval()
    if keep == "best" and checkpoints is not None and (checkpoints / "best.ckpt").exists():
        engine.load_state_dict(checked_checkpoint(checkpoints / "best.ckpt", engine)["state_dict"])
    engine.adopt_average()
    history = engine.history or (resumed["history"] if resumed else [])
    if isinstance(network, Classifier) and engine.input_spec is not None:
        note_inputs(network, spec_for(network.preprocess, engine.input_spec))
    calibration, support = None, None
    wanted = reliability != "none" and hasattr(network, "fit_reliability")
    if validated:
        held_out = data["val_dataloaders"] if val is not None else train.val_dataloader()
        if getattr(network, "bounded", False) if calibrated is None else calibrated:
            calibration = _calibrated(network, held_out, loss, progress, insist=bool(calibrated))
        if wanted and not insists and calibration is not None and calibration.samples < MIN_VALIDATION:
            logger.info(_NOT_FITTED, f"too few validation samples ({calibration.samples})")
        elif wanted:
            support = _supported(
                network, train, held_out, loss, progress, reliability, seed=seed, insist=insists
            )
    elif wanted:
        logger.info(_NOT_FITTED, "no validation data")
    planned = plan.epochs + (0 if earlier is None else earlier.planned)
    report = FitReport(joined_history(engine.earlier, history), folder, calibration, planned, keep, support)
    baseline: Any = engine.first_loss
    if engine.earlier:  # a fitted head starts with a loss that the first steps may well exceed
        baseline = max(engine.earlier[0]["loss"], history[0]["loss"])
    _warn_of_divergence(history, baseline)
    if isinstance(network, Classifier) and folder is not None and trainer.is_global_zero:
        network.save(folder)
    return report


def _warn_of_divergence(history: list[dict[str, float]], first: Any) -> None:
    if history and first is not None and history[-1]["loss"] > 2 * float(first):
        warnings.warn(
            f"the loss grew from {float(first):.4g} to {history[-1]['loss']:.4g}: training diverged; "
            "lower the learning rate",
            RandomSetWarning,
            stacklevel=4,
        )


def _data(train: Any, val: Any, plan: Recipe, seed: int, workers: int) -> dict[str, Any]:
    """Return the data as arguments of Lightning's `fit`."""
    import lightning

    if isinstance(train, lightning.LightningDataModule):
        if val is not None:
            raise RandomSetError(
                "validation data given twice", got="a data module and val", expected="only the data module"
            )
        return {"datamodule": train}
    return {
        "train_dataloaders": training_loader(train, plan.batch_size, seed, workers),
        "val_dataloaders": None if val is None else validation_loader(val, 2 * plan.batch_size, workers),
    }


def _has_validation(data: Any) -> bool:
    """Return whether this is a data module with validation data."""
    import lightning
    from lightning.pytorch.utilities.model_helpers import is_overridden

    return isinstance(data, lightning.LightningDataModule) and is_overridden("val_dataloader", data)


def _calibrated(
    network: Any, held_out: Any, loss: nn.Module, progress: bool | None, *, insist: bool
) -> CalibrationReport | None:
    """Calibrate on all validation data in every process, so that all get the same temperature."""
    if isinstance(held_out, EpochLoader):
        held_out.shared = False
    try:
        ignored = getattr(loss, "ignore_index", -100)
        report: CalibrationReport = network.calibrate(held_out, ignore_index=ignored, progress=progress)
    except (LabelError, ShapeError) as error:
        if insist:
            raise
        warnings.warn(f"calibration skipped: {error}", RandomSetWarning, stacklevel=4)
        return None
    if report.samples < MIN_VALIDATION:
        warnings.warn(
            f"calibrated on {report.samples} validation samples, fewer than {MIN_VALIDATION}: too few "
            "to improve the confidence much, or to fit the reliability. Hold out more samples",
            RandomSetWarning,
            stacklevel=4,
        )
    return report


def _supported(
    network: Any,
    train: Any,
    held_out: Any,
    loss: nn.Module,
    progress: bool | None,
    kind: str,
    *,
    seed: int,
    insist: bool,
) -> ReliabilityReport | None:
    """Fit the reliability to all data in every process, so that all get the same."""
    import lightning

    if isinstance(held_out, EpochLoader):
        held_out.shared = False
    seen = train.train_dataloader() if isinstance(train, lightning.LightningDataModule) else train
    ignored = getattr(loss, "ignore_index", -100)
    try:
        with preserve_random_state():
            seed_everything(seed)  # random transforms give the same after an interruption
            return network.fit_reliability(seen, held_out, kind=kind, ignore_index=ignored, progress=progress)
    except RandomSetError as error:
        if insist:
            raise
        if isinstance(error, LabelError):  # of which the calibration has warned
            logger.info("The reliability was not fitted: %s", error)
            return None
        warnings.warn(
            f"no reliability was fitted, so inputs far from the training data can be predicted with "
            f"certainty: {error}",
            RandomSetWarning,
            stacklevel=4,
        )
        return None


def _checkpoint_folder(folder: Path, resume: Any) -> Path:
    checkpoints = folder / "checkpoints"
    if not resume and (checkpoints / "last.ckpt").exists():
        raise FileFormatError(
            "the folder already contains checkpoints",
            got=str(folder),
            remedy="Pass resume=True to continue, or use another folder",
        )
    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileFormatError("cannot create the run folder", got=f"{folder}: {error.strerror}") from None
    return checkpoints


@contextmanager
def _translated_errors(keeper: Any, start: Path | None) -> Iterator[None]:
    """Translate exceptions in Lightning's loop: those after signals, and those of damaged checkpoints."""
    from randomset.training.checkpoints import Stopped

    try:
        yield
    except Stopped:
        raise _stopped(keeper.received or signal.SIGINT, keeper.folder) from None
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):  # Lightning converts Ctrl-C to SystemExit
            raise KeyboardInterrupt from None
        raise
    except Exception as error:
        if start is None or keeper.begun or isinstance(error, RandomSetError):
            raise
        raise FileFormatError(  # damage that our own checks did not find
            "cannot resume from the checkpoint", got=f"{start}: {error!r:.200}"
        ) from error


def _stopped(number: int, checkpoints: Path) -> TrainingStopped:
    saved = checkpoints / "last.ckpt" if (checkpoints / "last.ckpt").exists() else None
    return TrainingStopped(
        f"training was stopped by {signal.Signals(number).name}; "
        f"{'no checkpoint was saved yet' if saved is None else f'saved {saved}'}. To resume, call fit again "
        f'with out="{checkpoints.parent}", resume=True',
        int(number),
        saved,
    )
