"""What the service answers, and what it refuses."""

import json
import signal
import socket
import time
import urllib.request

import numpy as np
import pytest
from fastapi.testclient import TestClient

from randomset import backbones
from randomset.serving.app import create_app
from randomset.serving.model import Limits, ServedModel
from tests.serving.conftest import JSON, PNG, as_file, digits, network_of, noted, pngs, served, started

pytestmark = pytest.mark.slow  # FastAPI takes seconds to import
LARGE = as_file(np.zeros((200, 200), np.uint8))


def test_image_files(images):
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


def test_an_image_as_the_body(images):
    client, network = images
    reply = client.post("/predict", content=pngs(1)[0], headers=PNG)
    assert reply.json()["predictions"][0]["label"] == network.predict(digits(16)[:1]).label_names[0]


def test_masses_on_request(images):
    client, network = images
    reply = client.post("/predict?masses=true", content=pngs(1)[0], headers=PNG)
    answer, expected = reply.json()["predictions"][0], network.predict(digits(16)[:1])
    assert sum(part["mass"] for part in answer["masses"]) == pytest.approx(1, abs=1e-5)
    assert list(answer["probabilities"].values()) == pytest.approx(expected.pignistic[0].tolist(), abs=1e-5)
    low, high = answer["intervals"][answer["label"]]
    assert (low, high) == pytest.approx((answer["lower"], answer["upper"]), abs=1e-6)


@pytest.mark.parametrize("bytes", [False, True])
@pytest.mark.parametrize("layout", ["one", "channel", "batch", "batch without channel"])
def test_arrays_in_every_layout(images, layout, bytes):
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


@pytest.mark.parametrize(
    ("status", "message", "request_options"),
    [
        (422, "not an image", {"content": b"not an image", "headers": PNG}),
        (422, "not an image", {"content": b"", "headers": PNG}),
        (422, "unsupported content type", {"content": b"x", "headers": {"Content-Type": "text/plain"}}),
        (422, "not valid JSON", {"content": b"{", "headers": JSON}),
        (422, "not valid JSON", {"content": b'{"inputs": NaN}', "headers": JSON}),
        (422, "not valid JSON", {"content": b"[" * 10**5, "headers": JSON}),
        (422, "has no inputs", {"json": {}}),
        (422, "has no inputs", {"json": [1, 2]}),
        (422, "does not accept texts", {"json": {"texts": ["a"]}}),
        (422, "is empty", {"json": {"inputs": []}}),
        (422, "regular array of numbers", {"json": {"inputs": [[1], [1, 2]]}}),
        (422, "regular array of numbers", {"json": {"inputs": "text"}}),
        (422, "regular array of numbers", {"json": {"inputs": {"a": 1}}}),
        (422, "finite numbers", {"json": {"inputs": [[1e300]]}}),
        (422, "regular array of numbers", {"json": {"inputs": [["0.5"]]}}),
        (422, "regular array of numbers", {"json": {"inputs": [[True]]}}),
        (422, "must be true or false", {"json": {"inputs": [[0.5]], "bytes": "yes"}}),
        (422, "bytes must be whole numbers", {"json": {"inputs": [[0.5]], "bytes": True}}),
        (422, "1, 3 or 4 channels", {"json": {"inputs": [[[[0.5] * 5], [[0.5] * 5]]]}}),
        (422, "wrong input shape", {"json": {"inputs": 3}}),
        (422, "wrong input shape", {"json": {"inputs": [[[[[1]]]]]}}),
        (422, "out of range; got from 0 to 7", {"json": {"inputs": [[0, 7], [0, 1]]}}),
        (413, "too many inputs", {"json": {"inputs": [[[[0.0] * 4] * 4]] * 17}}),
        (413, "too large; got 40000 pixels", {"content": LARGE, "headers": PNG}),
        (413, "too long", {"content": b"x" * 200_001, "headers": PNG}),
        (422, "a form field named files", {"files": {"other": b"x"}}),
        (422, "is empty", {"files": {"files": (None, "x")}}),
    ],
)  # fmt: skip
def test_invalid_requests(images, status, message, request_options):
    client, _ = images
    reply = client.post("/predict", **request_options)
    assert reply.status_code == status, reply.text
    assert message in reply.json()["error"]
    assert "Traceback" not in reply.text


