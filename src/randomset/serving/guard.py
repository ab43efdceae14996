"""Middleware that counts requests and refuses foreign hosts, long bodies and overload."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse
from prometheus_client import Counter

from randomset.serving.model import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["RETRY", "Guard"]

RETRY = {"Retry-After": "1"}
_MAX_BODIES = 8  # the total of all bodies in memory, in units of the longest request
_PATHS = ("/predict", "/model", "/samples", "/health", "/metrics", "/")


class _Refused(Exception):
    """A request is refused while its body is read, with a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message


def _host(text: str) -> str:
    """Return the host without its port, in lower case.

    >>> _host("127.0.0.1:8000"), _host("[::1]:8000"), _host("localhost")
    ('127.0.0.1', '[::1]', 'localhost')
    """
    return (text[: text.find("]") + 1] if text.startswith("[") else text.partition(":")[0]).lower()


async def _drain(receive: Receive) -> None:
    """Read the rest of a body, for a moment: a client that is still sending may miss the reply."""
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
    """ASGI middleware in front of the service.

    Args:
        app: the service.
        limits: the limits on requests.
        requests: counts responses by path and status.
        longest_json: the longest body of JSON, in bytes; other bodies have `limits.bytes`.
        hosts: the host names that the service answers to; None for any.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, requests: Counter, longest_json: int, hosts: frozenset[str] | None
    ) -> None:
        self.app, self.limits, self.requests = app, limits, requests
        self.longest_json, self.hosts = longest_json, hosts
        self.active = self.body_bytes = 0

    # Starlette's TrustedHostMiddleware does not check Origin, and older versions reject IPv6 addresses.
    def _is_foreign(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether a request was sent to another host name, or by a page from another host."""
        if self.hosts is None:
            return False
        hosts = [headers.get(b"host", b"").decode("latin-1")]
        if b"origin" in headers:  # "null" is a page that hides its origin
            hosts.append(headers[b"origin"].decode("latin-1").partition("//")[2])
        return any(_host(host) not in self.hosts for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in _PATHS else "other"
        headers, started, length = dict(scope["headers"]), False, 0
        is_json = headers.get(b"content-type", b"").strip().lower().startswith(b"application/json")
        longest = self.longest_json if is_json else self.limits.bytes
        kind = " of JSON" if is_json else ""
        too_long = _Refused(413, f"the request is too long; expected at most {longest} bytes{kind}")

        async def counted_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self.requests.labels(path, message["status"]).inc()
            await send(message)

        # Starlette's body limit is the same for every content type and does not bound the total.
        async def limited_receive() -> Message:
            nonlocal length
            message = await receive()
            length += len(message.get("body", b""))
            self.body_bytes += len(message.get("body", b""))
            if length > longest:
                raise too_long
            if self.body_bytes > _MAX_BODIES * self.limits.bytes:
                raise _Refused(503, "too many requests are being read; try again in a second")
            return message

        try:
            declared = headers.get(b"content-length", b"0")
            if self._is_foreign(headers):
                raise _Refused(403, "unknown host name; see --allowed-host")
            if declared.isdigit() and len(declared) < 20 and int(declared) > longest:
                raise too_long
            if self.active >= self.limits.requests and path == "/predict":
                raise _Refused(503, "too many requests at once; try again in a second")
            self.active += 1
            try:
                await self.app(scope, limited_receive, counted_send)
            finally:
                self.active -= 1
                self.body_bytes -= length
        except _Refused as refusal:
            if not started:
                if b"expect" not in headers:  # with it, the client waits before it sends its body
                    await _drain(receive)
                more = {**(RETRY if refusal.status == 503 else {}), "Connection": "close"}
                reply = JSONResponse({"error": refusal.message}, refusal.status, more)
                await reply(scope, receive, counted_send)
        except Exception:
            if not started:  # the reply is sent by an outer middleware
                self.requests.labels(path, 500).inc()
            raise
