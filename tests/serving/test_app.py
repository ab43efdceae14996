"""The service: what it answers, and what it refuses."""

import asyncio
import io
import json

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from randomset import Budget, RandomSetNetwork, backbones
from randomset.backbones.preprocessing import Standardise
from randomset.cli.serve import _hosts
from randomset.evaluation import Threshold
from randomset.models import Softmax
from randomset.serving.app import create_app
from randomset.serving.model import Limits, ServedModel
from tests.serving.test_export import digits, network_of
from tests.texts import tiny_bert

pytestmark = pytest.mark.slow  # FastAPI takes seconds to import
JSON, PNG = {"Content-Type": "application/json"}, {"Content-Type": "image/png"}
LIMITS = Limits(bytes=200_000, pixels=10_000, batch=16, waiting=32, seconds=20)


def noted(model, shape, **more):
    model.notes = {
        "classes": [str(digit) for digit in range(10)],
        "input_shape": list(shape),
        "largest_input": 1.0,
        "test": {"accuracy": 0.9, "samples": 100},
        **more,
    }
    return model


def served(folder, limits=LIMITS):
    return TestClient(create_app(ServedModel(folder, limits)), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A client of an image network, and the network."""
    folder = tmp_path_factory.mktemp("images")
    network = network_of(backbones.small_cnn(image_size=16), preprocess=Standardise(0.2, 0.3))
    noted(network, (1, 16, 16)).save(folder)
    Threshold("entropy", 2.0, 0.95).save(folder)
    with served(folder) as client:
        yield client, network


def as_file(array, format="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, format, **options)
    return stream.getvalue()


LARGE = as_file(np.zeros((200, 200), np.uint8))


def pngs(count):
    return [as_file(image[0].numpy()) for image in digits(16)[:count]]


class TestPredict:
    def test_files(self, images):
        client, network = images
        files = [("files", (f"{i}.png", one, "image/png")) for i, one in enumerate(pngs(5))]
        reply = client.post("/predict", files=files)
        assert reply.status_code == 200, reply.text
        answers, expected = reply.json()["predictions"], network.predict(digits(16)[:5])
        assert [answer["label"] for answer in answers] == expected.label_names
        np.testing.assert_allclose([a["entropy"] for a in answers], expected.entropy.numpy(), atol=1e-5)
        np.testing.assert_allclose([a["credal_width"] for a in answers], expected.credal_width, atol=1e-5)
        assert [answer["known"] for answer in answers] == (expected.entropy <= 2).tolist()
        assert all(a["lower"] <= a["confidence"] + 1e-6 <= a["upper"] + 2e-6 for a in answers)
        assert "masses" not in answers[0]

    def test_a_body_that_is_an_image(self, images):
        client, network = images
        reply = client.post("/predict", content=pngs(1)[0], headers=PNG)
        assert reply.json()["predictions"][0]["label"] == network.predict(digits(16)[:1]).label_names[0]

    def test_masses_on_request(self, images):
        client, network = images
        reply = client.post("/predict?masses=true", content=pngs(1)[0], headers=PNG)
        answer, expected = reply.json()["predictions"][0], network.predict(digits(16)[:1])
        assert sum(part["mass"] for part in answer["masses"]) == pytest.approx(1, abs=1e-5)
        assert list(answer["probabilities"].values()) == pytest.approx(
            expected.pignistic[0].tolist(), abs=1e-5
        )
        low, high = answer["intervals"][answer["label"]]
        assert (low, high) == pytest.approx((answer["lower"], answer["upper"]), abs=1e-6)

    @pytest.mark.parametrize("bytes", [False, True])
    @pytest.mark.parametrize("layout", ["one", "channel", "batch", "batch without channel"])
    def test_numbers(self, images, layout, bytes):
        client, network = images
        pixels = digits(16)[:3]
        inputs = {
            "one": pixels[0, 0], "channel": pixels[0], "batch": pixels, "batch without channel": pixels[:, 0],
        }[layout]  # fmt: skip
        numbers = inputs if bytes else inputs / 255
        reply = client.post("/predict", json={"inputs": numbers.tolist(), "bytes": bytes})
        assert reply.status_code == 200, reply.text
        found = [answer["entropy"] for answer in reply.json()["predictions"]]
        count = 3 if "batch" in layout else 1
        assert found == pytest.approx(network.predict(pixels[:count]).entropy.tolist(), abs=1e-4)

    def test_images_of_another_size_and_colour(self, images):
        client, _ = images
        large = np.random.default_rng(0).integers(0, 255, (60, 90, 3), dtype=np.uint8)
        for format in ("PNG", "JPEG", "WEBP", "BMP", "GIF"):
            content = as_file(large, format)
            reply = client.post("/predict", content=content, headers={"Content-Type": "image/any"})
            assert reply.status_code == 200, (format, reply.text)


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "message", "request_options"),
        [
            (422, "no image", {"content": b"not an image", "headers": PNG}),
            (422, "no image", {"content": b"", "headers": PNG}),
            (422, "this kind of content", {"content": b"x", "headers": {"Content-Type": "text/plain"}}),
            (422, "no JSON", {"content": b"{", "headers": JSON}),
            (422, "no JSON", {"content": b'{"inputs": NaN}', "headers": JSON}),
            (422, "no JSON", {"content": b"[" * 10**5, "headers": JSON}),
            (422, "has no input", {"json": {}}),
            (422, "has no input", {"json": [1, 2]}),
            (422, "takes no texts", {"json": {"texts": ["a"]}}),
            (422, "is empty", {"json": {"inputs": []}}),
            (422, "no regular arrays", {"json": {"inputs": [[1], [1, 2]]}}),
            (422, "no regular arrays", {"json": {"inputs": "text"}}),
            (422, "no regular arrays", {"json": {"inputs": {"a": 1}}}),
            (422, "not finite", {"json": {"inputs": [[1e300]]}}),
            (422, "no regular arrays", {"json": {"inputs": [["0.5"]]}}),
            (422, "no regular arrays", {"json": {"inputs": [[True]]}}),
            (422, "neither true nor false", {"json": {"inputs": [[0.5]], "bytes": "yes"}}),
            (422, "bytes are whole numbers", {"json": {"inputs": [[0.5]], "bytes": True}}),
            (422, "1, 3 or 4 channels", {"json": {"inputs": [[[[0.5]], [[0.5]]]]}}),
            (422, "do not fit", {"json": {"inputs": 3}}),
            (422, "do not fit", {"json": {"inputs": [[[[[1]]]]]}}),
            (422, "out of range; got from 0 to 7", {"json": {"inputs": [[0, 7], [0, 1]]}}),
            (413, "too many inputs", {"json": {"inputs": [[[[0.0] * 4] * 4]] * 17}}),
            (413, "too large; got 40000 pixels", {"content": LARGE, "headers": PNG}),
            (413, "too long", {"content": b"x" * 200_001, "headers": PNG}),
            (422, "a field named files", {"files": {"other": b"x"}}),
            (422, "is empty", {"files": {"files": (None, "x")}}),
        ],
    )  # fmt: skip
    def test_what_and_why(self, images, status, message, request_options):
        client, _ = images
        reply = client.post("/predict", **request_options)
        assert reply.status_code == status, reply.text
        assert message in reply.json()["error"]
        assert "Traceback" not in reply.text

    def test_a_long_body_without_a_length(self, images):
        client, _ = images
        reply = client.post(
            "/predict",
            content=(b"x" * 1000 for _ in range(1000)),
            headers=JSON,
        )
        assert reply.status_code == 413

    def test_a_bomb_of_pixels(self, images):
        client, _ = images
        bomb = as_file(np.zeros((9000, 9000), np.uint8))
        assert len(bomb) < LIMITS.bytes  # small on the wire, 81 million pixels
        reply = client.post("/predict", content=bomb, headers=PNG)
        assert reply.status_code == 413

    def test_many_pictures_that_are_large_together(self, images):
        client, _ = images
        one = as_file(np.zeros((90, 90), np.uint8))
        post = lambda count: client.post("/predict", files=[("files", ("a.png", one))] * count)  # noqa: E731
        assert post(4).status_code == 200
        reply = post(5)
        assert reply.status_code == 413
        assert "too large together; got 40500 pixels; expected at most 40000" in reply.json()["error"]

    def test_too_many_files(self, images):
        client, _ = images
        for count in (17, 40):
            files = [("files", ("a.png", pngs(1)[0]))] * count
            assert client.post("/predict", files=files).status_code == 413

    def test_a_form_that_ends_too_early(self, images):
        client, _ = images
        head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        whole = b"".join(head + one + b"\r\n" for one in pngs(2)) + b"--b--\r\n"
        form = {"Content-Type": "multipart/form-data; boundary=b"}
        assert len(client.post("/predict", content=whole, headers=form).json()["predictions"]) == 2
        for cut in (4, 60, len(whole) - 20):
            reply = client.post("/predict", content=whole[:-cut], headers=form)
            assert reply.status_code == 422
            assert "incomplete" in reply.json()["error"]
        lacking = {"Content-Type": "multipart/form-data"}
        assert client.post("/predict", content=whole, headers=lacking).status_code == 422

    def test_json_is_shorter_than_files(self, tmp_path):
        network = network_of(backbones.mlp(4))
        noted(network, (4,)).save(tmp_path)
        with served(tmp_path, Limits()) as client:
            body = b'{"inputs": [' + b"[]," * 1_500_000 + b"[]]}"
            reply = client.post("/predict", content=body, headers=JSON)
        assert reply.status_code == 413
        assert "at most 4194304 bytes of JSON" in reply.json()["error"]

    def test_reading_ends_with_the_time(self, images):
        model = ServedModel.__new__(ServedModel)
        model.limits, model.kind, model.shape = LIMITS, "images", [1, 16, 16]
        with pytest.raises(asyncio.TimeoutError):
            model.from_files(pngs(2), until=0.0)

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({"Host": "127.0.0.1:8000"}, 200),
            ({"Host": "[::1]:8000"}, 200),
            ({"Host": "LOCALHOST", "Origin": "http://localhost:8000"}, 200),
            ({"Host": "evil.example:8000"}, 403),
            ({"Host": "localhost", "Origin": "https://evil.example"}, 403),
            ({"Host": "localhost", "Origin": "null"}, 403),  # a frame that hides where it comes from
        ],
    )
    def test_names_of_this_machine_alone(self, tmp_path, headers, status):
        noted(network_of(backbones.mlp(4)), (4,)).save(tmp_path)
        app = create_app(ServedModel(tmp_path), hosts=_hosts("127.0.0.1", []))
        with TestClient(app) as client:
            assert client.get("/model", headers=headers).status_code == status

    def test_names_elsewhere(self):
        assert _hosts("0.0.0.0", []) is None
        assert "a.example" in (_hosts("0.0.0.0", ["A.example"]) or ())

    def test_a_picture_that_ends_too_early(self, images):
        client, _ = images
        whole = as_file(np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8))
        reply = client.post("/predict", content=whole[: len(whole) // 2], headers=PNG)
        assert reply.status_code == 422

    def test_an_error_of_ours_tells_nothing(self, images, monkeypatch):
        client, _ = images
        monkeypatch.setattr(ServedModel, "from_files", lambda self, files, until: 1 / 0)
        reply = client.post("/predict", content=b"x", headers=PNG)
        assert reply.status_code == 500
        assert "division" not in reply.text
        assert 'randomset_requests_total{path="/predict",status="500"}' in client.get("/metrics").text

    def test_other_ways_and_places(self, images):
        client, _ = images
        assert client.get("/predict").status_code == 405
        assert client.head("/").status_code == 200
        assert client.head("/health").status_code == 200
        assert client.get("/nothing").status_code == 404
        assert client.get("/..%2f..%2fetc%2fpasswd").status_code == 404
        assert client.post("/predict?masses=maybe", json={"inputs": []}).status_code == 422

    def test_busy(self, tmp_path):
        network = network_of(backbones.mlp(4))
        noted(network, (4,)).save(tmp_path)
        with served(tmp_path, Limits(waiting=2)) as client:
            assert client.post("/predict", json={"inputs": [[0.0] * 4] * 2}).status_code == 200
            reply = client.post("/predict", json={"inputs": [[0.0] * 4] * 3})
        assert reply.status_code == 503
        assert reply.headers["Retry-After"] == "1"


def test_what_the_model_is(images):
    client, network = images
    about = client.get("/model").json()
    assert about["classes"] == list(network.budget.classes)
    family = network.budget.with_universal_set()  # as the masses of an answer
    assert about["sets"] == [list(family.names_of(i)) for i in range(len(family))]
    assert about["input"] == {"kind": "images", "shape": [1, 16, 16], "expected": "n × 1 × 16 × 16 images"}
    assert about["threshold"] == {"score": "entropy", "value": 2.0}
    assert about["metrics"]["accuracy"] == 0.9


def test_health_metrics_and_description(images):
    client, _ = images
    assert client.get("/health").json() == {"status": "ok"}
    client.post("/predict", content=pngs(1)[0], headers=PNG)
    text = client.get("/metrics").text
    assert 'randomset_requests_total{path="/predict",status="200"}' in text
    assert "randomset_batch_size_bucket" in text
    assert "randomset_waiting_inputs 0.0" in text
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/predict", "/model", "/samples", "/health", "/metrics"}
    assert "multipart/form-data" in paths["/predict"]["post"]["requestBody"]["content"]


def test_the_page_asks_nobody_else(images):
    client, _ = images
    for name in ("/", "/page.js", "/page.css"):
        reply = client.get(name)
        assert reply.status_code == 200
        assert "default-src 'self'" in reply.headers["Content-Security-Policy"]
        assert "http://" not in reply.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in reply.text


def test_samples_are_asked_for_once(tmp_path):
    noted(network_of(backbones.mlp(4)), (4,)).save(tmp_path)
    calls = []

    def samples():
        calls.append(1)
        return [{"png": "", "label": "x"}]

    app = create_app(ServedModel(tmp_path), samples)
    with TestClient(app) as client:
        assert client.get("/samples").json() == client.get("/samples").json() == [{"png": "", "label": "x"}]
    assert calls == [1]


def test_features_and_a_rival(tmp_path):
    model = noted(Softmax(backbones.mlp(4), 10), (4,), largest_input=50.0)
    model.save(tmp_path)
    with served(tmp_path) as client:
        for inputs in ([1.0, 2.0, 3.0, 40.0], [[1.0, 2.0, 3.0, 40.0]]):
            answer = client.post("/predict?masses=true", json={"inputs": inputs}).json()["predictions"][0]
            p = model.predict(torch.tensor([[1.0, 2.0, 3.0, 40.0]]))[0][0]
            assert answer["confidence"] == pytest.approx(p.max().item(), abs=1e-5)
            assert answer["known"] is None
        assert client.get("/model").json()["method"] == "softmax"
        assert client.post("/predict", json={"inputs": [1.0]}).status_code == 422
        assert client.post("/predict", content=pngs(1)[0], headers=PNG).status_code == 422


def test_texts(tmp_path):
    from randomset.backbones.text import load_tokenizer, tokenize

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


# Starlette leaves the closing of files in a broken form to Python.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_hostile_requests_never_break_it(images):
    """Thousands of bodies that are cut, flipped or made up: refused or answered, never an error of ours."""
    client, _ = images
    draw = np.random.default_rng(0)
    seeds = [
        *pngs(2), as_file(np.zeros((8, 8, 3), np.uint8), "JPEG"), as_file(np.zeros((8, 8), np.uint8), "GIF"),
        as_file(np.zeros((8, 8, 3), np.uint8), "WEBP"), as_file(np.zeros((8, 8), np.uint8), "BMP"),
        json.dumps({"inputs": (digits(16)[0, 0] / 255).tolist()}).encode(), b'{"inputs": [[0, 1], [1, 0]]}',
        b"\r\n".join(
            (b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n', pngs(1)[0], b"--b--")
        ),
    ]  # fmt: skip
    kinds = [
        "image/png",
        "application/json",
        "multipart/form-data; boundary=b",
        "application/octet-stream",
        "x",
    ]
    for _ in range(2000):
        body = bytearray(seeds[draw.integers(len(seeds))])
        for _ in range(draw.integers(1, 20)):
            body[draw.integers(len(body))] = draw.integers(256)
        if draw.random() < 0.3:
            body = body[: draw.integers(len(body) + 1)]
        kind = kinds[draw.integers(len(kinds))]
        reply = client.post("/predict", content=bytes(body), headers={"Content-Type": kind})
        assert reply.status_code in (200, 400, 413, 422), (kind, bytes(body)[:200], reply.text)
        assert reply.json().keys() <= {"predictions", "error"}
    assert client.get("/health").status_code == 200
