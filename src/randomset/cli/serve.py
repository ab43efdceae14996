"""`randomset serve`: a run folder as an HTTP service with a page to try it."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from randomset.errors import MissingPackageError, RandomSetError

if TYPE_CHECKING:
    from randomset.serving.model import ServedModel

__all__ = ["serve"]

_HEADER_SECONDS = 10.0


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder of a trained model")],
    host: Annotated[
        str, typer.Option(help="the address; only this machine reaches the usual one")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one")] = 8000,
    max_bytes: Annotated[int, typer.Option(help="the longest request, in bytes")] = 32 * 2**20,
    max_pixels: Annotated[int, typer.Option(help="the largest image")] = 40_000_000,
    max_batch: Annotated[int, typer.Option(help="the most inputs in a request")] = 256,
    timeout: Annotated[float, typer.Option(help="seconds that a request may take")] = 30.0,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="a name that the service answers to; several times for several")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="of torch; else as many as it takes")] = None,
) -> None:
    """Serve a trained model: POST /predict, GET /model, /health and /metrics, and a page at /.

    Requests that come together are predicted together. Control-C finishes those that are under way.
    """
    for name, value in (("max-bytes", max_bytes), ("max-pixels", max_pixels), ("max-batch", max_batch)):
        if value < 1:
            raise RandomSetError(f"--{name} is out of range", got=value, expected="1 or more")
    if not 0 <= port < 65536:
        raise RandomSetError("--port is out of range", got=port, expected="0 to 65535")
    if not 0 < timeout < 86400:
        raise RandomSetError("--timeout is out of range", got=timeout, expected="seconds, up to a day")
    if threads is not None and threads < 1:
        raise RandomSetError("--threads is out of range", got=threads, expected="1 or more")
    try:
        import uvicorn

        from randomset.serving.app import create_app
        from randomset.serving.connections import bounded_protocol, most_connections
    except ImportError as error:
        raise MissingPackageError(error.name or "fastapi", "serve") from None
    import torch

    from randomset.serving.model import Limits, ServedModel

    if threads is not None:
        torch.set_num_threads(threads)
    limits = Limits(
        bytes=max_bytes, pixels=max_pixels, batch=max_batch, waiting=8 * max_batch, seconds=timeout
    )
    model = ServedModel(run, limits)
    socket = _socket(host, port)
    where = f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}"
    typer.echo(f"Serving {run} at {where}: {len(model.classes)} classes, {model.expected}.")
    typer.echo(f"Try it: open {where} in a browser. Control-C stops.")
    config = uvicorn.Config(
        create_app(model, lambda: _samples(run, model), _hosts(host, allowed_host or [])),
        http=bounded_protocol(_HEADER_SECONDS, timeout + 5, most_connections()),
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=int(timeout) + 1,
        timeout_keep_alive=5,
        server_header=False,
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # which uvicorn repeats once it has finished
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[socket])
    typer.echo("Stopped.")


def _hosts(host: str, allowed: list[str]) -> frozenset[str] | None:
    """Say what names the service answers to: on this machine its own, elsewhere any, unless some are given.

    Without this, a page in a browser of this machine could give itself a name that leads here.
    """
    own = {"localhost", "127.0.0.1", "[::1]"}
    if not allowed and host not in ("localhost", "127.0.0.1", "::1"):
        return None
    return frozenset(own | {name.lower() for name in (f"[{host}]" if ":" in host else host, *allowed)})


def _socket(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(2048)  # who comes before the service is up waits a moment
    except OSError as error:
        found.close()
        raise RandomSetError(
            "the address cannot be used",
            got=f"{host}:{port} ({error.strerror or error})",
            remedy="Choose another with --port (0: any that is free), or another address with --host",
        ) from None
    return found


def _samples(run: Path, model: ServedModel, most: int = 24) -> list[dict[str, Any]]:
    """Return some test images of the run, if its source is still there; the service works without."""
    import torch

    from randomset.data.conversion import png_from_image
    from randomset.runs.inputs import NetworkInputs, own_data

    if model.kind != "images":
        return []
    try:
        tested, _, _ = own_data(run, NetworkInputs(model.model, run, False))
        few = tested.part(torch.arange(min(most, len(tested))))
        return [
            {
                "png": base64.b64encode(png_from_image(image)).decode("ascii"),
                "label": model.classes[int(label)] if label.dim() == 0 else "",
            }
            for image, label in zip(few.inputs, few.labels, strict=True)
        ]
    except (RandomSetError, OSError, json.JSONDecodeError, KeyError, TypeError):
        return []
