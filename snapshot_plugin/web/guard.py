"""Refuse every request that is not from our own page, with the token, on this machine's own name.

- ``Host`` must be the address we listen on, else 421: a foreign name that resolves to 127.0.0.1 is refused.
- ``Origin`` and ``Sec-Fetch-Site`` must be our own, else 403, so other pages have no access. Only navigation to the
  page itself (a link, a start page) may come from other sites; the page holds no data.
- Everything below ``/api/`` needs ``Authorization: Bearer TOKEN``, else 401. There is no cookie: cookies are shared
  between the ports of a host.
- A request that changes something must be JSON, else 415, and is refused with 403 in read-only mode.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from snapshot_plugin.web.answers import refusal

__all__ = ["Guard"]

_READS = frozenset({"GET", "HEAD"})
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Refuses requests that are not from our own page; adds security headers to every answer."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], token: str, read_only: bool) -> None:
        self._app, self._hosts, self._read_only = app, frozenset(hosts), read_only
        self._bearer = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(scope, Headers(scope=scope))

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        if refused is None:
            await self._app(scope, receive, send_guarded)
        else:
            await refusal(*refused)(scope, receive, send_guarded)

    def _refused(self, scope: Scope, headers: Headers) -> tuple[int, str, str] | None:
        """The status, code and reason of a refusal; None if the request is allowed."""
        if headers.get("host") not in self._hosts:
            return 421, "wrong_host", "this address is not the server's own"
        is_api, is_read = scope["path"].startswith("/api/"), scope["method"] in _READS
        if self._is_foreign(headers, may_navigate=is_read and not is_api):
            return 403, "wrong_origin", "only the server's own page may send requests"
        if not is_api:
            return None if is_read else (405, "wrong_method", "pages can only be read")
        return self._refused_by_api(headers, is_read=is_read)

    def _refused_by_api(self, headers: Headers, *, is_read: bool) -> tuple[int, str, str] | None:
        if not hmac.compare_digest(headers.get("authorization", "").encode(), self._bearer):
            return 401, "wrong_token", "open the address that asnap ui printed"
        if is_read:
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "wrong_type", "changes must be sent as JSON"
        return (403, "read_only", "asnap ui was started with --read-only") if self._read_only else None

    def _is_foreign(self, headers: Headers, *, may_navigate: bool) -> bool:
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return True
        site = headers.get("sec-fetch-site", "none")
        if site in ("same-origin", "none"):
            return False
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return not (may_navigate and is_link)
