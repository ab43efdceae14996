"""`randomset serve`: a run folder as an HTTP service with a page to try it."""

from __future__ import annotations

import base64
import json
import signal
import socket
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from randomset._core.checks import stratified
from randomset.cli.checks import check_at_least_one
from randomset.data.images import png_from_image
from randomset.errors import MissingPackageError, RandomSetError
from randomset.runs import NetworkInputs, own_data
from randomset.serving.model import Limits, ServedModel

__all__ = ["serve"]

_HEADER_SECONDS = 10.0


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder of a trained model")],
    host: Annotated[
        str, typer.Option(help="the address; the default is reachable from this machine only")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 chooses a free port")] = 8000,
    max_bytes: Annotated[int, typer.Option(help="the maximum size of a request")] = 32 * 2**20,
    max_pixels: Annotated[int, typer.Option(help="the maximum size of an image")] = 40_000_000,
    max_batch: Annotated[int, typer.Option(help="the maximum number of inputs in a request")] = 256,
    timeout: Annotated[float, typer.Option(help="the maximum seconds for a request")] = 30.0,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="a host name that the service answers to; repeatable")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="number of torch's threads; default: torch's own choice")
    ] = None,
) -> None:
    """Serve a trained model: POST /predict, GET /model, /health and /metrics, and a page at /.

    Concurrent requests are predicted together. Ctrl-C finishes pending requests, then stops.
    """
    check_at_least_one(max_bytes=max_bytes, max_pixels=max_pixels, max_batch=max_batch, threads=threads)
    if not 0 <= port < 65536:
        raise RandomSetError("--port is out of range", got=port, expected="0 to 65535")
    if not 0 < timeout < 86400:
        raise RandomSetError("--timeout is out of range", got=timeout, expected="seconds, up to a day")
    try:
        import uvicorn

        from randomset.serving.app import create_app
        from randomset.serving.connections import bounded_protocol, max_connections
    except ImportError as error:
        raise MissingPackageError(error.name or "fastapi", "serve") from None
    if threads is not None:
        torch.set_num_threads(threads)
    limits = Limits(
        bytes=max_bytes, pixels=max_pixels, batch=max_batch, waiting=8 * max_batch, seconds=timeout
    )
    model = ServedModel(run, limits)
    listener = _listener(host, port)
    where = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    typer.echo(f"Serving {run} at {where}: {len(model.classes)} classes, {model.expected}.")
    typer.echo(f"Try it: open {where} in a browser. Ctrl-C stops.")
    config = uvicorn.Config(
        create_app(model, lambda: _samples(run, model), _hosts(host, allowed_host or [])),
        http=bounded_protocol(_HEADER_SECONDS, timeout + 5, max_connections()),
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=int(timeout) + 1,
        timeout_keep_alive=5,
        server_header=False,
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again after shutdown
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listener])
    typer.echo("Stopped.")


def _hosts(host: str, allowed: list[str]) -> frozenset[str] | None:
    """Return the host names to answer to: local names for a local address, otherwise any, unless given.

    This prevents DNS rebinding, by which a web page could reach a service on the user's machine.
    """
    own = {"localhost", "127.0.0.1", "[::1]"}
    if not allowed and host not in ("localhost", "127.0.0.1", "::1"):
        return None
    return frozenset(own | {name.lower() for name in (f"[{host}]" if ":" in host else host, *allowed)})


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # early connections wait until the service is up
    except OSError as error:
        listener.close()
        raise RandomSetError(
            "cannot listen on this address",
            got=f"{host}:{port} ({error.strerror or error})",
            remedy="Choose another port with --port (0 for any free one), or another address with --host",
        ) from None
    return listener


def _samples(run: Path, model: ServedModel, most: int = 24) -> list[dict[str, Any]]:
    """Return test images of the run, some of each class; none if its source is not available."""
    if model.kind != "images":
        return []
    try:
        tested, _, _ = own_data(run, NetworkInputs(model.model, run, False))
        classes = tested.labels if tested.labels.dim() == 1 else tested.labels.int().argmax(1)
        rows = stratified(classes, most)
        shown = tested.part(rows[classes[rows].argsort(stable=True)])
        return [
            {
                "png": base64.b64encode(png_from_image(image)).decode("ascii"),
                "label": model.classes[int(label)] if label.dim() == 0 else "",
            }
            for image, label in zip(shown.inputs, shown.labels, strict=True)
        ]
    except (RandomSetError, OSError, json.JSONDecodeError, KeyError, TypeError):
        return []
