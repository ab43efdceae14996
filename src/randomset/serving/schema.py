"""The OpenAPI description of `POST /predict`, which FastAPI cannot infer."""

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
                        "bytes": {
                            "type": "boolean",
                            "description": "pixels range from 0 to 255 instead of 0 to 1",
                        },
                        "texts": {"type": "array", "items": {"type": "string"}},
                    },
                }
            },
        },
    }
}
_NUMBER = {"type": "number"}
_PREDICTION: dict[str, Any] = {
    "label": {"type": "string"},
    **{name: _NUMBER for name in ("confidence", "lower", "upper", "credal_width", "entropy")},
    "reliability": {
        **_NUMBER,
        "description": "how well the training data support the prediction, from 0 to 1; "
        "only if the model has a reliability",
    },
    "familiar": {
        "type": "boolean",
        "description": "whether the reliability reaches the limit that 95 % of the known validation inputs "
        "reach; otherwise the input is unlike the training data",
    },
    "disagreement": {
        **_NUMBER,
        "description": "the mutual information of the members of a random-set ensemble, in bits",
    },
    "known": {
        "type": ["boolean", "null"],
        "description": "whether the threshold of the run accepts the input; null without a threshold",
    },
    "probabilities": {
        "type": "object",
        "additionalProperties": _NUMBER,
        "description": "this and the following fields only with masses=true",
    },
    "intervals": {"type": "object", "additionalProperties": {"type": "array", "items": _NUMBER}},
    "masses": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"set": {"type": "array", "items": {"type": "string"}}, "mass": _NUMBER},
        },
    },
}


def _described(description: str, properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_ERROR = {"error": {"type": "string"}}
REPLIES: dict[int | str, dict[str, Any]] = {
    200: _described(
        "one prediction per input, in order",
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
    403: _described("the host name or the origin is not allowed", _ERROR),
    413: _described("the request exceeds a limit", _ERROR),
    422: _described("the input cannot be read or does not match the network", _ERROR),
    503: _described("busy; try again later", _ERROR),
}
