from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import snapshot_plugin.web
from tests.web.conftest import OURS, Opened

SAME = {"origin": "http://127.0.0.1:4321", "sec-fetch-site": "same-origin"}
NAVIGATION = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
WRITES = [
    ("PATCH", "/api/v1/sessions/one", {"pinned": True}),
    ("DELETE", "/api/v1/sessions/one", {}),
    ("POST", "/api/v1/sessions/one/fork", {}),
    ("POST", "/api/v1/sessions/one/snapshot", {}),
    ("POST", "/api/v1/forget", {"sessions": ["one"]}),
    ("POST", "/api/v1/operations/x/undo", {}),
    ("POST", "/api/v1/trash/x/restore", {}),
]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:9", "127.0.0.1", "localhost:4321.evil.example"])
@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/v1/sessions"])
def test_foreign_host_header_is_refused(client: TestClient, host: str, path: str) -> None:
    assert client.get(path, headers={"host": host}).status_code == 421


def test_localhost_is_accepted_as_host(client: TestClient) -> None:
    assert client.get("/api/v1/sessions", headers={"host": "localhost:4321"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:4321"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        NAVIGATION,
    ],
)
def test_foreign_origin_cannot_use_the_api(client: TestClient, headers: Mapping[str, str]) -> None:
    assert client.get("/api/v1/sessions", headers={**headers}).status_code == 403


def test_external_link_opens_the_page_but_cannot_frame_it(client: TestClient) -> None:
    assert client.get("/", headers=NAVIGATION).status_code == 200
    framed = {**NAVIGATION, "sec-fetch-dest": "iframe"}
    assert client.get("/", headers=framed).status_code == 403


@pytest.mark.parametrize(
    "token", ["", "Bearer", "Bearer wrong", "the-token", "Bearer the-token2", "bearer the-token"]
)
def test_api_refuses_requests_without_the_token(client: TestClient, token: str) -> None:
    refused = client.get("/api/v1/sessions", headers={"authorization": token})
    assert refused.status_code == 401
    assert refused.json()["code"] == "wrong_token"


def test_page_itself_needs_no_token_and_holds_no_data(client: TestClient) -> None:
    page = client.get("/s/one", headers={"authorization": ""})
    assert page.status_code == 200
    assert "needle" not in page.text


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_change_that_is_not_json_is_refused(
    client: TestClient, method: str, path: str, body: object, kind: str
) -> None:
    refused = client.request(method, path, content=b"{}", headers={**SAME, "content-type": kind})
    assert refused.status_code == 415


@pytest.mark.parametrize(
    "body", ["[" * 200_000, '{"a":' * 100_000, "9" * 5000, "[]", '"', b"\xff", "{" + " " * (2 << 20)]
)
@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in WRITES])
def test_malformed_or_oversized_body_is_a_bad_request(
    client: TestClient, method: str, path: str, body: str | bytes
) -> None:
    refused = client.request(method, path, content=body, headers={**SAME, "content-type": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input")


def test_client_that_hangs_up_in_mid_request_causes_no_error(client: TestClient) -> None:
    head = {"host": "127.0.0.1:4321", "content-type": "application/json", **OURS, **SAME}
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/forget", "query_string": b"", "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in head.items()],
    }  # fmt: skip
    arriving: Iterator[MutableMapping[str, Any]] = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return next(arriving)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    assert client.portal
    client.portal.call(client.app, scope, receive, send)

    assert sent[0]["status"] == 400


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_read_only_refuses_every_change(
    client: TestClient, opened: Opened, method: str, path: str, body: object
) -> None:
    refused = opened(read_only=True).request(method, path, json=body, headers=SAME)
    assert (refused.status_code, refused.json()["code"]) == (403, "read_only")


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/v1/sessions", "/nowhere"])
def test_every_response_has_isolating_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_api_responses_are_not_cached_by_the_browser(client: TestClient) -> None:
    assert client.get("/api/v1/sessions").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py"])
def test_files_outside_the_page_are_not_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_page_names_all_its_modules_so_that_they_load_at_once(client: TestClient) -> None:
    page = client.get("/").text
    modules = [path.name for path in (Path(snapshot_plugin.web.__file__).parent / "static").glob("*.js")]
    assert len(modules) > 5
    assert all(f'"/static/{name}"' in page for name in modules)


def test_page_loads_nothing_from_elsewhere(client: TestClient) -> None:
    for name in ("index.html", "style.css", "app.js", "list.js", "session.js", "transcript.js", "dom.js"):
        text = client.get(f"/static/{name}", headers=OURS).text
        assert "//cdn" not in text
        assert "innerHTML" not in text
        assert "document.cookie" not in text
