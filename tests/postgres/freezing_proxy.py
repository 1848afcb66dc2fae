"""A proxy between a client and a PostgreSQL server that stops forwarding after a given message of the client."""

from __future__ import annotations

import contextlib
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict

from snapshot_plugin.store.postgres.address import Address

__all__ = ["FreezingProxy"]

_PORT = "5432"
_ENCRYPTION_REQUESTS = (80877103, 80877104)


class FreezingProxy:
    """Forwards connections to the server of *url*. Use it as a context manager; `url` is the way through it."""

    def __init__(self, url: str) -> None:
        self._server = conninfo_to_dict(Address.parse(url).conninfo)
        self._directory = tempfile.TemporaryDirectory(prefix="asnap-proxy-")
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query)) | {"host": self._directory.name, "port": _PORT}
        through = parts._replace(netloc=parts.netloc.rpartition("@")[0] + "@", query=urlencode(options))
        self.url = urlunsplit(through)
        self.is_frozen = threading.Event()
        self._left: int | None = None
        self._guard = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._listener.bind(str(Path(self._directory.name) / f".s.PGSQL.{_PORT}"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self.is_frozen.set()
            for each in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
        self._directory.cleanup()

    def freeze_after(self, messages: int) -> None:
        """Forward so many more messages of the client, whole ones, then nothing in either direction."""
        with self._guard:
            self._left = messages
        if not messages:
            self.is_frozen.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._guard:
                    if self.is_frozen.is_set():
                        self._sockets.append(client)
                        continue
                    server = self._connected()
                    self._sockets += [client, server]
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=self._down, args=(client, server), daemon=True).start()

    def _connected(self) -> socket.socket:
        host, port = str(self._server["host"]), self._server.get("port", _PORT)
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, int(port or _PORT)))

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if self.is_frozen.is_set():
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)  # the server has ended the connection

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for message in _messages(client):
                if self.is_frozen.is_set():
                    return
                server.sendall(message)
                self._count()

    def _count(self) -> None:
        with self._guard:
            if self._left is not None:
                self._left -= 1
                if self._left <= 0:
                    self.is_frozen.set()


def _messages(client: socket.socket) -> Iterator[bytes]:
    """The messages of a client, one by one. The first ones have no type."""
    with client.makefile("rb") as stream:
        code = _ENCRYPTION_REQUESTS[0]
        while code in _ENCRYPTION_REQUESTS:
            head = stream.read(8)
            if len(head) < 8:
                return
            size, code = struct.unpack("!II", head)
            yield head + stream.read(size - 8)
        while len(head := stream.read(5)) == 5:
            yield head + stream.read(struct.unpack("!I", head[1:])[0] - 4)
