"""Untrusted files that name networks of other libraries: nothing is run, downloaded or requested."""

import builtins
import json
import socket
from pathlib import Path

import pytest
import torch

import randomset as rs
from randomset import backbones
from randomset.backbones import vision
from randomset.backbones.hugging_face import load_tokenizer
from randomset.backbones.registry import check_name
from randomset.errors import FileFormatError, RandomSetError
from randomset.models import Softmax
from randomset.models import load as load_model
from tests.hardening.test_fuzz import rewritten

BERT = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT |= {"intermediate_size": 8, "vocab_size": 11}
CODE = "open({!r}, 'w')\nfrom transformers import BertConfig, BertModel, BertTokenizer\n"
CODE += "class X(BertConfig): pass\nclass Y(BertModel): pass\nclass Z(BertTokenizer): pass\n"


@pytest.fixture
def untrusted(tmp_path, monkeypatch):
    """A folder with code next to a model; fails if anything runs it, asks the user or opens a connection."""
    folder, attempts = tmp_path / "untrusted", []
    folder.mkdir()
    (folder / "m.py").write_text(CODE.format(str(tmp_path / "executed")))
    maps = {"AutoConfig": "m.X", "AutoModel": "m.Y", "AutoTokenizer": ["m.Z", None]}
    (folder / "config.json").write_text(json.dumps({"model_type": "unknown", "auto_map": maps}))
    settings = {"tokenizer_class": "Unknown", "auto_map": maps}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")

    def refuse(*arguments, **options):
        attempts.append(arguments)
        raise OSError("there is no network")

    def consent(*arguments):
        attempts.append(arguments)
        return "y"

    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(builtins, "input", consent)
    yield folder
    assert not attempts
    assert not (tmp_path / "executed").exists()


def hf(name, **options):
    return {"name": f"hf:{name}", "options": options}


EXTERNAL_SPECS = {
    "a name": hf("evil/model"),
    "an address": hf("http://127.0.0.1:9/x"),
    "a folder": hf("FOLDER"),
    "a folder above": hf("../../x"),
    "published weights": hf("evil/model", config=BERT, weights="default"),
    "a file of weights": hf("evil/model", config=BERT, weights="/etc/hostname"),
    "inside another": {"name": "scaled", "options": {"backbone": hf("evil/model")}},
    "no configuration": hf("x", config="evil/model"),
    "timm with weights": {"name": "timm:resnet18", "options": {"weights": "default"}},
    "timm's hub": {"name": "timm:hf-hub:evil/x", "options": {}},
    "timm's folders": {"name": "timm:local-dir:/tmp/x", "options": {}},
    "a tag": {"name": "timm:resnet18.a/../x", "options": {}},
    "torchvision with weights": {"name": "torchvision:resnet18", "options": {"weights": "default"}},
    "a claim of channels": {"name": "timm:resnet18", "options": {"in_channels": 10**9}},
    "a claim of pixels": {"name": "torchvision:vit_b_16", "options": {"image_size": 10**7}},
    "code": {"name": "/tmp/evil.py:network", "options": {}},
    "code by address": {"name": "http://127.0.0.1/evil.py", "options": {}},
}
EXTERNAL_CONFIGS = {
    "auto_map": {"AutoModel": "FOLDER--m.Y"},
    "_attn_implementation": "evil/kernel",
    "attn_implementation": {"": "evil/kernel"},
    "backbone": "evil/model",
    "use_pretrained_backbone": True,
    "architecture": "hf-hub:evil/x",
    "text_config": {"model_type": "bert", "auto_map": {"AutoModel": "m.Y"}},
    "vision_config": [{"model_type": "timm_wrapper"}],
}


