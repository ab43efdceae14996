"""Every reader of files that the library has, with a file that it reads and ways to make that file wrong."""

import gzip
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

import randomset as rs
from randomset import backbones
from randomset.backbones.weights import read_weights
from randomset.data.arrays import read_idx
from randomset.data.sources import load_source
from randomset.data.splits import Parts
from randomset.evaluation import Evaluation, evaluate
from randomset.models import Epinet, Softmax
from randomset.models import load as load_model
from randomset.models.prediction import Threshold
from randomset.runs.data import NetworkInputs
from randomset.training.config import TrainConfig
from reproduction.exhibit import Outcome
from tests.hardening.mutations import (
    damaged,
    wrong_checkpoint,
    wrong_json,
    wrong_npz,
    wrong_safetensors,
    wrong_table,
)


@dataclass(frozen=True)
class Reader:
    """`read` is given the folder that `write` filled, after `spoil` was done to one file of it."""

    name: str
    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    spoil: Callable[..., bytes]
    examples: int | None = None
    """How many are enough where one takes long; None for as many as in other tests."""


SOURCE = "source.npz"


def network():
    torch.manual_seed(0)
    budget = rs.Budget.from_sets([{0, 1}], "abc").with_origin({"overlaps": [0.5]})
    model = rs.RandomSetNetwork(
        backbones.mlp(4, (3,)), budget, preprocess=rs.backbones.Standardise([0.0] * 4, [1.0] * 4)
    )
    model.notes = NOTES
    return model


NOTES = {
    "config": {"source": "x", "label_column": None, "text_column": None},
    "classes": ["a", "b", "c"],
    "input_shape": [4],
    "tokens": None,
    "columns": None,
    "largest_input": 1.0,
    "test": {},
    "seconds": 1.0,
}


def write_arrays(folder):
    draw = np.random.default_rng(0)
    labels, names = np.arange(12) % 3, np.array(["a", "b", "c"])
    np.savez(folder / SOURCE, features=draw.random((12, 4)), labels=labels, classes=names)


def write_evaluation(folder):
    inputs, labels = torch.rand(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    data = rs.data.sources.Source("x", "features", inputs, labels, ("a", "b", "c"))
    evaluate(network(), data, {"far": inputs + 9}, progress=False).save(folder)


def write_scores(folder):
    """Write an evaluation without the checksum of its scores, which would refuse all that are changed."""
    write_evaluation(folder)
    Evaluation.load(folder).to_json(folder / "evaluation.json")


def read_evaluation(folder):
    found = Evaluation.load(folder)
    return found.to_markdown(), found.summary, found.to_frame()


def write_images(folder):
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for number in range(2):
            Image.new("RGB", (6, 5), (9, 9 * number, 9)).save(folder / name / f"{number}.png")
    Image.new("L", (6, 5)).save(folder / "cat" / "0.jpg")
    Image.new("L", (6, 5)).save(folder / "cat" / "0.gif")
    Image.new("L", (6, 5)).save(folder / "cat" / "0.tiff")
    (folder / "classes.json").write_text('{"dog": "Dog", "cat": "Cat"}')


def write_idx(folder):
    pixels = np.arange(24, dtype=np.uint8)
    content = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 4) + pixels.tobytes()
    (folder / "idx").write_bytes(content)
    (folder / "idx.gz").write_bytes(gzip.compress(content))


def write_random_set(folder):
    rs.RandomSet.from_mass(
        torch.tensor([[0.5, 0.2, 0.1, 0.1, 0.1]]), network().budget.with_universal_set()
    ).save(folder / "set")


def write_baseline(model):
    def write(folder):
        model.notes = NOTES
        model.save(folder)

    return write


def write_earlier(model, key, description):
    """Write a model with a header of earlier versions, which still open."""

    def write(folder):
        header = {"format": f"randomset.{key}", "version": 1, "notes": NOTES, **description(model)}
        save_file(model.state_dict(), folder / "model.safetensors", {key: json.dumps(header)})

    return write


def earlier_network(model):
    names = ("budget", "backbone", "backbone_class", "replaced_layer", "preprocess", "calibration", "frozen")
    description = model.description()
    head = {"in_features": description["in_features"], **description["options"]}
    return {"head": head, **{name: description[name] for name in names}}


def earlier_baseline(model):
    names = ("method", "backbone", "num_classes", "channels", "options")
    return {"model": {name: model.description()[name] for name in names}}


def read_run(folder):
    """Open a run folder as commands do, and bring data to it."""
    model = load_model(folder)
    load = NetworkInputs(model, folder, strict=False)
    inputs = torch.rand(2, 4)
    found = load.fitting(rs.data.sources.Source("x", "features", inputs, torch.tensor([0, 1]), ("a", "b")))
    return found, load.config.get("source"), model.notes.get("seconds")


def write_split(folder):
    write_arrays(folder)
    data = load_source(str(folder / SOURCE))
    Parts.of(data, str(folder / SOURCE), 0.2, 0.1, 0.2, 0).save(folder / "split.json", data)


def read_split(folder):
    data = load_source(str(folder / SOURCE))
    parts = Parts.load(folder / "split.json", data)
    return (
        data.part(parts.train),
        data.part(parts.validation),
        data.part(parts.calibration),
        parts.test_data(data),
    )


def write_table(folder):
    (folder / "t.csv").write_text("a,b,label\n" + "".join(f"{n},{n / 2},{'xyz'[n % 3]}\n" for n in range(9)))


