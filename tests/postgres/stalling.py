"""A proxy in front of a PostgreSQL server that can stop forwarding, as a network that stalls."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, quote, urlsplit


class StallingProxy:
    """Forwards connections to the server of *url*, until `stall`. Connections stay open meanwhile."""

    def __init__(self, url: str) -> None:
        host = parse_qs(urlsplit(url).query)["host"][0]
        self._server = f"{host}/.s.PGSQL.5432"
        self._directory = Path(tempfile.mkdtemp(prefix="asnap-proxy-"))  # short: paths of sockets are
        self.url = url.replace(quote(host, safe=""), quote(str(self._directory), safe=""))
        self._is_flowing = threading.Event()
        self._is_flowing.set()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._directory / ".s.PGSQL.5432"))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Forward nothing any more."""
        self._is_flowing.clear()

    def flow(self) -> None:
        """Forward again, also what came meanwhile."""
        self._is_flowing.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=self._forward, args=(server, client), daemon=True)
            back.start()
            self._forward(client, server)
            back.join()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._is_flowing.wait()
                sink.sendall(data)
        for side in (source, sink):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.flow()
        self._listening.close()
        shutil.rmtree(self._directory)