@pytest.fixture(params=["random set", "softmax"])
def load_with(request, tmp_path, monkeypatch):
    """Load a model after replacing the backbone specification in its file."""

    def imported():
        raise AssertionError("the library was imported")

    monkeypatch.setattr(vision, "timm", imported)
    monkeypatch.setattr(vision, "torchvision", imported)

    def load(spec):
        spec = json.loads(json.dumps(spec).replace("FOLDER", str(tmp_path / "untrusted")))
        if request.param == "random set":
            rs.RandomSetNetwork(backbones.mlp(4, (3,)), rs.Budget.powerset(3)).save(tmp_path / "run")
        else:
            Softmax(backbone=backbones.mlp(4, (3,)), num_classes=3).save(tmp_path / "run")

        def change(description):
            return description | {"model": description["model"] | {"backbone": spec}}

        rewritten(tmp_path / "run" / "model.safetensors", "model", change)
        return load_model(tmp_path / "run")

    return load


@pytest.mark.parametrize("spec", EXTERNAL_SPECS.values(), ids=EXTERNAL_SPECS)
def test_specs_that_refer_to_something_outside_the_file(untrusted, load_with, spec):
    with pytest.raises(RandomSetError, match=r"invalid backbone specification|unknown backbone"):
        load_with(spec)


@pytest.mark.parametrize("name", EXTERNAL_CONFIGS)
def test_configurations_that_refer_to_something_outside_the_file(untrusted, load_with, name):
    with pytest.raises(FileFormatError, match="refers to code or models outside its file"):
        load_with(hf("x", config={**BERT, name: EXTERNAL_CONFIGS[name]}))


@pytest.mark.parametrize(
    "claim",
    [
        {"vocab_size": 10**9},
        {"hidden_size": 10**6},
        {"num_hidden_layers": 10**9},
        {"model_type": "gpt2", "n_positions": 10**6},
    ],
)
def test_configurations_that_claim_huge_networks(untrusted, load_with, claim):
    with pytest.raises(FileFormatError, match=r"does not match its weights|not that of its weights"):
        load_with(hf("x", config=BERT | claim))


def test_what_we_write_can_be_loaded(untrusted, tmp_path):
    """Including a model that came with code, which transformers does not need."""
    backbone = backbones.build("hf:x", config={**BERT, "auto_map": {"AutoModel": "m.Y"}})
    assert "auto_map" not in backbone.spec["options"]["config"]
    tokens = torch.tensor([[1, 2, 3], [4, 5, -1]])
    for inner in (backbone, backbones.scaled(backbone)):
        network = rs.RandomSetNetwork(inner, rs.Budget.powerset(3)).eval()
        network.save(tmp_path / "run")
        assert torch.equal(rs.RandomSetNetwork.load(tmp_path / "run")(tokens), network(tokens))
    from huggingface_hub import constants

    assert constants.HF_HUB_OFFLINE is False  # restored


@pytest.mark.parametrize(
    "name",
    [
        "hf:http://127.0.0.1:9/x",
        "hf:https://huggingface.co/evil/model",
        "hf:/no/such/folder",
        "hf:../x",
        "timm:hf-hub:evil/x",
        "timm:hf_hub:evil/x",
        "timm:local-dir:/tmp",
        "torchvision:../x",
        "evil.py:network",
    ],
)
def test_invalid_names(untrusted, monkeypatch, name):
    """From any source, such as a config.json."""
    monkeypatch.chdir(untrusted)  # where there is no ../x
    monkeypatch.setattr(vision, "timm", lambda: pytest.fail("timm was imported"))
    with pytest.raises(RandomSetError, match=r"unknown backbone|nor a valid model name"):
        check_name(name)


def test_code_next_to_a_model(untrusted):
    for weights in ("none", "default"):
        with pytest.raises(FileFormatError, match="cannot be loaded from its folder"):
            backbones.build(f"hf:{untrusted}", weights=weights)
    with pytest.raises(FileFormatError, match="cannot be loaded from its folder"):
        load_tokenizer(untrusted)


def test_a_run_without_its_tokenizer(untrusted, tmp_path, monkeypatch):
    """`run/tokenizer` could be a model on the hub."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileFormatError, match="tokenizer not found; got run/tokenizer"):
        load_tokenizer(Path("run") / "tokenizer")
