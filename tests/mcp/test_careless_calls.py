"""Calls that are incomplete, too large or mistaken: what an agent is told, and that nothing wrong is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.servers import connected, refused, told

pytestmark = pytest.mark.anyio


async def store(client: Any, action: str, **arguments: Any) -> dict[str, Any]:
    return await told(client, "session_store", action=action, **arguments)


async def refusal(client: Any, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


# What a namespace holds --------------------------------------------------------------------------------------

HELD = {
    "errors": (["TypeError_app.js:42", "错" * 150, "x" * 300], "fingerprint"),
    "api_schema": (["GET /users", "POST /login"], "endpoint"),
    "performance": (["GET /users", "build"], "endpoint"),
    "noise": (["favicon", "[HMR]*"], "pattern"),
}


@pytest.mark.parametrize("namespace", HELD)
async def test_listed_names_of_a_namespace_can_be_loaded_and_deleted(project: Path, namespace: str) -> None:
    names, field = HELD[namespace]
    async with connected(project) as (client, _):
        await store(client, "save", namespace=namespace, data=[{field: name, "ms": 5} for name in names])
        assert sorted((await store(client, "list", namespace=namespace))["keys"]) == sorted(names)
        for name in names:
            loaded = await store(client, "load", namespace=namespace, key=name)
            assert loaded["data"][field] == name
        await store(client, "delete", namespace=namespace, key=names[0])
        assert sorted((await store(client, "list", namespace=namespace))["keys"]) == sorted(names[1:])
        listed = (await store(client, "list", namespace="*"))["namespaces"]
        assert listed[namespace] == len(names) - 1


async def test_long_answers_are_pages_and_say_how_to_get_the_rest(project: Path) -> None:
    errors = [{"message": f"Error {n}", "file": f"m{n}.py", "line": n, "note": "x" * 50} for n in range(300)]
    async with connected(project) as (client, _):
        receipt = await store(client, "save", namespace="errors", data=errors)
        assert len(json.dumps(receipt)) < 3000
        assert receipt["understood"][-1] == "… 280 more"
        for action, start in (("list", 200), ("load", 250)):
            newest = await store(client, action, namespace="errors")
            assert len(json.dumps(newest)) < 20_000
            assert (newest["total"], newest["start"]) == (300, start)
            rest = await store(client, action, namespace="errors", start=0, limit=start)
            parts = [page["keys"] if action == "list" else page["data"]["entries"] for page in (rest, newest)]
            assert [len(part) for part in parts] == [start, 300 - start]
        for number in range(150):
            await store(client, "save", namespace="notes", key=f"n{number}", data=1)
        assert len(await refusal(client, "session_store", action="load", namespace="notes")) < 1000


async def test_unknown_key_is_answered_with_similar_ones(project: Path) -> None:
    async with connected(project) as (client, _):
        for key in ("database", "framework"):
            await store(client, "save", namespace="decisions", key=key, data=1)
            await store(client, "save", namespace="baselines", key=key, data={"status": 200})
        await told(client, "record_error", error="TypeError: x at app.js:42")
        for action in ("load", "delete"):
            text = await refusal(client, "session_store", action=action, namespace="decisions", key="databse")
            assert "there is 'database'" in text
            text = await refusal(client, "session_store", action=action, namespace="errors", key="app.js:42")
            assert "'TypeError_app.js:42'" in text
        assert "'database'" in await refusal(client, "compare_baseline", name="Database", observed={})
        nothing = await refusal(client, "session_store", action="load", namespace="performance")
        assert nothing == "not_found: the namespace 'performance' is empty"


# Deleting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["errors", "decisions", "global"])
async def test_deleting_a_whole_namespace_needs_confirmation(project: Path, namespace: str) -> None:
    async with connected(project) as (client, _):
        for key in ("one", "two"):
            await store(client, "save", namespace=namespace, key=key, data={"message": key})
            await store(client, "save", namespace="kept", key=key, data=key)
        for named in ({}, {"key": "*"}):
            text = await refusal(client, "session_store", action="delete", namespace=namespace, **named)
            assert "one, two" in text
            assert "confirm=true" in text
            assert len((await store(client, "list", namespace=namespace))["keys"]) == 2
        cleared = await store(client, "delete", namespace=namespace, confirm=True)
        assert (cleared["namespace"], cleared["cleared"]) == (namespace, True)
        assert (await store(client, "list"))["namespaces"] == {"kept": 2}


# Words and types ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "action"),
    [
        (("SAVE", "store", "write", "add", "update", "remember"), "save"),
        (("Load", "fetch", "show"), "load"),
        (("ls", "keys"), "list"),
        (("forget", "clear"), "delete"),
        (("info",), "stats"),
    ],
)
async def test_other_words_for_an_action_are_understood(project: Path, words: tuple[str, ...], action: str) -> None:
    async with connected(project) as (client, _):
        for word in words:
            await store(client, "save", namespace="a", key="k", data=1)
            answer = await told(client, "session_store", action=word, namespace="a", key="k", data=1)
            assert answer["action"] == action


async def test_number_as_a_key_is_text(project: Path) -> None:
    async with connected(project) as (client, _):
        assert (await store(client, "save", namespace="issues", key=42, data="login"))["key"] == "42"
        assert (await store(client, "load", namespace="issues", key="42"))["data"] == "login"
        await told(client, "record_error", fingerprint=17, error="boom")
        await store(client, "save", namespace="baselines", key=7, data={"status": 200})
        assert (await told(client, "compare_baseline", name=7, observed={"status": 200}))["same"]


async def test_arguments_that_are_not_used_are_reported(project: Path) -> None:
    async with connected(project) as (client, _):
        saved = await store(client, "save", namespace="decisions", key="db", data={"choice": "sqlite"}, ttl=5)
        assert saved["ignored"] == ["'ttl': not an argument; put it into data"]
        beside = await store(client, "save", namespace="decisions", key="ui", choice="htmx", why="small")
        assert "ignored" not in beside
        loaded = await store(client, "load", namespace="decisions", key="ui")
        assert loaded["data"] == {"choice": "htmx", "why": "small"}


# Values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "data"),
    [
        ("noise", "*"), ("noise", ".*"), ("noise", ["**"]), ("noise", {"pattern": "^.*$"}),
        ("performance", {"GET /users": True}), ("performance", {"GET /users": "fast"}),
    ],
)  # fmt: skip
async def test_value_without_a_meaning_is_refused(project: Path, namespace: str, data: Any) -> None:
    async with connected(project) as (client, _):
        code = await refused(client, "session_store", action="save", namespace=namespace, data=data)
        assert code == "invalid_input"
        assert (await store(client, "list"))["namespaces"] == {}


async def test_field_that_cannot_be_read_is_reported_with_the_expected_form(project: Path) -> None:
    async with connected(project) as (client, _):
        data = {"message": "E", "first_seen": "yesterday", "count": "lots", "severity": "high"}
        saved = await store(client, "save", namespace="errors", data=data)
        told_of = " / ".join(saved["ignored"])
        assert "'first_seen': \"yesterday\" was not used; expected a time as 2026-11-10" in told_of
        assert "'count': \"lots\" was not used; expected a valid integer" in told_of
        kept = (await store(client, "load", namespace="errors", key="E"))["data"]
        assert (kept["severity"], kept["occurrences"]) == ("high", 1)


async def test_resolving_twice_says_that_it_is_resolved_already(project: Path) -> None:
    async with connected(project) as (client, _):
        await told(client, "record_error", error="TypeError: x at app.js:42")
        await told(client, "record_error", fingerprint="TypeError_app.js:42", resolved=True)
        text = await refusal(client, "record_error", fingerprint="TypeError_app.js:42", resolved=True)
        assert "is resolved already" in text


@pytest.mark.parametrize("said", [{"resolved": True}, {"status": "fixed"}])
async def test_error_is_resolved_by_its_message_alone(project: Path, said: dict[str, Any]) -> None:
    async with connected(project) as (client, _):
        for line in (1, 2):
            await told(client, "record_error", type="KeyError", message=f"no {line}", file="cart.py", line=line)
        receipt = await told(client, "record_error", error="no 2", **said)
        assert receipt["understood"] == ["error 'KeyError_cart.py:2': resolved after 1 session"]
        assert (await store(client, "list", namespace="errors"))["keys"] == [
            "KeyError_cart.py:1",
            "KeyError_cart.py:2",
        ]
