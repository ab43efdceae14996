"""What `POST /predict` takes and answers, for machines: the parts of OpenAPI that FastAPI cannot guess."""

from __future__ import annotations

from typing import Any

__all__ = ["BODY", "REPLIES"]

_IMAGE = {"schema": {"type": "string", "format": "binary"}}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}}
                    },
                }
            },
            "image/*": _IMAGE,
            "application/octet-stream": _IMAGE,
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "inputs": {"description": "one sample or a batch, as nested lists of numbers"},
                        "bytes": {"type": "boolean", "description": "pixels are from 0 to 255, not to 1"},
                        "texts": {"type": "array", "items": {"type": "string"}},
                    },
                }
            },
        },
    }
}
_ONE = {"type": "number"}
_PREDICTION: dict[str, Any] = {
    "label": {"type": "string"},
    **{name: _ONE for name in ("confidence", "lower", "upper", "credal_width", "entropy")},
    "known": {"type": ["boolean", "null"], "description": "by the run's threshold; null if it has none"},
    "probabilities": {
        "type": "object",
        "additionalProperties": _ONE,
        "description": "with masses=true, as all below",
    },
    "intervals": {"type": "object", "additionalProperties": {"type": "array", "items": _ONE}},
    "masses": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"set": {"type": "array", "items": {"type": "string"}}, "mass": _ONE},
        },
    },
}


def _described(description: str, properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_ERROR = {"error": {"type": "string"}}
REPLIES: dict[int | str, dict[str, Any]] = {
    200: _described(
        "a prediction for each input, in order",
        {
            "predictions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": _PREDICTION,
                    "required": ["label", "confidence", "entropy", "known"],
                },
            }
        },
    ),
    403: _described("asked by a name that is not the service's", _ERROR),
    413: _described("more than the service takes in one request", _ERROR),
    422: _described("what came cannot be read, or does not fit the network", _ERROR),
    503: _described("busy; try again later", _ERROR),
}
