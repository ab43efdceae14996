"""Limits on connections: their number, and deadlines for headers and bodies."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["bounded_protocol", "max_connections"]

_UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
)


def max_connections() -> int:
    """Return the maximum number of connections: half of this process's limit on open files, up to 1000."""
    try:
        import resource
    except ImportError:  # Windows, where select() waits for at most 512 sockets
        return 256
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1000 if files == resource.RLIM_INFINITY else max(16, min(1000, files // 2))


# uvicorn's limit_concurrency applies only to requests with complete headers, and it has no read timeouts.
def bounded_protocol(header_seconds: float, body_seconds: float, most: int) -> type[H11Protocol]:
    """Return uvicorn's HTTP protocol with deadlines for headers and bodies and a limit on connections.

    Args:
        header_seconds: time for the headers of a request.
        body_seconds: time for its body.
        most: maximum number of connections; further ones are answered 503 and closed.
    """

    class BoundedProtocol(H11Protocol):
        deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(_UNAVAILABLE)
                transport.close()
            else:
                self._set_deadline(header_seconds)

        def data_received(self, data: bytes) -> None:
            before = self.conn.their_state
            super().data_received(data)
            after = self.conn.their_state
            if after is h11.IDLE:
                if before is not h11.IDLE or self.deadline is None:
                    self._set_deadline(header_seconds)
            elif after is h11.SEND_BODY:
                if before is not h11.SEND_BODY:
                    self._set_deadline(body_seconds)
            else:
                self._set_deadline(None)

        def connection_lost(self, exc: Exception | None) -> None:
            self._set_deadline(None)
            super().connection_lost(exc)

        def _set_deadline(self, seconds: float | None) -> None:
            """Close the connection after some seconds, in place of any earlier deadline."""
            if self.deadline is not None:
                self.deadline.cancel()
            self.deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.close)

    return BoundedProtocol
