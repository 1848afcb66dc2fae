"""Calls of an agent that knows the tools' descriptions and schemas: they work, or are answered with an example."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin.memory import MemoryLimits
from tests.mcp.servers import connected, refused, told
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

NAME = "TypeError_app.js:42"
MESSAGE = "TypeError: x is undefined at app.js:42"


def save(namespace: str, data: Any, key: str | None = None) -> tuple[str, dict[str, Any]]:
    named = {} if key is None else {"key": key}
    return "session_store", {"action": "save", "namespace": namespace, "data": data, **named}


ERRORS = {
    "a message": save("errors", MESSAGE),
    "an object": save("errors", {"message": MESSAGE, "count": 1}),
    "with error and occurrences": save("error_history", {"error": MESSAGE, "occurrences": 1}),
    "with type, file and line": save("errors", {"type": "TypeError", "file": "src/app.js", "line": 42}),
    "under its fingerprint": save("errors", {"message": "x is undefined"}, NAME),
    "a list": save("errors", [{"fingerprint": NAME, "message": "x is undefined"}], "history"),
    "a list below errors": save("errors", {"errors": [{"fingerprint": NAME, "status": "open"}]}, "list"),
    "a map by fingerprint": save("errors", {NAME: {"message": "x is undefined", "first_seen": "2026-01-20"}}),
    "camel case and dates": save("errors", {"id": NAME, "firstSeen": "2026-01-20", "lastSeen": "2026-01-22"}),
    "a type and a stack": save("errors", {"error": {
        "type": "TypeError", "message": "x is undefined", "stack": "TypeError: x\n    at render (app.js:42:7)"
    }}),
    "the tool, with a message": ("record_error", {"message": MESSAGE}),
    "the tool, with error": ("record_error", {"error": MESSAGE, "count": 1}),
    "the tool, with fields": (
        "record_error", {"message": "x is undefined", "type": "TypeError", "file": "app.js", "line": 42}
    ),
    "the tool, with an object": ("record_error", {"error": {"fingerprint": NAME, "msg": "x is undefined"}}),
    "the tool, not resolved": ("record_error", {"error": MESSAGE, "resolved": False}),
    "the tool, with a Python traceback": ("record_error", {"error": (
        'Traceback (most recent call last):\n  File "/srv/main.js", line 1, in <module>\n'
        '  File "/srv/app.js", line 42, in f\nTypeError: x is undefined'
    )}),
    "the tool, with a stack trace": ("record_error", {
        "message": "bad", "stack_trace": 'File "app.js", line 42, in f\nTypeError: bad'
    }),
    "the tool, with a failed test": ("record_error", {"error": "FAILED app.js:42::test_total - TypeError: 3 == 4"}),
    "fields beside the action": ("session_store", {"action": "save", "namespace": "errors", "message": MESSAGE}),
}  # fmt: skip

ENDPOINTS = {
    "a list of names": save("api_schema", ["GET /api/users"]),
    "method and path": save("api_schema", {"method": "get", "path": "/api/users", "response": {"id": 7}}),
    "a list below endpoints": save("api_schema", {"endpoints": [{"method": "GET", "url": "http://x.test/api/users?a=1"}]}),
    "a map by name": save("api_schema", {"GET /api/users": {"status": 200, "response": {"id": 1}}}, "schema"),
    "under its own name": save("api_schema", {"status": 200, "fields": ["id"]}, "GET /api/users"),
    "the tool, with a name": ("observe_endpoint", {"endpoint": "GET /api/users"}),
    "the tool, with method and path": ("observe_endpoint", {"method": "GET", "path": "/api/users", "status": 200}),
    "the tool, with a URL": ("observe_endpoint", {"method": "GET", "url": "http://localhost:3000/api/users?page=1"}),
    "the tool, with a status code": ("observe_endpoint", {"endpoint": "GET /api/users", "statusCode": 200}),
}  # fmt: skip

TIMINGS = {
    "avg_ms": save("performance", {"endpoint": "GET /api/users", "avg_ms": 380}),
    "p95": save("performance", {"endpoint": "GET /api/users", "p95": 380}),
    "latency with its unit": save("performance", {"endpoint": "GET /api/users", "latency": "380ms"}),
    "method, path and duration": save("performance", {"method": "GET", "path": "/api/users", "duration": 380}),
    "a map of numbers": save("performance", {"GET /api/users": 380}),
    "a map of texts": save("performance", {"GET /api/users": "0.38 s"}),
    "a map of objects": save("performance", {"GET /api/users": {"mean": 380, "samples": 10}}, "endpoints"),
    "a list": save("performance", [{"endpoint": "GET /api/users", "response_time_ms": 380}]),
    "below endpoints": save("performance", {"endpoints": {"GET /api/users": {"avg_ms": 380, "p95_ms": 900}}}),
    "a number under the endpoint": save("performance", 380, "GET /api/users"),
    "the tool, with ms": ("observe_endpoint", {"endpoint": "GET /api/users", "ms": 380}),
    "the tool, with latency": ("observe_endpoint", {"method": "GET", "path": "/api/users", "latency_ms": "380"}),
    "the tool, with a unit": ("observe_endpoint", {"endpoint": "GET /api/users", "took": "0.38s"}),
    "in the schema": save("api_schema", {"method": "GET", "path": "/api/users", "avg_ms": 380}),
}  # fmt: skip

NOISE = {
    "a pattern": save("noise", "ResizeObserver"),
    "a list": save("noise", ["ResizeObserver"]),
    "an object": save("noise", {"pattern": "ResizeObserver", "reason": "browser noise"}, "resize"),
    "below rules": save("noise", {"rules": [{"match": "ResizeObserver"}]}, "config"),
    "the tool": ("set_noise", {"pattern": "ResizeObserver*", "why": "browser noise"}),
}

NOT_COUNTED = {
    "errors": {"colour": "red"}, "api_schema": {"paths": {"/api/users": {"get": {"summary": "All users"}}}},
    "performance": {"endpoint": "build", "value": 12, "unit": "MB"}, "noise": {"regex": "^ResizeObserver.*"},
}  # fmt: skip
"""Data that fits no model, by namespace."""


async def called(project: Path, call: tuple[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    tool, arguments = call
    async with connected(project, clock=_january) as (client, _):
        receipt = await told(client, tool, **arguments)
        return receipt, await told(client, "load_session_context")


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS)
async def test_errors_in_common_shapes_are_listed(project: Path, call: tuple[str, dict[str, Any]]) -> None:
    receipt, context = await called(project, call)
    assert [line for line in receipt["understood"] if NAME in line]
    [error] = context["error_history"]["unresolved"]
    assert (error["fingerprint"], error["occurrences"]) == (NAME, 1)


@pytest.mark.parametrize("call", ENDPOINTS.values(), ids=ENDPOINTS)
async def test_endpoints_in_common_shapes_are_recognised(project: Path, call: tuple[str, dict[str, Any]]) -> None:
    receipt, context = await called(project, call)
    assert [line for line in receipt["understood"] if "'GET /api/users'" in line]
    assert context["api_schema"]["coverage"] == "1/1 endpoints observed in last 3 sessions"


@pytest.mark.parametrize("call", TIMINGS.values(), ids=TIMINGS)
async def test_timings_in_common_shapes_show_slowdowns(project: Path, call: tuple[str, dict[str, Any]]) -> None:
    async with connected(project, clock=_january) as (client, _):
        await told(client, "observe_endpoint", endpoint="GET /api/users", ms=150)
    receipt, context = await called(project, call)  # the next session, which does not know the old value
    assert [line for line in receipt["understood"] if "was 150 ms, now 380 ms: DEGRADED" in line]
    performance = context["performance_baselines"]
    assert performance["degraded_since_last"] == ["GET /api/users (was 150ms, now 380ms)"]


@pytest.mark.parametrize("call", NOISE.values(), ids=NOISE)
async def test_noise_rules_in_common_shapes_take_effect(project: Path, call: tuple[str, dict[str, Any]]) -> None:
    receipt, _ = await called(project, call)
    assert [line for line in receipt["understood"] if "esizeObserver" in line or "*Observer" in line]
    assert all("in effect" in line or "there was none" in line for line in receipt["understood"])
    async with connected(project) as (client, _):
        recorded = await told(client, "record_error", error="ResizeObserver loop limit exceeded")
        assert "noise" in recorded["understood"][0]
        context = await told(client, "load_session_context")
        assert context["error_history"]["unresolved"] == []
        assert context["noise_config"]["entries_filtered_lifetime"] == 1


# Receipts that teach -----------------------------------------------------------------------------------------


@pytest.mark.requirement("GASOLINE-P-TOOL-NAMESPACE")
async def test_receipt_says_what_was_not_counted_and_why(project: Path) -> None:
    async with connected(project) as (client, _):
        data = [{"message": MESSAGE, "dump": "x" * 1000}, 17, {"colour": "red"}]
        receipt = await told(client, "session_store", action="save", namespace="errors", data=data)
        assert receipt["understood"] == [f"error '{NAME}': new"]
        ignored = " / ".join(receipt["ignored"])
        for word in ("'dump'", "17: not counted", "red", 'write it as {"message": '):
            assert word in ignored
        assert receipt["bytes"] == (project / ".asnap/errors/history.json").stat().st_size
        beside = {"errors": [MESSAGE], "colour": "red"}
        receipt = await told(client, "session_store", action="save", namespace="errors", data=beside)
        assert receipt["ignored"] == ["'colour': no meaning beside a list of entries"]
        lonely = await told(client, "session_store", action="save", key="a", data=1)
        assert (lonely["namespace"], len(lonely["better"])) == ("default", 1)


@pytest.mark.parametrize("namespace", NOT_COUNTED)
async def test_data_that_fits_no_model_is_kept_as_it_is_and_answered_with_one_example(
    project: Path, namespace: str
) -> None:
    data = NOT_COUNTED[namespace]
    async with connected(project) as (client, _):
        refusal = await client.call_tool("session_store", {"action": "save", "namespace": namespace, "data": data})
        assert refusal.is_error, "without a key it could only be counted"
        kept = await told(client, "session_store", action="save", namespace=namespace, key="notes", data=data)
        assert "understood" not in kept
        [advice] = kept["better"]
        loaded = await told(client, "session_store", action="load", namespace=namespace, key="notes")
        assert loaded["data"] == data
        for text in (refusal.content[0].text, advice):  # type: ignore[union-attr]
            example = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
            counted = await told(client, "session_store", action="save", namespace=namespace, data=example)
            assert len(counted["understood"]) == 1, "the example in the answer works"


@pytest.mark.parametrize(
    ("tool", "arguments", "word"),
    [
        ("record_error", {"message": MESSAGE, "count": "lots"}, "count: "),
        ("record_error", {"message": MESSAGE, "resolved": "yesterday"}, "a date as 2026-11-10"),
        ("record_error", {"colour": "red"}, "a message or a fingerprint"),
        ("observe_endpoint", {"endpoint": "GET /users 200 45ms"}, '"GET /api/users"'),
        ("observe_endpoint", {"endpoint": "GET /users", "ms": "fast"}, '"150ms"'),
        ("set_noise", {"pattern": "^ResizeObserver.*"}, "not a regular expression"),
        ("set_noise", {"pattern": "*"}, "* stands for anything"),
    ],
)
async def test_argument_of_another_type_is_refused_in_words(
    project: Path, tool: str, arguments: dict[str, Any], word: str
) -> None:
    async with connected(project) as (client, _):
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert word in result.content[0].text  # type: ignore[union-attr]
        assert (await told(client, "session_store", action="list"))["namespaces"] == {}


async def test_tools_publish_the_fields_of_their_entries(project: Path) -> None:
    async with connected(project) as (client, _):
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    for tool, fields in {
        "record_error": {"message", "fingerprint", "type", "file", "line", "stack", "count", "resolved"},
        "observe_endpoint": {"endpoint", "method", "path", "response", "shape", "status", "ms"},
        "set_noise": {"pattern", "reason", "auto", "remove"},
    }.items():
        published = schemas[tool]["properties"]
        assert set(published) == fields
        assert all(about["description"] for about in published.values())
        assert {"integer", "null"} == {
            t["type"] for t in published.get("line", {}).get("anyOf", ())
        } or "line" not in fields
    assert schemas["set_noise"]["required"] == ["pattern"]


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("session_store", {"action": "search"}, ("action", "'load'")),
        ("session_store", {}, ("action", "required")),
        ("compare_baseline", {"observed": {}}, ("name", "required")),
        ("show_session", {}, ("session_id", "required")),
        ("search_sessions", {"query": "x", "limit": 0}, ("limit", "greater")),
    ],
)
async def test_refused_arguments_are_named_in_plain_words(
    project: Path, tool: str, arguments: dict[str, Any], named: tuple[str, ...]
) -> None:
    async with connected(project) as (client, _):
        result = await client.call_tool(tool, arguments)
        [text] = result.content
        assert result.is_error
        assert text.type == "text"
        assert text.text.startswith("invalid_input: ")
        for word in named:
            assert word in text.text
        for word in ("pydantic", "http", "Collecting", "Arguments", "\n"):
            assert word not in text.text


@pytest.mark.parametrize(
    ("namespace", "data", "belongs"),
    [
        ("api", {"GET /x": {"status": 200}}, "api_schema"), ("endpoints", ["GET /x"], "api_schema"),
        ("timings", {"GET /x": 15}, "performance"), ("noise_rules", ["favicon"], "noise"),
    ],
)  # fmt: skip
async def test_other_name_of_a_known_namespace_is_understood(
    project: Path, namespace: str, data: Any, belongs: str
) -> None:
    async with connected(project) as (client, _):
        saved = await told(client, "session_store", action="save", namespace=namespace, data=data)
        assert (saved["namespace"], len(saved["understood"])) == (belongs, 1)
        await told(client, "session_store", action="save", namespace=namespace, key="about", data=[[1]])
        kept = await told(client, "session_store", action="load", namespace=namespace, key="about")
        assert kept["data"] == [[1]], "what is not understood is kept as it is"
        assert (await told(client, "session_store", action="list"))["namespaces"] == {belongs: 2}


async def test_saving_again_adds_and_never_resets(project: Path) -> None:
    first = {"fingerprint": NAME, "count": 3, "first_seen": "2026-01-20", "last_seen": "2026-01-20"}
    async with connected(project, clock=_january) as (client, _):
        await told(client, "session_store", action="save", namespace="errors", data=first)
    async with connected(project, clock=_january) as (client, _):
        again = await told(
            client, "session_store", action="save", namespace="errors", data=[{"id": NAME, "count": 4}, "new"]
        )
        assert "7 occurrences since 2026-01-20, unresolved" in again["understood"][0]
        document = (await told(client, "session_store", action="load", namespace="errors"))["data"]
        await told(
            client, "session_store", action="save", namespace="errors", data=document
        )  # a round trip adds nothing
        errors = (await told(client, "load_session_context"))["error_history"]["unresolved"]
    assert {(error["fingerprint"], error["first_seen"], error["occurrences"]) for error in errors} == {
        (NAME, "2026-01-20", 7),
        ("new", "2026-01-22", 1),
    }


def _january() -> datetime:
    return datetime(2026, 1, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "resolved",
    [
        {"resolved": True}, {"status": "fixed"}, {"resolved": "2026-01-22"}, {"fixed": True},
        {"resolved_at": "2026-01-22T11:00:00Z"},
    ],
)  # fmt: skip
async def test_resolved_error_reports_how_many_sessions_it_took(project: Path, resolved: dict[str, Any]) -> None:
    async with connected(project, clock=_january) as (client, _):
        await told(client, "record_error", fingerprint=NAME, first_seen="2026-01-20", last_seen="2026-01-20")
    async with connected(project, clock=_january) as (client, _):
        receipt = await told(client, "record_error", fingerprint=NAME, **resolved)
        assert "resolved after 2 sessions" in receipt["understood"][0]
        history = (await told(client, "load_session_context"))["error_history"]
        [fixed] = history["resolved_recently"]
        assert (fixed["fingerprint"], fixed["resolved"], fixed["sessions_to_fix"]) == (NAME, "2026-01-22", 2)
        assert history["unresolved"] == []
        unknown = await client.call_tool("record_error", {"fingerprint": "never seen", "resolved": True})
        assert unknown.is_error


async def test_fix_details_are_kept_and_an_error_resolves_once(project: Path) -> None:
    async with connected(project) as (client, _):
        await told(client, "record_error", error=MESSAGE, count=2)
        fixed = {"fingerprint": NAME, "resolved": True, "resolution": "null check"}
        assert "resolved after 1 session" in (await told(client, "record_error", **fixed))["understood"][0]
        kept = (await told(client, "session_store", action="load", namespace="errors", key=NAME))["data"]
        assert (kept["resolution"], kept["occurrences"]) == ("null check", 2)
        again = await client.call_tool("record_error", fixed)
        assert again.is_error


async def test_noise_rule_hides_known_errors_and_can_be_removed(project: Path) -> None:
    async with connected(project) as (client, _):
        await told(client, "record_error", error="favicon.ico 404", count=3)
        await told(client, "set_noise", pattern="favicon", auto=True)
        context = await told(client, "load_session_context")
        assert (context["error_history"]["unresolved"], context["error_history"]["hidden_as_noise"]) == ([], 1)
        assert context["noise_config"]["auto_detected"] == 1
        assert "removed" in (await told(client, "set_noise", pattern="favicon", remove=True))["understood"][0]
        assert len((await told(client, "load_session_context"))["error_history"]["unresolved"]) == 1


# Comparing ---------------------------------------------------------------------------------------------------

LOGIN = {"status": 200, "load_ms": 200, "response": {"token": "t", "user": {"id": 7, "roles": ["admin"]}}}


@pytest.mark.requirement("GASOLINE-P-PROOF-REGRESSION", "GASOLINE-P-BOOT-BASELINES")
async def test_every_planted_regression_is_reported_in_the_next_session(project: Path) -> None:
    async with connected(project) as (client, _):
        for name in ("login", "cart"):
            await told(client, "session_store", action="save", namespace="baselines", key=name, data=LOGIN)
    planted: dict[str, dict[str, Any]] = {
        "status: was 200, now 500": {**LOGIN, "status": 500},
        "load_ms: was 200ms, now 900ms": {**LOGIN, "load_ms": 900},
        "response.token: missing": {**LOGIN, "response": {"user": {"id": 7, "roles": ["admin"]}}},
        "response.user.id: was number, now string": {
            **LOGIN, "response": {"token": "t", "user": {"id": "7", "roles": ["x"]}}
        },
        "response.user: was object, now null": {**LOGIN, "response": {"token": "t", "user": None}},
        "response: missing": {"status": 200, "load_ms": 200},
    }  # fmt: skip
    async with connected(project) as (client, _):
        for expected, observed in planted.items():
            found = await told(client, "compare_baseline", name="login", observed=observed)
            assert (found["is_regression"], found["regressions"]) == (True, [expected])
        other_values = {
            "status": 200,
            "load_ms": 210,
            "response": {"token": "u", "user": {"id": 9, "roles": ["a", "b"]}},
        }
        assert (await told(client, "compare_baseline", name="login", observed=other_values))["same"] is True
        more = await told(client, "compare_baseline", name="login", observed={**LOGIN, "new": 1})
        assert (more["is_regression"], more["added"]) == (False, ["new: added"])
        for named in (
            {"key": "login", "data": LOGIN},
            {"baseline": "login", "actual": LOGIN},
            {"name": "login", **LOGIN},
            {"feature": "login", "observed": LOGIN},
            {"baseline_name": "login", "observation": LOGIN},
            {"name": "baselines/login", "observed": LOGIN},
        ):
            assert (await told(client, "compare_baseline", **named))["same"] is True
        assert await refused(client, "compare_baseline", name="nobody", observed={}) == "not_found"
        assert await refused(client, "compare_baseline", name="login") == "invalid_input"


@pytest.mark.requirement("GASOLINE-P-EVICT-BASELINES")
async def test_comparing_keeps_a_baseline_from_being_evicted(project: Path) -> None:
    async with connected(project, limits=MemoryLimits(baselines=2)) as (client, _):
        for name in ("a", "b"):
            await told(client, "session_store", action="save", namespace="baselines", key=name, data=LOGIN)
        await told(client, "compare_baseline", name="a", observed=LOGIN)
        saved = await told(client, "session_store", action="save", namespace="baselines", key="c", data=LOGIN)
        assert saved["evicted"] == ["baselines/b"]


# Context -----------------------------------------------------------------------------------------------------


async def test_context_of_a_full_memory_is_bounded_and_says_how_to_get_the_rest(project: Path) -> None:
    async with connected(project) as (client, _):
        errors = [{"fingerprint": f"Error{n}_{'x' * 100}", "message": "m" * 900} for n in range(500)]
        await told(client, "session_store", action="save", namespace="errors", data=errors)
        for n in range(50):
            data = {"status": 200}
            await told(
                client,
                "session_store",
                action="save",
                namespace="baselines",
                key=f"feature-{n}-{'y' * 90}",
                data=data,
            )
        for n in range(60):
            await told(client, "session_store", action="save", namespace=f"space{n}", key="k" * 100, data=1)
        result = await client.call_tool("load_session_context", {})
        [text] = result.content
        assert result.structured_content is None, "the same is not sent twice"
        size = len(text.text.encode())  # type: ignore[union-attr]
        assert 3000 < size <= 8192
        context = await told(client, "load_session_context")
        assert (context["error_history"]["unresolved_count"], context["baselines"]["count"]) == (500, 50)
        listed = len(context["error_history"]["unresolved"])
        assert context["left_out"]["error_history.unresolved"].startswith(f"{500 - listed} more: session_store(")
        page = await told(client, "session_store", action="load", namespace="errors", start=490, limit=50)
        assert (len(page["data"]["entries"]), page["total"]) == (10, 500)


@pytest.mark.requirement("GASOLINE-P-PLACE-GLOBAL")
async def test_global_preferences_apply_in_every_project(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with connected(tmp_path / "one") as (client, _):
        await told(client, "session_store", action="save", namespace="global", key="style", data={"indent": 2})
    assert not list((tmp_path / "one/.asnap").glob("global*"))
    async with connected(tmp_path / "two") as (client, _):
        assert (await told(client, "load_session_context"))["preferences"] == {"style": '{"indent": 2}'}
        loaded = await told(client, "session_store", action="load", namespace="global", key="style")
        assert loaded["data"] == {"indent": 2}
        await told(client, "session_store", action="delete", namespace="global", key="style")
        assert await refused(client, "session_store", action="load", namespace="global", key="style") == "not_found"


async def test_secret_fields_are_redacted(project: Path) -> None:
    data = {
        "api_key": "abc123xyz",
        "clientSecret": "s3cr3t",
        "token": "zzz",
        "tokens": 12,
        "shape": {"token": "string"},
    }
    async with connected(project) as (client, _):
        saved = await told(client, "session_store", action="save", namespace="config", key="prod", data=data)
        loaded = await told(client, "session_store", action="load", namespace="config", key="prod")
    assert saved["redacted"] == {"field": 3}
    assert loaded["data"] == {
        "api_key": "[redacted:field]",
        "clientSecret": "[redacted:field]",
        "token": "[redacted:field]",
        "tokens": 12,
        "shape": {"token": "string"},
    }


async def test_actions_and_names_in_other_words_are_understood(project: Path) -> None:
    async with connected(project) as (client, _):
        await told(client, "session_store", action="put", key="decisions/db", value={"choice": "sqlite"})
        loaded = await told(client, "session_store", action="get", namespace="decisions", key="db")
        assert loaded["data"] == {"choice": "sqlite"}
        baseline = await told(client, "session_store", action="save", namespace="baselines", data={"name": "login"})
        assert baseline["key"] == "login"
        unnamed = await client.call_tool("session_store", {"action": "load", "namespace": "decisions"})
        assert unnamed.is_error
        assert "there are: db" in str(unnamed.content[0])
        await told(client, "session_store", action="remove", key="decisions/db")
        assert (await told(client, "session_store", action="list"))["namespaces"] == {"baselines": 1}
