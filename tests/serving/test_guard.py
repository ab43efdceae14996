"""Foreign hosts, long bodies and overload are refused."""

import http.client

import pytest
from fastapi.testclient import TestClient

from randomset import backbones
from randomset.cli.serve import _hosts
from randomset.serving.app import create_app
from randomset.serving.model import Limits, ServedModel
from tests.serving.conftest import JSON, network_of, noted, served

pytestmark = pytest.mark.slow  # FastAPI takes seconds to import


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "LOCALHOST", "Origin": "http://localhost:8000"}, 200),
        ({"Host": "evil.example:8000"}, 403),
        ({"Host": "localhost", "Origin": "https://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),  # a page that hides its origin
    ],
)
def test_foreign_hosts_and_origins_are_refused(tmp_path, headers, status):
    noted(network_of(backbones.mlp(4)), (4,)).save(tmp_path)
    app = create_app(ServedModel(tmp_path), hosts=_hosts("127.0.0.1", []))
    with TestClient(app) as client:
        assert client.get("/model", headers=headers).status_code == status


def test_allowed_hosts_by_address():
    assert _hosts("0.0.0.0", []) is None
    assert "a.example" in (_hosts("0.0.0.0", ["A.example"]) or ())


def test_long_body_without_content_length(images):
    client, _ = images
    reply = client.post("/predict", content=(b"x" * 1000 for _ in range(1000)), headers=JSON)
    assert reply.status_code == 413


def test_json_has_a_lower_limit(tmp_path):
    network = network_of(backbones.mlp(4))
    noted(network, (4,)).save(tmp_path)
    with served(tmp_path, Limits()) as client:
        body = b'{"inputs": [' + b"[]," * 1_500_000 + b"[]]}"
        reply = client.post("/predict", content=body, headers=JSON)
    assert reply.status_code == 413
    assert "at most 4194304 bytes of JSON" in reply.json()["error"]


@pytest.mark.parametrize("kind", ["image/png", "application/json"])
def test_client_that_sends_too_much_gets_the_reply(service, kind):
    """The refusal arrives before the client has finished sending."""
    connection = http.client.HTTPConnection(service[1].removeprefix("http://"))
    connection.request("POST", "/predict", b"x" * 40_000_000, {"Content-Type": kind})
    reply = connection.getresponse()
    assert (reply.status, "too long" in reply.read().decode()) == (413, True)
    connection.close()


def test_too_many_requests_at_once(tmp_path):
    noted(network_of(backbones.mlp(4)), (4,)).save(tmp_path)
    with served(tmp_path, Limits(requests=0)) as client:
        reply = client.post("/predict", json={"inputs": [[0.0] * 4]})
        assert reply.status_code == 503
        assert "too many requests at once" in reply.json()["error"]
        assert reply.headers["Retry-After"] == "1"
        assert client.get("/health").status_code == 200  # only predictions are limited
