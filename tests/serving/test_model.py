"""Images, numbers and texts become inputs, within limits."""

import asyncio

import numpy as np
import pytest
import torch

from randomset import Budget, RandomSetNetwork, backbones
from randomset.backbones.hugging_face import load_tokenizer, tokenize
from randomset.models import Softmax
from randomset.serving.model import ServedModel, _configure_pillow
from tests.serving.conftest import LIMITS, PNG, as_file, noted, pngs, served
from tests.texts import tiny_bert

pytestmark = pytest.mark.slow  # FastAPI takes seconds to import


def test_images_of_another_size_colour_and_format(images):
    client, _ = images
    large = np.random.default_rng(0).integers(0, 255, (60, 90, 3), dtype=np.uint8)
    for format in ("PNG", "JPEG", "WEBP", "BMP", "GIF"):
        content = as_file(large, format)
        reply = client.post("/predict", content=content, headers={"Content-Type": "image/any"})
        assert reply.status_code == 200, (format, reply.text)


def test_decompression_bomb(images):
    client, _ = images
    bomb = as_file(np.zeros((9000, 9000), np.uint8))
    assert len(bomb) < LIMITS.bytes  # a small file of 81 million pixels
    reply = client.post("/predict", content=bomb, headers=PNG)
    assert reply.status_code == 413


def test_the_limit_of_the_whole_process_stays(images, monkeypatch):
    from PIL import Image

    before = Image.MAX_IMAGE_PIXELS
    assert before is not None
    _configure_pillow(10)
    assert before == Image.MAX_IMAGE_PIXELS  # a TIFF's tiles may be larger than the image
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", before)
    _configure_pillow(2 * before)
    assert 2 * before == Image.MAX_IMAGE_PIXELS


def test_images_too_large_in_total(images):
    client, _ = images
    one = as_file(np.zeros((90, 90), np.uint8))
    post = lambda count: client.post("/predict", files=[("files", ("a.png", one))] * count)  # noqa: E731
    assert post(4).status_code == 200
    reply = post(5)
    assert reply.status_code == 413
    assert "too large in total; got 40500 pixels; expected at most 40000" in reply.json()["error"]


def test_decoding_stops_at_the_deadline(images):
    model = ServedModel.__new__(ServedModel)
    model.limits, model.kind, model.shape = LIMITS, "images", [1, 16, 16]
    with pytest.raises(asyncio.TimeoutError):
        model.from_files(pngs(2), until=0.0)


def test_truncated_image(images):
    client, _ = images
    whole = as_file(np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8))
    reply = client.post("/predict", content=whole[: len(whole) // 2], headers=PNG)
    assert reply.status_code == 422


def test_model_description(images):
    client, network = images
    about = client.get("/model").json()
    assert about["classes"] == list(network.budget.classes)
    family = network.budget.with_universal_set()  # as the masses of an answer
    assert about["sets"] == [list(family.names_of(i)) for i in range(len(family))]
    assert about["input"] == {"kind": "images", "shape": [1, 16, 16], "expected": "n × 1 × 16 × 16 images"}
    assert about["reliability"] is None
    assert about["threshold"] == {"score": "entropy", "value": 2.0}
    assert about["metrics"]["accuracy"] == 0.9


def test_a_network_with_a_reliability(tmp_path):
    network = RandomSetNetwork(backbones.mlp(4), Budget.powerset(3)).eval()
    inputs = torch.randn(200, 4)
    network.fit_reliability((inputs, torch.arange(200) % 3), (inputs[:50], torch.arange(50) % 3))
    noted(network, (4,), classes=["a", "b", "c"]).save(tmp_path)
    with served(tmp_path) as client:
        about = client.get("/model").json()["reliability"]
        assert about == {"kind": "auto", "familiar_from": network.predict(inputs).familiar_from}
        reply = client.post("/predict", json={"inputs": [inputs[0].tolist(), [90.0] * 4]})
    found = [answer["reliability"] for answer in reply.json()["predictions"]]
    expected = network.predict(torch.stack((inputs[0], torch.full((4,), 90.0)))).reliability
    assert found == pytest.approx(expected.tolist(), abs=1e-5)
    assert found[1] < 0.1
    assert [answer["familiar"] for answer in reply.json()["predictions"]][1] is False


def test_features_and_a_baseline(tmp_path):
    model = noted(Softmax(backbones.mlp(4), 10), (4,), largest_input=50.0)
    model.save(tmp_path)
    with served(tmp_path) as client:
        for inputs in ([1.0, 2.0, 3.0, 40.0], [[1.0, 2.0, 3.0, 40.0]]):
            answer = client.post("/predict?masses=true", json={"inputs": inputs}).json()["predictions"][0]
            p = model.predict(torch.tensor([[1.0, 2.0, 3.0, 40.0]])).probabilities[0]
            assert answer["confidence"] == pytest.approx(p.max().item(), abs=1e-5)
            assert answer["known"] is None
        assert client.get("/model").json()["method"] == "softmax"
        assert client.post("/predict", json={"inputs": [1.0]}).status_code == 422
        assert client.post("/predict", content=pngs(1)[0], headers=PNG).status_code == 422


def test_texts(tmp_path):
    bert = tmp_path / "bert"
    bert.mkdir()
    tiny_bert(bert)
    network = RandomSetNetwork(backbones.build(f"hf:{bert}", weights="default"), Budget.powerset(3))
    noted(network.eval(), (32,), tokens=32, classes=["a", "b", "c"]).save(tmp_path)
    tokenizer = load_tokenizer(bert)
    tokenizer.save_pretrained(str(tmp_path / "tokenizer"))
    with served(tmp_path) as client:
        reply = client.post("/predict", json={"texts": ["cats purr", "the dogs bark loudly"]})
        assert reply.status_code == 200, reply.text
        expected = network.predict(tokenize(["cats purr", "the dogs bark loudly"], tokenizer, 32))
        found = [answer["entropy"] for answer in reply.json()["predictions"]]
        assert found == pytest.approx(expected.entropy.tolist(), abs=1e-5)
        for wrong in ([], [""], [3], "", {"a": 1}):
            assert client.post("/predict", json={"texts": wrong}).status_code == 422
        assert client.post("/predict", json={"inputs": [1]}).status_code == 422
