"""`randomset train`: train a network on labelled data, into a run folder."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from randomset.cli.checks import check_seed, class_weights, number_or_auto, share_or_number
from randomset.data.splits import usual_shares
from randomset.errors import FileFormatError, RandomSetError
from randomset.models.ensemble import Ensemble, ensemble_of
from randomset.models.storage import classifier_class
from randomset.runs import Run
from randomset.training.config import TrainConfig
from randomset.training.resuming import TrainingStopped

__all__ = ["train"]


def train(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="a name of `randomset data`; a folder with one subfolder of images per class; a .csv or "
            ".parquet table; or an .npz file with `images` or `features`, `labels` and, optionally, "
            "`classes`; labels with one row of 0 and 1 per sample are set-valued",
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="the run folder to write")] = Path("run"),
    method: Annotated[
        str,
        typer.Option(
            help="rsnn; random-set-ensemble; or a baseline: softmax, temperature, ensemble, laplace-bridge, "
            "fsvi, epinet, mc-dropout, evidential, wrapped"
        ),
    ] = "rsnn",
    backbone: Annotated[
        str,
        typer.Option(
            help="auto, mlp, small_cnn, fast_cnn, resnet18, resnet50 or wide_resnet; timm:NAME, "
            "torchvision:NAME, or hf:NAME or hf:FOLDER, also for texts"
        ),
    ] = "auto",
    weights: Annotated[
        str,
        typer.Option(
            help="none; default for the published weights of a timm:, torchvision: or hf: network; or a file"
        ),
    ] = "none",
    freeze: Annotated[
        bool, typer.Option("--freeze", help="train only the head, on features that are computed once")
    ] = False,
    mirror: Annotated[
        bool, typer.Option("--mirror", help="predict from the mean features of an image and its mirror image")
    ] = False,
    max_tokens: Annotated[int, typer.Option(help="the maximum length of a text")] = 256,
    width: Annotated[
        int | None, typer.Option(help="channels or units of the first layers; default: the backbone's")
    ] = None,
    sets: Annotated[str, typer.Option(help="number of sets besides the singletons, or `auto`")] = "20",
    budget: Annotated[
        Path | None, typer.Option(help="a budget.json to use instead of choosing the sets")
    ] = None,
    reducer: Annotated[str, typer.Option(help="how features are reduced to choose the sets")] = "pca",
    hidden: Annotated[
        str, typer.Option(help="widths of the head's hidden layers, such as 1024,512 (the paper's)")
    ] = "",
    members: Annotated[
        int | None,
        typer.Option(help="number of networks: trains an ensemble of rsnn or softmax networks; default: 5"),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="fast (AdamW, one cycle), fast-head (a faster head), speed (Muon, for fast_cnn), "
            "paper (200 epochs), text"
        ),
    ] = "fast",
    epochs: Annotated[int | None, typer.Option(help="passes over the data; default: the recipe's")] = None,
    first_epochs: Annotated[
        int | None,
        typer.Option(help="epochs of the plain network that a random-set network starts from; default: half"),
    ] = None,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="as in the paper: use the plain network only to choose the sets, and train the random-set "
            "network from random weights",
        ),
    ] = False,
    batch_size: Annotated[int | None, typer.Option(help="samples per step; default: the recipe's")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="the maximum; default: the recipe's")] = None,
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=WEIGHT",
            help="weights of classes in the loss: `balanced`, or a class and its weight; repeatable",
        ),
    ] = None,
    sampling: Annotated[
        str | None, typer.Option(help="uniform, or balanced: draw each class equally often")
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            help="none, flip, shift, photos (flips, crops, brightness, contrast), randaugment, mixup, or "
            "several, such as photos+mixup; default: the recipe's"
        ),
    ] = None,
    ema: Annotated[
        float | None, typer.Option(help="decay of a moving average of the weights, such as 0.999")
    ] = None,
    keep: Annotated[
        str,
        typer.Option(help="keep the weights of the `last` epoch, or of the `best` in validation"),
    ] = "last",
    alpha: Annotated[
        float, typer.Option(help="weight of the loss term that penalises negative masses")
    ] = 1e-3,
    beta: Annotated[
        float, typer.Option(help="weight of the loss term that penalises masses above one")
    ] = 1e-3,
    gamma: Annotated[
        float | None,
        typer.Option(help="weight of the likelihood in the loss; default: 0.3, or 0 with --from-scratch"),
    ] = None,
    reliability: Annotated[
        str,
        typer.Option(
            help="discounting of inputs unlike the training data: auto, neighbours, gaussians or none"
        ),
    ] = "auto",
    validation: Annotated[
        float | None,
        typer.Option(help="share or number of samples to validate on; default: 0.1, or as in the paper"),
    ] = None,
    calibration: Annotated[
        float | None, typer.Option(help="the same for conformal sets; default: 0.05, or as in the paper")
    ] = None,
    test: Annotated[
        float | None, typer.Option(help="the same to test on; default: 0.2, or the published test data")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="side in pixels to resize images to; default: as they are, or as the weights need"),
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="the column of labels in a table")] = None,
    text_column: Annotated[str | None, typer.Option(help="the column of texts in a table")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="fail if an image cannot be read")] = False,
    seed: Annotated[int, typer.Option(help="seed of all random numbers")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="resume the run in --out")] = False,
    config: Annotated[
        Path | None, typer.Option(help="a run folder or a config.json to take settings from")
    ] = None,
) -> None:
    """Train a random-set network: choose the sets, train the network, and calibrate it.

    With --method, train a baseline on the same data with the same recipe. Validation, calibration and test
    samples are held out, stratified by class. To resume an interrupted run, pass --out and --resume.
    """
    method = method if members is None else ensemble_of(method)
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    paths = TrainConfig(source=source, backbone=backbone, weights=weights).located()
    typed = {name: context.params[name] for name in names if name in context.params} | {
        "source": paths.source,
        "method": method,
        "backbone": paths.backbone,
        "weights": paths.weights,
        "num_sets": number_or_auto(sets),
        "hidden": _widths(hidden),
        "class_weight": class_weights(class_weight),
    }
    usual = usual_shares(paths.source)
    for name, value in (("validation", validation), ("calibration", calibration), ("test", test)):
        typed[name] = share_or_number(value, usual[name], name)
    check_seed(seed)
    own = ("sets", "budget", "reducer", "hidden", "first_epochs", "from_scratch", "alpha", "beta", "gamma")
    unused = [name for name in own if _was_given(context, name)]
    if unused and not classifier_class(method).chooses_sets:
        raise RandomSetError(
            "this option is only for random-set networks",
            got=f"--{unused[0].replace('_', '-')} with --method {method}",
        )
    given = {name for name in typed if _was_given(context, {"num_sets": "sets"}.get(name, name))}
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise RandomSetError(
            "randomset train runs in one process",
            got=f"WORLD_SIZE {os.environ['WORLD_SIZE']}",
            remedy="To train in several processes, call randomset.fit in a script",
        )
    settings = _settings(out, resume, config, typed, given).checked()
    if resume and budget is not None:
        raise RandomSetError(
            "a resumed run keeps its own budget", got=str(budget), remedy="Leave out --budget"
        )
    if resume and Run(out).is_trained:
        typer.echo(f"{out} is trained already. Next: randomset evaluate {out}")
        return
    try:
        threshold = Run.train(settings, out, budget=budget, resume=resume, strict=strict).threshold
    except TrainingStopped as stop:  # typer would swallow a KeyboardInterrupt and its message
        typer.echo(
            "Stopped. The progress is saved. To continue: "
            f"randomset train --out {shlex.quote(str(out))} --resume",
            err=True,
        )
        raise typer.Exit(128 + stop.signal) from None
    if threshold is not None:
        typer.echo(f"{threshold}")
    cls = classifier_class(settings.method)
    budget_file = "budget.json, " if cls.bounded else ""
    history = "a folder for each member" if issubclass(cls, Ensemble) else "metrics.csv, checkpoints/"
    written = f"model.safetensors, {budget_file}config.json, split.json, test.json, {history}"
    typer.echo(f"Wrote {written}{' and threshold.json' * (threshold is not None)} into {out}.")
    typer.echo(f"Next: randomset evaluate {out} --ood NAME=SOURCE, or randomset predict {out} INPUT")


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _settings(
    out: Path, resume: bool, config: Path | None, typed: dict[str, Any], given: set[str]
) -> TrainConfig:
    """Merge what was typed with the settings of a file, and print the result."""
    stored = out / "config.json"
    if resume:
        if not stored.exists():
            raise FileFormatError("no run to resume", got=str(out), expected="a run folder with config.json")
        settings = TrainConfig.load(stored)
        changed = [name for name in given if typed[name] != getattr(settings, name)]
        if changed:
            raise RandomSetError(
                "a resumed run keeps its own settings",
                got=", ".join(
                    f"{name} {typed[name]} instead of {getattr(settings, name)}" for name in changed
                ),
                remedy="Leave out these options, or choose another folder",
            )
        return settings
    if config is None:
        settings = TrainConfig(**typed)
    else:
        settings = dataclasses.replace(TrainConfig.load(config), **{name: typed[name] for name in given})
        if settings.members is not None:
            settings = dataclasses.replace(settings, method=ensemble_of(settings.method))
        typer.echo(f"Settings from {config}:")
        for name, value in dataclasses.asdict(settings).items():
            typer.echo(f"  {name} = {value}{'  (from the command line)' if name in given else ''}")
    return settings


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace(" ", "").split(",") if part)
    except ValueError:
        raise RandomSetError(
            "--hidden must be a list of widths", got=text, expected="such as 1024,512"
        ) from None