def test_too_many_files(images):
    client, _ = images
    for count in (17, 40):
        files = [("files", ("a.png", pngs(1)[0]))] * count
        assert client.post("/predict", files=files).status_code == 413


def test_truncated_form(images):
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


def test_internal_errors_reveal_nothing(images, monkeypatch):
    client, _ = images
    monkeypatch.setattr(ServedModel, "from_files", lambda self, files, until: 1 / 0)
    reply = client.post("/predict", content=b"x", headers=PNG)
    assert reply.status_code == 500
    assert "division" not in reply.text
    assert 'randomset_requests_total{path="/predict",status="500"}' in client.get("/metrics").text


def test_other_methods_and_paths(images):
    client, _ = images
    assert client.get("/predict").status_code == 405
    assert client.head("/").status_code == 200
    assert client.head("/health").status_code == 200
    assert client.get("/nothing").status_code == 404
    assert client.get("/..%2f..%2fetc%2fpasswd").status_code == 404
    assert client.post("/predict?masses=maybe", json={"inputs": []}).status_code == 422


def test_full_queue(tmp_path):
    network = network_of(backbones.mlp(4))
    noted(network, (4,)).save(tmp_path)
    with served(tmp_path, Limits(waiting=2)) as client:
        assert client.post("/predict", json={"inputs": [[0.0] * 4] * 2}).status_code == 200
        reply = client.post("/predict", json={"inputs": [[0.0] * 4] * 3})
    assert reply.status_code == 503
    assert reply.headers["Retry-After"] == "1"


def test_health_metrics(images):
    client, _ = images
    assert client.get("/health").json() == {"status": "ok"}
    client.post("/predict", content=pngs(1)[0], headers=PNG)
    text = client.get("/metrics").text
    assert 'randomset_requests_total{path="/predict",status="200"}' in text
    assert "randomset_batch_size_bucket" in text
    assert "randomset_waiting_inputs 0.0" in text


def test_page_loads_nothing_from_elsewhere(images):
    client, _ = images
    for name in ("/", "/page.js", "/page.css"):
        reply = client.get(name)
        assert reply.status_code == 200
        assert "default-src 'self'" in reply.headers["Content-Security-Policy"]
        assert "http://" not in reply.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in reply.text


def test_samples_are_loaded_once(tmp_path):
    noted(network_of(backbones.mlp(4)), (4,)).save(tmp_path)
    calls = []

    def samples():
        calls.append(1)
        return [{"png": "", "label": "x"}]

    app = create_app(ServedModel(tmp_path), samples)
    with TestClient(app) as client:
        assert client.get("/samples").json() == client.get("/samples").json() == [{"png": "", "label": "x"}]
    assert calls == [1]


# Starlette leaves files of a broken form to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_corrupted_requests_never_cause_internal_errors(images):
    """Thousands of truncated and corrupted bodies are refused or answered."""
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


def test_restart_after_kill(service):
    folder, _ = service
    with started("run", folder) as (process, _):
        process.kill()
    with started("run", folder) as (process, address):
        with urllib.request.urlopen(address + "/health") as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_shutdown_finishes_running_requests(service):
    """Stopped in the middle of a body, the service answers it before it exits."""
    folder, _ = service
    body = json.dumps({"inputs": np.zeros((200, 1, 8, 8)).tolist()}).encode()
    head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with started("run", folder) as (process, address):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as line:
            line.sendall(head.encode() + body[:100])
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert process.poll() is None
            line.sendall(body[100:])
            found = b""
            while part := line.recv(65536):
                found += part
        assert found.startswith(b"HTTP/1.1 200")
        assert found.count(b'"label"') == 200
        assert process.wait(20) == 0
