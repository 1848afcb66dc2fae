"""A line between a node and the PostgreSQL server that can be cut, frozen and mended."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

__all__ = ["Line", "line_to"]

_CHUNK = 1 << 16


class Line:
    """Passes bytes between a port and the server at *server*, an address of `socket.connect`."""

    def __init__(self, server: str | tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._passes = threading.Event()
        self._passes.set()
        self._is_cut = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Hold every byte back until `mend`. Neither side is told."""
        self._passes.clear()

    def cut(self) -> None:
        """Hang up, and refuse new connections until `mend`."""
        self._is_cut = True
        self._hang_up()

    def mend(self) -> None:
        """Pass everything on again."""
        self._is_cut = False
        self._passes.set()

    def close(self) -> None:
        """Hang up for good."""
        self._listener.close()
        self._passes.set()
        self._hang_up()

    def _hang_up(self) -> None:
        for each in tuple(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_cut:
                    client.close()
                else:
                    threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        family = socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET
        with client, socket.socket(family) as server:
            server.connect(self._server)
            self._open |= {client, server}
            answering = threading.Thread(target=self._pass, args=(server, client), daemon=True)
            answering.start()
            self._pass(client, server)
            answering.join(10)
            self._open -= {client, server}

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._passes.wait()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def line_to(url: str) -> Iterator[tuple[Line, str]]:
    """A line to the server of *url*, and the URL that leads through it."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    host = options.pop("host", None) or parts.hostname or "127.0.0.1"
    port = int(options.pop("port", None) or parts.port or 5432)
    line = Line(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port))
    options |= {"host": "127.0.0.1", "port": str(line.port), "sslmode": "disable", "gssencmode": "disable"}
    through = f"postgresql://{parts.username or 'postgres'}@{parts.path}?{urlencode(options, quote_via=quote)}"
    try:
        yield line, through
    finally:
        line.close()
