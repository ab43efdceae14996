"""Connections are limited in number and in time."""

import resource
import socket
import urllib.request

import pytest

from randomset.serving.connections import max_connections
from tests.serving.conftest import started

pytestmark = pytest.mark.slow


def test_connections_are_limited_by_open_files(monkeypatch):
    for files, expected in ((10, 16), (128, 64), (10**6, 1000), (resource.RLIM_INFINITY, 1000)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert max_connections() == expected


def test_silent_connections_do_not_block_the_service(service):
    """More half-sent headers than files may be open: other clients are still answered."""
    folder, _ = service

    def limit_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    with started("run", folder, before=limit_files) as (_, address):
        port, lines = int(address.rpartition(":")[2]), []
        for _ in range(60):
            lines.append(socket.create_connection(("127.0.0.1", port)))
            lines[-1].sendall(b"POST /predict HTTP/1.1\r\nHost: loc")
        with urllib.request.urlopen(address + "/health", timeout=10) as reply:
            assert reply.status == 200
        lines += [socket.create_connection(("127.0.0.1", port)) for _ in range(140)]
        assert lines[-1].recv(100).startswith(b"HTTP/1.1 503")  # too many
        for line in lines[60:]:
            line.close()
        assert lines[0].recv(100) == b""  # closed after ten seconds
        with urllib.request.urlopen(address + "/health", timeout=10) as reply:
            assert reply.status == 200
        for line in lines[:60]:
            line.close()
