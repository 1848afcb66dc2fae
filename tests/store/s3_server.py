"""A small S3 server on this machine: real requests over real sockets, with faults where a test wants them.

It speaks the part of the protocol that the store needs, and honours ``If-None-Match: *`` and ``If-Match`` as Amazon
does, and the conditions of Google, of which no server can be installed. `integration/objects` runs the store
contract on SeaweedFS.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

BUCKET = "bucket"
CONDITIONS = ("If-None-Match", "If-Match", "x-goog-if-generation-match")


class Request(NamedTuple):
    method: str
    key: str
    token: str | None


Fault = Callable[[Request], str | None]
"""What goes wrong with a request: one of `_FAULTS`, "web page", "lost" (done, not answered), or nothing."""


class S3Server(ThreadingHTTPServer):
    """``objects`` is what is stored; ``fault`` decides what goes wrong; ``requests`` is what was asked."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *, honours: Collection[str] = CONDITIONS) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.generations: dict[str, int] = {}
        self.sent = 0
        """Bytes that clients have put."""
        self.requests: list[Request] = []
        self.fault: Fault = lambda _request: None
        self.honours = honours
        self.wants_bare_tags = False
        self.race: threading.Barrier | None = None
        """Writers that make an object wait for each other after they looked whether it is there."""
        self.lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """What tells a client where it is, and who may use it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "GOOGLE_ALLOW_HTTP": "true",
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(
                {
                    "gcs_base_url": f"http://127.0.0.1:{self.server_port}", "disable_oauth": True,
                    "client_email": "", "private_key": "", "private_key_id": "",
                }
            ),
        }  # fmt: skip


_FAULTS = {
    "forbidden": (403, "AccessDenied"),
    "slow down": (503, "SlowDown"),
    "expired": (400, "ExpiredToken"),
    "in progress": (409, "ConditionalRequestConflict"),
    "not implemented": (501, "NotImplemented"),
}


@contextmanager
def running(*, honours: Collection[str] = CONDITIONS) -> Iterator[S3Server]:
    with S3Server(honours=honours) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=10)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: S3Server

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 — the library's names

    def log_message(self, *_args: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        request = Request(self.command, key, self.headers.get("Authorization"))
        self.server.requests.append(request)
        fault = self.server.fault(request)
        if fault in _FAULTS:
            return self._error(*_FAULTS[fault])
        if fault == "web page":
            return self._answer(200, b"<html><body>Please log in</body></html>", '"x"')
        if bucket != BUCKET:
            return self._error(404, "NoSuchBucket")
        if self.server.race and self.command == "PUT" and key not in self.server.objects:
            self.server.race.wait(60)
            self.headers.replace_header("If-None-Match", "")
        with self.server.lock:
            answer = self._done(key, parse_qs(parts.query, keep_blank_values=True), body)
        if fault == "lost":
            self.close_connection = True
            return None
        return self._answer(*answer) if isinstance(answer, tuple) else self._error(*_ERRORS[answer])

    def _done(self, key: str, query: dict[str, list[str]], body: bytes) -> tuple[int, bytes, str] | str:  # noqa: PLR0911 — one for each kind of request
        objects = self.server.objects
        if self.command == "PUT":
            return self._put(key, body)
        if self.command == "POST":  # only "delete these" is asked
            keys = [element.text or "" for element in ET.fromstring(body).iter() if _is_key(element)]
            for each in keys:
                objects.pop(each, None)
            deleted = "".join(f"<Deleted><Key>{escape(each)}</Key></Deleted>" for each in keys)
            return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), ""
        if self.command == "DELETE":
            return (204, b"", "") if objects.pop(key, None) is not None else "missing"
        if "list-type" in query:
            return 200, self._listed(query), ""
        if key not in objects:
            return "missing"
        data = objects[key]
        if wanted := self.headers.get("Range"):
            start = max(0, len(data) - int(wanted.removeprefix("bytes=-")))
            self._range = f"bytes {start}-{len(data) - 1}/{len(data)}"
            return 206, data[start:], _tag(data)
        return 200, data, _tag(data)

    def _put(self, key: str, body: bytes) -> tuple[int, bytes, str] | str:
        present, honours = self.server.objects.get(key), self.server.honours
        if self.headers.get("If-None-Match") == "*" and "If-None-Match" in honours and present is not None:
            return "refused"
        if (wanted := self.headers.get("If-Match")) and "If-Match" in honours:
            if present is None:
                return "missing"
            right = _tag(present).strip('"') if self.server.wants_bare_tags else _tag(present)
            if wanted != right:
                return "refused"
        generation = self.server.generations.get(key, 0) if present is not None else 0
        if self.headers.get("x-goog-if-generation-match", f"{generation}") != f"{generation}":
            return "refused"
        self.server.objects[key] = body
        self.server.generations[key] = self.server.generations.get(key, 0) + 2
        self.server.sent += len(body)
        return 200, b"", _tag(body)

    def _listed(self, query: dict[str, list[str]]) -> bytes:
        """Two names a page: whoever reads only the first page is found out."""
        names = sorted(name for name in self.server.objects if name.startswith(query.get("prefix", [""])[0]))
        names = [name for name in names if name > query.get("continuation-token", [""])[0]]
        page, more = names[:2], names[2:]
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(_tag(self.server.objects[name]))}</ETag><Size>{len(self.server.objects[name])}</Size></Contents>"
            for name in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        cut = "true" if more else "false"
        return f"<ListBucketResult><IsTruncated>{cut}</IsTruncated>{token}{rows}</ListBucketResult>".encode()

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode(), "")

    def _answer(self, status: int, body: bytes, tag: str) -> None:
        self.send_response(status)
        if tag:
            self.send_header("ETag", tag)
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]
            self.send_header("x-goog-generation", f"{self.server.generations.get(key, 0)}")
        if status == 206:
            self.send_header("Content-Range", self._range)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


_ERRORS = {"missing": (404, "NoSuchKey"), "refused": (412, "PreconditionFailed")}


def _is_key(element: ET.Element) -> bool:
    return element.tag.rpartition("}")[2] == "Key"


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
