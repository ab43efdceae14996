"""What stands before the service: it counts requests, and stops strangers and bodies too long or too many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.responses import JSONResponse
from prometheus_client import Counter

from randomset.serving.model import Limits

__all__ = ["RETRY", "Guard"]

RETRY = {"Retry-After": "1"}


class _TooLong(Exception):
    pass


class _Crowded(Exception):
    pass


_BODIES = 8  # as many of the longest requests may be in memory at once


def _host(text: str) -> str:
    """Take the port off a host.

    >>> _host("127.0.0.1:8000"), _host("[::1]:8000"), _host("localhost")
    ('127.0.0.1', '[::1]', 'localhost')
    """
    return (text[: text.find("]") + 1] if text.startswith("[") else text.partition(":")[0]).lower()


async def _drained(receive: Callable[[], Awaitable[Any]]) -> None:
    """Read what a client is still sending, for a moment: a reply is lost where a body stays unread."""
    until, read = time.monotonic() + 2, 0
    try:
        while read < 2**28:
            message = await asyncio.wait_for(receive(), max(until - time.monotonic(), 0))
            read += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body"):
                return
    except asyncio.TimeoutError:
        return


class Guard:
    """Stands before everything: counts requests, and stops strangers and bodies too long or too many."""

    def __init__(
        self,
        app: Any,
        limits: Limits,
        requests: Counter,
        longest_json: int,
        hosts: frozenset[str] | None,
    ) -> None:
        self.app, self.limits, self.requests = app, limits, requests
        self.longest_json, self.hosts = longest_json, hosts
        self.busy = self.held = 0

    def _is_stranger(self, headers: dict[bytes, bytes]) -> bool:
        """Say whether a request came by a name that is not ours, or from a page that is not."""
        if self.hosts is None:
            return False
        hosts = [headers.get(b"host", b"").decode("latin-1")]
        if b"origin" in headers:  # "null" is a page that hides where it comes from
            hosts.append(headers[b"origin"].decode("latin-1").partition("//")[2])
        return any(_host(host) not in self.hosts for host in hosts)

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        known = scope["path"] in ("/predict", "/model", "/samples", "/health", "/metrics", "/")
        path, started, length = scope["path"] if known else "other", False, 0

        async def counted_send(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self.requests.labels(path, message["status"]).inc()
            await send(message)

        async def counted_receive() -> Any:
            nonlocal length
            message = await receive()
            length += len(message.get("body", b""))
            self.held += len(message.get("body", b""))
            if length > most:
                raise _TooLong
            if self.held > _BODIES * self.limits.bytes:
                raise _Crowded
            return message

        async def refuse(status: int, text: str) -> None:
            if b"expect" not in headers:  # such a client waits before it sends
                await _drained(receive)
            more = {**(RETRY if status == 503 else {}), "Connection": "close"}
            await JSONResponse({"error": text}, status, more)(scope, receive, counted_send)

        headers = dict(scope["headers"])
        is_json = headers.get(b"content-type", b"").strip().lower().startswith(b"application/json")
        most = self.longest_json if is_json else self.limits.bytes
        said = headers.get(b"content-length", b"0")
        too_long = f"the request is too long; expected at most {most} bytes{' of JSON' if is_json else ''}"
        if self._is_stranger(headers):
            return await refuse(403, "this is not a name of the service; see --allowed-host")
        if said.isdigit() and len(said) < 20 and int(said) > most:
            return await refuse(413, too_long)
        if self.busy >= self.limits.requests and path == "/predict":
            return await refuse(503, "too many requests at once; try again in a second")
        self.busy += 1
        try:
            await self.app(scope, counted_receive, counted_send)
        except _TooLong:
            if not started:
                await refuse(413, too_long)
        except _Crowded:
            if not started:
                await refuse(503, "too much is being read; try again in a second")
        except Exception:
            if not started:  # the reply comes from outside of here
                self.requests.labels(path, 500).inc()
            raise
        finally:
            self.busy -= 1
            self.held -= length
