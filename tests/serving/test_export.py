"""ONNX and torch.export give the same numbers as torch, on real images."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from randomset import Budget, backbones
from randomset.backbones.inputs import Standardise
from randomset.errors import FileFormatError, RandomSetError
from randomset.evaluation import Threshold
from randomset.models.calibration import BeliefTemperature, PignisticTemperature
from randomset.serving import Deployed, export, export_onnx, export_torch
from randomset.serving.export import TOLERANCE
from tests.serving.conftest import TEN, digits, network_of
from tests.strategies import random_budget
from tests.texts import tiny_bert

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
THOUSAND = random_budget(1000, 3000, seed=1, max_size=3)
BUDGETS = pytest.mark.parametrize("budget", [TEN, THOUSAND], ids=["10 classes", "1000 classes"])
THRESHOLD = Threshold("entropy", 2.0, 0.95)


def images_and_network(name, budget=TEN):
    if name == "small_cnn":
        network = network_of(backbones.small_cnn(), budget, preprocess=Standardise(0.2, 0.3))
        if budget is THOUSAND:
            network.calibration = BeliefTemperature([1.0, 2.0])
        return digits(28), network
    if name == "resnet18":
        preprocess = Standardise([0.5] * 3, [0.25] * 3)
        network = network_of(backbones.resnet(18, width=16), budget, preprocess=preprocess)
        network.calibration = PignisticTemperature(1.4)
        return digits(32, 3), network
    if name == "fast_cnn":
        backbone, preprocess, images = backbones.fast_cnn(1, 16), Standardise(0.2, 0.3), digits(28)
        backbones.whiten(backbone, images, preprocess)
        return images, network_of(backbones.mirrored(backbone), budget, preprocess=preprocess)
    settings = {
        "model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "image_size": 32, "patch_size": 8,
    }  # fmt: skip
    backbone = backbones.build("hf:vit", config=settings, image_size=32)
    return digits(32, 3), network_of(backbone, budget, preprocess=Standardise([0.5] * 3, [0.5] * 3))


def session_of(path):
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def check_same(answers, network, inputs):
    """Compare with `predict`."""
    expected = network.predict(inputs)
    pairs = {
        "probabilities": expected.pignistic, "lower": expected.lower, "upper": expected.upper,
        "entropy": expected.entropy, "credal_width": expected.credal_width, "mass": expected.mass,
        "confidence": expected.confidence,
    }  # fmt: skip
    for name, want in pairs.items():
        np.testing.assert_allclose(answers[name], want.numpy(), atol=TOLERANCE, err_msg=name)
    assert (answers["label"] == expected.labels.numpy()).all()
    assert (answers["known"] == (expected.entropy <= THRESHOLD.value).numpy()).all()


@BUDGETS
@pytest.mark.parametrize("name", ["small_cnn", "fast_cnn", "resnet18", "ViT"])
def test_onnx_matches_torch_for_any_batch(name, budget, tmp_path):
    images, network = images_and_network(name, budget)
    distance = export_onnx(Deployed(network, THRESHOLD), images[:3], tmp_path / "model.onnx")
    assert distance is not None
    assert distance <= TOLERANCE
    session = session_of(tmp_path / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    for part in (images[:1], images[3:]):
        check_same(dict(zip(names, session.run(names, {"inputs": part.numpy()}), strict=True)), network, part)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == list(network.budget.classes)
    whole = network.budget.with_universal_set()
    assert json.loads(about["sets"])[-1] == list(whole.names_of(len(whole) - 1))
    assert json.loads(about["threshold"]) == {"score": "entropy", "value": 2.0}
    known = {"shape": list(images.shape[1:]), "dtype": "uint8", "largest": 255}
    assert json.loads(about["input"]) == known


@pytest.mark.parametrize("write", [export_onnx, export_torch])
def test_differences_are_refused_and_an_earlier_file_stays(write, tmp_path, monkeypatch):
    images, network = images_and_network("small_cnn")
    path = tmp_path / "model"
    path.write_text("precious")
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(FileFormatError, match="differs from the network"):
        write(Deployed(network, THRESHOLD), images[:3], path)
    assert path.read_text() == "precious"


def test_reliability_is_exported(tmp_path):
    network = network_of(backbones.mlp(4), Budget.powerset(3))
    inputs, labels = torch.randn(200, 4), torch.arange(200) % 3
    network.fit_reliability((inputs, labels), (inputs[:100], labels[:100]))
    threshold = Threshold("1 - reliability", 0.5, 0.95)
    deployed, far = Deployed(network, threshold), torch.cat((inputs[:5], 30 * inputs[:5]))
    difference = export_onnx(deployed, inputs[:3], tmp_path / "model.onnx")
    assert difference is not None
    assert difference < 1e-5
    session = session_of(tmp_path / "model.onnx")
    found = dict(
        zip((o.name for o in session.get_outputs()), session.run(None, {"inputs": far.numpy()}), strict=True)
    )
    answer = network.predict(far)
    assert np.allclose(found["reliability"], answer.reliability, atol=1e-5)
    assert np.allclose(found["mass"], answer.mass, atol=1e-5)
    assert found["mass"][5:, -1].min() > 0.9
    assert found["known"].tolist() == (1 - answer.reliability <= 0.5).tolist()
    assert not found["known"][5:].any()
    assert export_torch(deployed, inputs[:3], tmp_path / "model.pt2") < 1e-5


def test_nan_is_an_infinite_difference():
    number, none = {"a": torch.ones(2), "b": torch.ones(1)}, {"a": torch.tensor([1.0, float("nan")])}
    assert export._distance(number, {**none, "b": torch.ones(1)}) == float("inf")
    assert export._distance(number, number) == 0.0


def test_exported_program_runs_without_this_package(tmp_path):
    images, network = images_and_network("small_cnn")
    assert export_torch(Deployed(network, THRESHOLD), images[:3], tmp_path / "model.pt2") <= TOLERANCE
    code = (
        "import sys, torch; sys.modules['randomset'] = None; more = {'randomset.json': ''};"
        "program = torch.export.load(sys.argv[1], extra_files=more).module();"
        "images = torch.load(sys.argv[2], weights_only=True);"
        "torch.save({k: v for k, v in program(images).items()}, sys.argv[3]); print(more['randomset.json'])"
    )
    torch.save(images, tmp_path / "images.pt")
    files = [tmp_path / name for name in ("model.pt2", "images.pt", "answers.pt")]
    out = subprocess.run([sys.executable, "-c", code, *map(str, files)], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert json.loads(json.loads(out.stdout)["classes"]) == list(network.budget.classes)
    answers = torch.load(tmp_path / "answers.pt", weights_only=True)
    check_same({name: value.numpy() for name, value in answers.items()}, network, images)


@pytest.mark.parametrize("budget", [Budget.powerset(5), TEN, THOUSAND], ids=["5 classes", "10", "1000"])
def test_texts_of_any_length(budget, tmp_path):
    backbone = backbones.build(f"hf:{tiny_bert(tmp_path)}")
    network = network_of(backbone, budget)
    tokens = torch.full((4, 24), -1)
    for row, length in enumerate((24, 3, 9, 1)):
        tokens[row, :length] = torch.arange(length) % 14 + 4
    export_onnx(Deployed(network, THRESHOLD), tokens, tmp_path / "model.onnx")
    session = session_of(tmp_path / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    for part in (tokens, tokens[1:3, :9]):
        check_same(dict(zip(names, session.run(names, {"inputs": part.numpy()}), strict=True)), network, part)


@pytest.mark.parametrize(("takes", "gets"), [("bytes", "bytes"), ("floats", "bytes"), ("bytes", "floats")])
def test_example_needs_only_numpy_and_onnxruntime(tmp_path, takes, gets):
    images, network = images_and_network("small_cnn")
    network.notes = {**network.notes, "largest_input": 1.0}
    forms = {"bytes": images, "floats": images / 255}
    export_onnx(Deployed(network, THRESHOLD), forms[takes][:3], tmp_path / "model.onnx")
    np.savez(tmp_path / "images.npz", images=forms[gets].numpy())
    example = Path(__file__).parents[2] / "examples" / "onnx_only.py"
    code = (
        "import sys, runpy; sys.modules['torch'] = sys.modules['randomset'] = None;"
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    files = [str(tmp_path / name) for name in ("model.onnx", "images.npz")]
    out = subprocess.run([sys.executable, "-c", code, str(example), *files], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    lines = out.stdout.splitlines()
    assert len(lines) == len(images)
    expected = network.predict(images)
    for line, name, known in zip(lines, expected.label_names, expected.entropy <= 2, strict=True):
        assert f": {name}, probability in [" in line
        assert ("rejected as unknown" in line) == (not known)
        assert "familiar" not in line  # the network has no reliability


@pytest.mark.parametrize("score", ["credal width", "non-specificity", "1 - maximum", "1 - reliability"])
def test_threshold_on_another_score(score):
    images, network = images_and_network("small_cnn")
    train, labels = torch.rand(200, *images.shape[1:]), torch.arange(200) % 10
    network.fit_reliability((train, labels), (images.repeat(2, 1, 1, 1) / 255, torch.arange(24) % 10))
    answer = network.predict(images)
    values = {
        "credal width": answer.credal_width,
        "non-specificity": answer.nonspecificity,
        "1 - maximum": 1 - answer.confidence,
        "1 - reliability": 1 - answer.reliability,
    }[score]
    threshold = Threshold(score, float(values.median()), 0.5)
    with torch.no_grad():
        found = Deployed(network, threshold)(images)["known"]
    assert found.sum() == (len(images) + 1) // 2
    assert torch.equal(found, values <= threshold.value)


def test_threshold_on_an_unavailable_score(tmp_path):
    deployed = Deployed(network_of(backbones.mlp(4)), Threshold("1 - reliability", 0.5, 0.95))
    message = (
        "does not provide the threshold's score; got 1 - reliability; expected one of entropy, .*mass on Θ"
    )
    for write in (export_onnx, export_torch):
        with pytest.raises(RandomSetError, match=message):
            write(deployed, torch.randn(3, 4), tmp_path / "model")
    assert not (tmp_path / "model").exists()


class DataDependent(nn.Module):
    """A module whose control flow depends on its input."""

    num_features = 4

    def forward(self, x):
        return x if float(x.sum()) > 0 else -x


@pytest.mark.parametrize("write", [export_onnx, export_torch])
def test_data_dependent_backbone_cannot_be_exported(write, tmp_path):
    path = tmp_path / "model"
    with pytest.raises(RandomSetError, match="cannot be exported"):
        write(Deployed(network_of(DataDependent())), torch.randn(3, 4), path)
    assert not path.exists()


def test_example_of_one_input_is_refused(tmp_path):
    with pytest.raises(RandomSetError, match="got 1 inputs; expected 2 or more"):
        export_onnx(Deployed(network_of(backbones.mlp(4))), torch.randn(1, 4), tmp_path / "model.onnx")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_prediction_compiles():
    images, network = images_and_network("small_cnn")
    deployed = Deployed(network, THRESHOLD).eval()
    with torch.no_grad():
        answers = torch.compile(deployed, fullgraph=True)(images)
    check_same({name: value.numpy() for name, value in answers.items()}, network, images)
