import pytest

pytestmark = pytest.mark.slow


def test_openapi_describes_predictions(images):
    client, _ = images
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/predict", "/model", "/samples", "/health", "/metrics"}
    predict = paths["/predict"]["post"]
    assert "multipart/form-data" in predict["requestBody"]["content"]
    assert set(predict["responses"]) == {"200", "403", "413", "422", "503"}
