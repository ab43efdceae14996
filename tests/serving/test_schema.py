import pytest

pytestmark = pytest.mark.slow


def test_openapi_describes_predictions(images):
    client, _ = images
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/predict", "/model", "/samples", "/health", "/metrics"}
    predict = paths["/predict"]["post"]
    assert "multipart/form-data" in predict["requestBody"]["content"]
    assert set(predict["responses"]) == {"200", "403", "413", "422", "503"}


def test_openapi_describes_the_reliability(images):
    client, _ = images
    replies = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["responses"]
    item = replies["200"]["content"]["application/json"]["schema"]["properties"]["predictions"]["items"]
    assert item["properties"]["reliability"]["type"] == "number"
    assert "unlike the training data" in item["properties"]["familiar"]["description"]
    assert "reliability" not in item["required"]  # only some models have one
