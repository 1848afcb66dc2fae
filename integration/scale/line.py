"""A bad line between a node and the server: a TCP proxy that delays answers, drops them, or hangs up."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

__all__ = ["BadLine", "bad_line"]

_CHUNK = 65536


class BadLine:
    """Passes bytes from a port to a server's socket. One answer in *drops* is lost with its connection."""

    def __init__(self, server: Path, *, drops: int, delay: float, seed: int = 7) -> None:
        self._server, self._drops, self._delay = server, drops, delay
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.dropped = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
            server.connect(str(self._server))
            asking = threading.Thread(target=self._pass, args=(client, server), daemon=True)
            asking.start()
            self._pass(server, client, is_answer=True)
            server.shutdown(socket.SHUT_RDWR)
            asking.join(10)

    def _pass(self, source: socket.socket, target: socket.socket, *, is_answer: bool = False) -> None:
        """Until one side hangs up. An answer is lost after the server gave it: clients cannot know what counts."""
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if is_answer and self._random.randrange(self._drops) == 0:
                    self.dropped += 1
                    break
                if is_answer:
                    time.sleep(self._random.random() * self._delay)
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()


@contextlib.contextmanager
def bad_line(url: str, *, drops: int = 150, delay: float = 0.02) -> Iterator[tuple[BadLine, str]]:
    """A bad line to the server of *url*, and the URL that leads through it."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    line = BadLine(Path(options.pop("host")) / ".s.PGSQL.5432", drops=drops, delay=delay)
    options |= {"host": "127.0.0.1", "port": str(line.port), "sslmode": "disable", "gssencmode": "disable"}
    try:
        yield line, f"postgresql://postgres@/postgres?{urlencode(options, quote_via=quote)}"
    finally:
        line.close()
