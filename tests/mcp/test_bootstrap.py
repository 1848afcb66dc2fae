"""What it takes an agent to get started: without a memory, and in a project that earlier sessions have been in.

It is counted in characters that pass through the agent (a token is about four of them), for they are the same on
every machine; and where it has to be time, in processor time.
"""

from __future__ import annotations

import json
import random
import resource
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from snapshot_plugin.memory import shape_of
from tests.mcp.servers import command, connected, told
from tests.memory.opening import filled

pytestmark = pytest.mark.anyio


class App:
    """What is developed in the project: 14 endpoints, 12 kinds of noise in the console, 5 features."""

    def __init__(self) -> None:
        rng = random.Random(7)
        self.endpoints = {f"GET /api/{_word(rng)}": self._page(rng) for _ in range(14)}
        self.console = {f"[{_word(rng)}] {_word(rng)} at": _words(rng, 120) for _ in range(12)}
        self.features = {_word(rng): {"status": 200, "body": self._page(rng)} for _ in range(5)}

    def _page(self, rng: random.Random) -> dict[str, Any]:
        """A page of twenty items, as lists of things are answered."""
        fields = [_word(rng) for _ in range(6)]
        items = [{"id": n, **{field: _words(rng, 3) for field in fields}} for n in range(20)]
        return {"items": items, "next": _word(rng), "total": rng.randrange(1000)}


def _word(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghijklmnop", k=7))


def _words(rng: random.Random, count: int) -> str:
    return " ".join(_word(rng) for _ in range(count))


class Agent:
    """Has to know the API, what is noise, and how each feature behaves, before it can do anything."""

    def __init__(self, app: App, client: Client | None) -> None:
        self.known: dict[str, Any] = {"schema": {}, "noise": [], "baselines": {}}
        self.spent = 0
        self._app, self._client = app, client

    async def get_started(self) -> None:
        if self._client is not None:
            await self._recall()
        new = self._discover()
        if self._client is not None and new:
            await self._remember()

    def _discover(self) -> bool:
        """Look at everything that is not known yet: it is read in full."""
        before = self.spent
        for endpoint, page in self._app.endpoints.items():
            if endpoint not in self.known["schema"]:
                self._look(endpoint, page)
                self.known["schema"][endpoint] = shape_of(page)
        for event, source in self._app.console.items():
            if event not in self.known["noise"]:
                self._look(event, source)
                self.known["noise"].append(event)
        for feature, behaviour in self._app.features.items():
            if feature not in self.known["baselines"]:
                self._look(feature, behaviour)
                self.known["baselines"][feature] = {**behaviour, "body": shape_of(behaviour["body"])}
        return self.spent > before

    def _look(self, *seen: Any) -> None:
        self.spent += sum(len(json.dumps(each)) for each in seen)

    async def _recall(self) -> None:
        context = await self._call("load_session_context")
        if context["api_schema"]["endpoints_known"]:
            schema = await self._store("load", "api_schema", "schema")
            self.known["schema"] = {entry["endpoint"]: entry["shape"] for entry in schema["endpoints"]}
        if context["noise_config"]["rules_count"]:
            noise = await self._store("load", "noise", "config")
            self.known["noise"] = [rule["pattern"] for rule in noise["rules"]]
        for name in context["baselines"]["names"]:
            self.known["baselines"][name] = await self._store("load", "baselines", name)

    async def _remember(self) -> None:
        endpoints = [{"endpoint": name, "shape": shape} for name, shape in self.known["schema"].items()]
        await self._store("save", "api_schema", "schema", data={"endpoints": endpoints})
        rules = [{"pattern": pattern} for pattern in self.known["noise"]]
        await self._store("save", "noise", "config", data={"rules": rules})
        for name, behaviour in self.known["baselines"].items():
            await self._store("save", "baselines", name, data=behaviour)

    async def _store(self, action: str, namespace: str, key: str, **more: Any) -> Any:
        answer = await self._call("session_store", action=action, namespace=namespace, key=key, **more)
        return answer.get("data")

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        assert self._client is not None
        answer = await told(self._client, tool, **arguments)
        self._look(arguments, answer)
        return answer


async def spent(app: App, client: Client | None) -> int:
    agent = Agent(app, client)
    await agent.get_started()
    nothing_known_before = Agent(app, None)
    await nothing_known_before.get_started()
    assert agent.known == nothing_known_before.known, "to know less would be cheap"
    return agent.spent


@pytest.mark.requirement("GASOLINE-P-PROOF-BOOTSTRAP")
async def test_later_sessions_start_with_a_fifth_of_the_effort(project: Path) -> None:
    app = App()
    without = await spent(app, None)
    first, *later = [await _in_a_session(project, app) for _ in range(5)]
    assert first < 1.25 * without, "the first one also writes down what it found"
    assert max(later) <= 0.2 * without


async def _in_a_session(project: Path, app: App) -> int:
    async with connected(project) as (client, _):
        return await spent(app, client)


@pytest.mark.requirement("GASOLINE-P-PROOF-BOOT")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_server_with_ten_megabytes_stored_answers_within_five_seconds(
    project: Path,
) -> None:
    server = command(filled(project))
    server.args.insert(0, "-s")  # not forked: the start of the interpreter counts
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with anyio.fail_after(60):
        async with Client(server) as client:
            context = await told(client, "load_session_context")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (context["baselines"]["count"], context["error_history"]["unresolved_count"]) == (50, 500)
    assert 0 < after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 5
