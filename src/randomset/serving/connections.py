"""Connections that can neither keep silent for long nor be too many."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["bounded_protocol", "most_connections"]

_CROWDED = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
)


def most_connections() -> int:
    """Return how many connections may be open: half of the files that this process may open, up to 1000."""
    try:
        import resource
    except ImportError:  # not on Windows, where a loop waits for 512 sockets at most
        return 256
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1000 if files == resource.RLIM_INFINITY else max(16, min(1000, files // 2))


def bounded_protocol(header_seconds: float, body_seconds: float, most: int) -> type[H11Protocol]:
    """Return uvicorn's protocol with limits, which it does not have itself.

    Args:
        header_seconds: how long the lines before a body may take, from the connection or the first byte.
        body_seconds: how long the body may take.
        most: connections beyond this number are told to come back later, and closed.
    """

    class BoundedProtocol(H11Protocol):
        deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(_CROWDED)
                transport.close()
            else:
                self._wait(header_seconds)

        def data_received(self, data: bytes) -> None:
            before = self.conn.their_state
            super().data_received(data)
            after = self.conn.their_state
            if after is h11.IDLE:
                if before is not h11.IDLE or self.deadline is None:
                    self._wait(header_seconds)
            elif after is h11.SEND_BODY:
                if before is not h11.SEND_BODY:
                    self._wait(body_seconds)
            else:
                self._wait(None)

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait(None)
            super().connection_lost(exc)

        def _wait(self, seconds: float | None) -> None:
            """Close the connection after some seconds, unless this is called again before."""
            if self.deadline is not None:
                self.deadline.cancel()
            self.deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.close)

    return BoundedProtocol