def write_texts(folder):
    (folder / "t.csv").write_text("text,label\n" + "".join(f"word {n},{'xyz'[n % 3]}\n" for n in range(9)))


def write_parquet(folder):
    import pandas

    pandas.DataFrame({"a": [1.0, 2, 3], "b": [4, 5, 6], "label": ["x", "y", "x"]}).to_parquet(
        folder / "t.parquet"
    )


def write_outcome(folder):
    Outcome("table-1", "tiny", 1, 1.0, 2.0, 0.0, {"a": {"b": [1.0, None]}}).save(folder)


def write_weights(folder):
    torch.save({"a.weight": torch.ones(2, 3), "a.bias": torch.ones(2)}, folder / "w.pt")


def softmax(kind=Softmax):
    return kind(backbone=backbones.mlp(4, (3,)), num_classes=3)


def fitted(folder, resume=False, model=None):
    """Train a network for an epoch of two batches, or resume."""
    data = torch.rand(24, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3
    torch.manual_seed(0)
    model = model or rs.RandomSetNetwork(backbones.mlp(4, (3,)), rs.Budget.powerset(3))
    options = {"epochs": 1, "batch_size": 8, "workers": 0, "progress": False, "logger": False}
    options["checkpoint_steps"] = 1
    held = tuple(part[16:] for part in data)
    return rs.fit(
        model, tuple(part[:16] for part in data), held, out=folder, resume=resume, **options
    ).history


def write_checkpoint(folder):
    """Leave the checkpoint between the two batches, so that there is something to resume."""
    fitted(folder, resume=True)
    (folder / "checkpoints" / "previous.ckpt").replace(folder / "checkpoints" / "last.ckpt")


def read_checkpoint(folder):
    """Resume from a checkpoint, which reads all of it."""
    return fitted(folder, resume=folder / "checkpoints" / "last.ckpt")


READERS = [
    Reader(
        "budget",
        "budget.json",
        lambda f: network().budget.save(f / "budget.json"),
        lambda f: repr(rs.Budget.load(f / "budget.json")) + rs.Budget.load(f / "budget.json").to_json(),
        wrong_json,
    ),
    Reader(
        "random set", "set", write_random_set, lambda f: str(rs.RandomSet.load(f / "set")), wrong_safetensors
    ),
    Reader("network", "model.safetensors", lambda f: network().save(f), read_run, wrong_safetensors),
    Reader("softmax", "model.safetensors", write_baseline(softmax()), read_run, wrong_safetensors),
    Reader("epinet", "model.safetensors", write_baseline(softmax(Epinet)), read_run, wrong_safetensors),
    Reader(
        "earlier network",
        "model.safetensors",
        write_earlier(network(), "network", earlier_network),
        read_run,
        wrong_safetensors,
    ),
    Reader(
        "earlier baseline",
        "model.safetensors",
        write_earlier(softmax(), "rival", earlier_baseline),
        read_run,
        wrong_safetensors,
    ),
    Reader(
        "config",
        "config.json",
        lambda f: TrainConfig(source="digits").save(f / "config.json"),
        lambda f: TrainConfig.load(f),
        wrong_json,
    ),
    Reader("split", "split.json", write_split, read_split, wrong_json),
    Reader(
        "threshold",
        "threshold.json",
        lambda f: Threshold("entropy", 0.5, 0.9).save(f),
        lambda f: Threshold.load(f),
        wrong_json,
    ),
    Reader("evaluation", "evaluation.json", write_evaluation, read_evaluation, wrong_json),
    Reader("scores", "scores.npz", write_scores, read_evaluation, wrong_npz),
    Reader(
        "outcome", "result.json", write_outcome, lambda f: Outcome.load(f / "result.json").seconds, wrong_json
    ),
    Reader("npz", SOURCE, write_arrays, lambda f: load_source(str(f / SOURCE)), wrong_npz),
    Reader(
        "npz unlabelled",
        SOURCE,
        write_arrays,
        lambda f: load_source(str(f / SOURCE), labelled=False),
        wrong_npz,
    ),
    Reader("png", "cat/0.png", write_images, lambda f: load_source(str(f), strict=False), damaged),
    Reader("jpg", "cat/0.jpg", write_images, lambda f: load_source(str(f), strict=True), damaged),
    Reader("gif", "cat/0.gif", write_images, lambda f: load_source(str(f), strict=False), damaged),
    Reader("tiff", "cat/0.tiff", write_images, lambda f: load_source(str(f), strict=False), damaged),
    Reader("classes", "classes.json", write_images, lambda f: load_source(str(f)), wrong_json),
    Reader("table", "t.csv", write_table, lambda f: load_source(str(f / "t.csv")), wrong_table),
    Reader(
        "table unlabelled",
        "t.csv",
        write_table,
        lambda f: load_source(str(f / "t.csv"), labelled=False),
        wrong_table,
    ),
    Reader("texts", "t.csv", write_texts, lambda f: load_source(str(f / "t.csv")), wrong_table),
    Reader("parquet", "t.parquet", write_parquet, lambda f: load_source(str(f / "t.parquet")), damaged),
    Reader("idx", "idx", write_idx, lambda f: read_idx(f / "idx"), damaged),
    Reader("idx.gz", "idx.gz", write_idx, lambda f: read_idx(f / "idx.gz"), damaged),
    Reader("checkpoint", "checkpoints/last.ckpt", write_checkpoint, read_checkpoint, wrong_checkpoint),
    Reader("weights", "w.pt", write_weights, lambda f: read_weights(f / "w.pt"), damaged),
]
