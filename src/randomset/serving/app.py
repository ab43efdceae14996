"""The HTTP service: predictions, a description of the model, health, metrics, and a page to try it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import fastapi
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from torch import Tensor

from randomset.errors import RandomSetError
from randomset.serving.batching import Batcher, Busy
from randomset.serving.guard import RETRY, Guard
from randomset.serving.model import Answer, ServedModel, TooLarge
from randomset.serving.schema import BODY, REPLIES

__all__ = ["create_app"]

_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class _Metrics:
    """The metrics for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("randomset_requests", "requests answered", ["path", "status"], **own)
        self.predictions = Counter("randomset_predictions", "inputs predicted", ["known"], **own)
        self.seconds = Histogram("randomset_request_seconds", "duration of prediction requests", **own)
        sizes = [2**power for power in range(9)]
        self.batches = Histogram("randomset_batch_size", "inputs per batch", buckets=sizes, **own)
        self.waiting = Gauge("randomset_waiting_inputs", "inputs waiting for the network", **own)


def create_app(
    model: ServedModel,
    samples: Callable[[], list[dict[str, Any]]] = lambda: [],
    hosts: frozenset[str] | None = None,
) -> fastapi.FastAPI:
    """Build the service for a model.

    Args:
        model: the model to serve.
        samples: returns sample inputs for the page; called once, on the first request for them.
        hosts: the host names that the service answers to, against DNS rebinding; None for any.
    """
    limits, metrics = model.limits, _Metrics()
    batcher = Batcher(model.answers, limits.batch, limits.waiting, metrics.batches.observe)
    metrics.waiting.set_function(lambda: batcher.waiting)
    pool = ThreadPoolExecutor(2, thread_name_prefix="reading")  # few: each may hold a large image

    async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    @asynccontextmanager
    async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()
        pool.shutdown(wait=False, cancel_futures=True)

    app = fastapi.FastAPI(
        title="randomset",
        description="A random-set neural network: class probabilities with lower and upper bounds.",
        version=model.about()["randomset"],
        lifespan=lifespan,
        docs_url=None,  # the page would load scripts from a CDN
        redoc_url=None,
    )
    app.add_middleware(
        Guard, limits=limits, requests=metrics.requests, longest_json=model.longest_json, hosts=hosts
    )
    _add_error_handlers(app)
    cached: list[list[dict[str, Any]]] = []

    @app.post("/predict", responses=REPLIES, openapi_extra=BODY, summary="Predict images, numbers or texts")
    async def predict(request: Request, masses: bool = False) -> JSONResponse:
        with metrics.seconds.time():
            until = time.monotonic() + limits.seconds
            inputs = await asyncio.wait_for(_inputs(request, model, in_thread, until), limits.seconds)
            answers = await asyncio.wait_for(batcher.submit(inputs), max(until - time.monotonic(), 0))
            for answer in answers:
                metrics.predictions.labels(str(answer.line["known"]).lower()).inc()
            return await in_thread(_reply, answers, masses)

    @app.get("/model", summary="Classes, sets, inputs, threshold and metrics")
    async def about() -> JSONResponse:
        return JSONResponse(model.about())

    @app.get("/samples", summary="Some test samples of the run, if its data are available")
    async def sample_inputs() -> JSONResponse:
        if not cached:
            cached.append(await in_thread(samples))
        return JSONResponse(cached[0])

    @app.head("/health", include_in_schema=False)
    @app.get("/health", summary="Whether the service is up")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", summary="Metrics for Prometheus")
    async def prometheus() -> PlainTextResponse:
        return PlainTextResponse(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")

    async def page(request: Request) -> Response:
        file, kind = _PAGE[request.url.path]
        content = (resources.files("randomset.serving") / "page" / file).read_bytes()
        return Response(content, media_type=f"{kind}; charset=utf-8", headers=_HEADERS)

    for path in _PAGE:
        app.add_route(path, page, include_in_schema=False)
    return app


def _reply(answers: list[Answer], masses: bool) -> JSONResponse:
    shown = [answer.whole() if masses else answer.line for answer in answers]
    return JSONResponse({"predictions": shown})


async def _inputs(
    request: Request, model: ServedModel, in_thread: Callable[..., Awaitable[Any]], until: float
) -> Tensor:
    """Read the inputs of a request; decoding runs in a thread."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        body = await request.body()
        return await in_thread(_from_json, body, model)
    if kind == "multipart/form-data":
        boundary = re.search(r'boundary="?([^";,]+)', request.headers["content-type"], re.IGNORECASE)
        if boundary is None or not (await request.body()).rstrip().endswith(f"--{boundary[1]}--".encode()):
            raise HTTPException(422, "the form is incomplete: its final boundary is missing")
        async with request.form(max_files=model.limits.batch + 1, max_fields=8) as form:
            files = [part for part in form.values() if not isinstance(part, str)]
            contents = [await part.read() for part in form.getlist("files") if not isinstance(part, str)]
            if len(contents) < len(files):
                raise HTTPException(422, "files must be in a form field named files")
        return await in_thread(model.from_files, contents, until)
    if kind.startswith("image/") or kind == "application/octet-stream":
        return await in_thread(model.from_files, [await request.body()], until)
    raise HTTPException(
        422,
        f"unsupported content type; got {kind[:60] or 'none'}; "
        "expected multipart/form-data, an image, or application/json",
    )


def _from_json(body: bytes, model: ServedModel) -> Tensor:
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise HTTPException(422, "the body is not valid JSON") from None
    if not isinstance(content, dict) or ("inputs" in content) == ("texts" in content):
        raise HTTPException(422, 'the body has no inputs; expected {"inputs": [...]} or {"texts": [...]}')
    if "texts" in content:
        return model.from_texts(content["texts"])
    if not isinstance(content.get("bytes", False), bool):
        raise HTTPException(422, '"bytes" must be true or false')
    return model.from_numbers(content["inputs"], content.get("bytes", False))


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and infinities are not valid JSON


def _add_error_handlers(app: fastapi.FastAPI) -> None:
    """Answer every error with one line of JSON, {"error": …}, that reveals no internals."""

    def reply(status: int, message: str) -> JSONResponse:
        return JSONResponse({"error": message}, status, RETRY if status == 503 else None)

    @app.exception_handler(TooLarge)
    async def too_large(request: Request, error: TooLarge) -> JSONResponse:
        return reply(413, str(error))

    @app.exception_handler(RandomSetError)
    async def invalid_input(request: Request, error: RandomSetError) -> JSONResponse:
        return reply(422, str(error))

    @app.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> JSONResponse:
        return reply(503, "too many inputs are waiting; try again in a second")

    @app.exception_handler(asyncio.TimeoutError)
    async def timed_out(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "the request took too long"}, 503, {**RETRY, "Connection": "close"})

    @app.exception_handler(RequestValidationError)
    async def invalid_query(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return reply(422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        status = error.status_code
        if status == 400:  # from Starlette's form parser
            status = 413 if str(error.detail).startswith("Too many") else 422
        return reply(status, str(error.detail))

    @app.exception_handler(ClientDisconnect)
    async def disconnected(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # for the metrics only

    @app.exception_handler(Exception)
    async def internal_error(request: Request, error: Exception) -> JSONResponse:
        return reply(500, "internal error; see the log of the service")
