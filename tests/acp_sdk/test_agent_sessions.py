"""What the mixin answers for an agent: load, resume, list, fork, close, delete, and all that is unknown."""

# mypy: disable-error-code="abstract"
# The SDK's agents leave methods out.
from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from acp.agent.router import build_agent_router

from snapshot_plugin import FilesystemStore
from snapshot_plugin.acp import methods
from snapshot_plugin.acp.state import expected_grade, last_restore
from tests.acp_sdk.agents.scripted import RememberingAgent, ScriptedAgent
from tests.acp_sdk.connected import Peer, Refused, connected, words

pytestmark = pytest.mark.anyio
OURS = ("session/load", "session/resume", "session/list", "session/fork", "session/close", "session/delete")
SAID = [("user", "one"), ("agent", "heard one")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the SDK knows no other


async def a_session(store: Path, *prompts: str, **options: Any) -> str:
    """A session with these turns, by a process that is gone."""
    async with connected(ScriptedAgent(store, **options)) as peer:
        await peer.initialize()
        session_id = await peer.new_session()
        for prompt in prompts:
            await peer.prompt(session_id, prompt)
        return session_id


class TestOffer:
    async def test_session_capabilities_are_added_and_nothing_else_changes(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as peer:
            assert await peer.initialize() == {
                "protocolVersion": 1,
                "agentInfo": {"name": "scripted", "version": "1"},
                "agentCapabilities": {
                    "loadSession": True,
                    "sessionCapabilities": {"list": {}, "resume": {}, "fork": {}, "close": {}, "delete": {}},
                },
            }

    @pytest.mark.parametrize("unstable", [False, True])
    async def test_session_methods_work_whatever_the_sdk_flag(self, tmp_path: Path, unstable: bool) -> None:
        async with connected(ScriptedAgent(tmp_path), use_unstable_protocol=unstable) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            for method in OURS:
                assert isinstance(await peer.about(method, session_id), dict), method

    async def test_unknown_protocol_version_is_left_alone(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path, version=2)) as peer:
            assert "agentCapabilities" not in await peer.initialize()
            session_id = await peer.new_session()
            assert await peer.prompt(session_id, "one") == "heard one"
        assert not (tmp_path / "sessions").exists()


@pytest.mark.skipif(version("agent-client-protocol") >= "1", reason="it has learned it, as a pre-release")
class TestSdk:
    """What the SDK cannot do today. When one of these fails, it has learned it: see the docs and `agent_wire`."""

    def routes(self, *, unstable: bool) -> dict[str, Any]:
        return build_agent_router(ScriptedAgent(None), use_unstable_protocol=unstable)._requests

    def test_sdk_does_not_route_delete(self) -> None:
        assert "session/delete" not in self.routes(unstable=True)
        assert "logout" not in self.routes(unstable=True)

    def test_sdk_routes_close_resume_and_fork_only_with_a_flag(self) -> None:
        routes = self.routes(unstable=False)
        assert {name for name in OURS if name in routes and routes[name].warn_unstable} == {
            "session/close",
            "session/resume",
            "session/fork",
        }


class TestUnknown:
    @pytest.mark.parametrize(
        "method", ["session/load", "session/resume", "session/fork", "session/close", "session/prompt"]
    )
    @pytest.mark.parametrize("session_id", ["nobody", "../etc", "x" * 300])
    async def test_unknown_session_is_not_found(self, tmp_path: Path, method: str, session_id: str) -> None:
        agent = ScriptedAgent(tmp_path)
        async with connected(agent) as peer:
            await peer.initialize()
            with pytest.raises(Refused) as caught:
                await peer.about(method, session_id, prompt=[])
            assert (caught.value.code, caught.value.data["sessionId"]) == (-32002, session_id)
        assert agent.asked == []

    async def test_deleting_an_unknown_session_succeeds(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            assert await peer.about("session/delete", "nobody") == {}

    async def test_foreign_cursor_is_refused(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            with pytest.raises(Refused) as caught:
                await peer.request("session/list", {"cursor": "mine"})
            assert caught.value.code == -32602

    async def test_malformed_request_is_still_answered_by_the_sdk(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            await peer.send({"id": "odd", "method": 5, "params": {}})
            assert "error" in await peer.answer_to("odd")

    async def test_vendor_methods_reach_the_agent(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            assert "error" not in await peer.answer_to(await peer.begin("_vendor/thing", {"sessionId": "nobody"}))


class TestLoad:
    async def test_replay_comes_before_the_load_response_and_nothing_after(self, tmp_path: Path) -> None:
        session_id = await a_session(tmp_path, "one")
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            result, updates = await peer.load(session_id)
            assert words(updates) == SAID
            assert result["_meta"]["asnap"]["restored"]["grade"] == "context"
            before = len(peer.received)
            await peer.request("session/list")
            assert peer.updates(session_id, since=before) == []

    async def test_restore_report_is_stored_in_the_record(self, tmp_path: Path) -> None:
        session_id = await a_session(tmp_path, "one")
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            result, _ = await peer.load(session_id)
        async with FilesystemStore(tmp_path) as store:
            record = await store.load(session_id)
        report = result["_meta"]["asnap"]["restored"]
        assert last_restore(record) == report
        assert expected_grade(record) == report["grade"] == "context"

    async def test_resume_replays_nothing_and_the_session_continues(self, tmp_path: Path) -> None:
        session_id = await a_session(tmp_path, "one")
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            await peer.request("session/resume", {"sessionId": session_id, "cwd": "/"})
            assert peer.updates(session_id) == []
            assert await peer.prompt(session_id, "two") == "heard two"
            assert words((await peer.load(session_id))[1]) == [*SAID, ("user", "two"), ("agent", "heard two")]

    async def test_loading_again_replays_the_same_without_asking_the_agent(self, tmp_path: Path) -> None:
        session_id = await a_session(tmp_path, "one")
        agent = ScriptedAgent(tmp_path)
        async with connected(agent) as peer:
            await peer.initialize()
            first, second = await peer.load(session_id), await peer.load(session_id)
            assert words(first[1]) == words(second[1]) == SAID
            assert agent.asked == [("new", "0")]

    async def test_concurrent_loads_give_one_session(self, tmp_path: Path) -> None:
        session_id = await a_session(tmp_path, "one")
        agent = ScriptedAgent(tmp_path)
        async with connected(agent) as peer:
            await peer.initialize()
            await asyncio.gather(peer.about("session/resume", session_id), peer.about("session/resume", session_id))
        assert agent.asked == [("new", "0")]

    async def test_fields_unknown_to_the_sdk_are_recorded(self, tmp_path: Path) -> None:
        block = {"type": "text", "text": "one", "future": {"deep": [1]}}
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            await peer.request("session/prompt", {"sessionId": session_id, "prompt": [block]})
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            assert (await peer.load(session_id))[1][0]["content"] == block

    async def test_mode_is_restored(self, tmp_path: Path) -> None:
        before, after = ScriptedAgent(tmp_path), ScriptedAgent(tmp_path)
        before.has_modes = after.has_modes = True
        async with connected(before) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            await peer.about("session/set_mode", session_id, modeId="code")
        async with connected(after) as peer:
            await peer.initialize()
            result, _ = await peer.load(session_id)
            assert result["modes"]["currentModeId"] == "code"
            assert after.modes == {"0": "code"}
            assert (await peer.load(session_id))[0]["modes"]["currentModeId"] == "code"

    async def test_agents_refusal_to_create_a_session_is_reported_and_loses_nothing(self, tmp_path: Path) -> None:
        session_id = await a_session(tmp_path, "one")
        agent = ScriptedAgent(tmp_path)
        agent.refuses_sessions = True
        async with connected(agent) as peer, connected(ScriptedAgent(tmp_path)) as other:
            await peer.initialize()
            await other.initialize()
            with pytest.raises(Refused) as caught:
                await peer.load(session_id)
            assert caught.value.code == -32000
            assert words((await other.load(session_id))[1]) == SAID

    async def test_settings_of_a_new_session_are_recorded_and_not_repeated(self, tmp_path: Path) -> None:
        greeting = ScriptedAgent(tmp_path)
        greeting.greets = True
        async with connected(greeting) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            assert [update["sessionUpdate"] for update in peer.updates(session_id)] == [
                "available_commands_update",
                "agent_message_chunk",
            ]
        again = ScriptedAgent(tmp_path)
        again.greets = True
        async with connected(again) as peer:
            await peer.initialize()
            _, updates = await peer.load(session_id)
            assert words(updates) == [("agent", "welcome")]
            assert updates[-1]["sessionUpdate"] == "available_commands_update"

    async def test_a_live_session_belongs_to_its_connection(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as one, connected(ScriptedAgent(tmp_path)) as other:
            await one.initialize()
            await other.initialize()
            session_id = await one.new_session()
            with pytest.raises(Refused) as caught:
                await other.load(session_id)
            assert caught.value.data["reason"] == "locked"


class TestIds:
    async def test_new_session_never_replaces_an_old_one(self, tmp_path: Path) -> None:
        old = await a_session(tmp_path, "one")
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            new = await peer.new_session()
            assert (old, new != old) == ("0", True)
            assert await peer.prompt(new, "two") == "heard two"
            assert words((await peer.load(old))[1]) == SAID
            assert await peer.prompt(old, "three") == "heard three"
            assert words((await peer.load(new))[1]) == [("user", "two"), ("agent", "heard two")]

    async def test_session_id_that_is_not_a_valid_name_is_recorded_under_another(self, tmp_path: Path) -> None:
        agent = ScriptedAgent(tmp_path)
        agent.prefix = "x" * 300
        async with connected(agent) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            await peer.prompt(session_id, "one")
            assert words((await peer.load(session_id))[1]) == SAID

    async def test_concurrent_loads_of_many_sessions_do_not_deadlock(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            ids = await asyncio.gather(*(peer.new_session() for _ in range(60)))
            assert len(set(ids)) == 60

    async def test_new_session_never_replaces_one_that_is_live_elsewhere(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as one, connected(ScriptedAgent(tmp_path)) as other:
            await one.initialize()
            await other.initialize()
            ids = {await one.new_session(), await other.new_session()}
            assert len(ids) == 2

    async def test_requests_to_the_client_carry_the_clients_session_id(self, tmp_path: Path) -> None:
        await a_session(tmp_path)
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            await peer.begin_prompt(session_id, "use a tool")
            asked = await peer.wait_for(lambda message: message.get("method") == "session/request_permission")
            assert asked["params"]["sessionId"] == session_id


class TestList:
    async def test_it_lists_the_sessions_of_this_agent_newest_first(self, tmp_path: Path) -> None:
        old = await a_session(tmp_path, "one")
        await a_session(tmp_path, "two", name="another")
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            new = await peer.new_session("/elsewhere")
            listed = (await peer.request("session/list"))["sessions"]
            assert [(info["sessionId"], info["cwd"]) for info in listed] == [(new, "/elsewhere"), (old, "/")]
            assert [
                info["sessionId"] for info in (await peer.request("session/list", {"cwd": "/"}))["sessions"]
            ] == [old]
            assert await peer.request("session/list", {"cwd": "/nowhere"}) == {"sessions": []}


class TestFork:
    async def test_fork_and_original_develop_separately(self, tmp_path: Path) -> None:
        session_id = await a_session(tmp_path, "one")
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            fork = (await peer.about("session/fork", session_id))["sessionId"]
            await peer.prompt(fork, "two")
            assert words((await peer.load(session_id))[1]) == SAID
            assert words((await peer.load(fork))[1]) == [*SAID, ("user", "two"), ("agent", "heard two")]

    async def test_fork_copies_the_history_unless_it_starts_in_the_middle(self, tmp_path: Path) -> None:
        agent = RememberingAgent(tmp_path)
        async with connected(agent) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            await peer.prompt(session_id, "one")
            await peer.prompt(session_id, "two")
            await peer.about("session/fork", session_id)
            assert [history for _, history, _ in agent.given] == [{"heard": ["one", "two"]}]
            fork = await peer.about("session/fork", session_id, _meta={"asnap": {"at": 2}})
            assert len(agent.given) == 1
            await peer.prompt(fork["sessionId"], "three")
            note = agent.heard()[-1][-1]
            assert "one" in note
            assert "two" not in note

    async def test_invalid_fork_position_is_refused(self, tmp_path: Path) -> None:
        session_id = await a_session(tmp_path, "one")
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            with pytest.raises(Refused) as caught:
                await peer.about("session/fork", session_id, _meta={"asnap": {"at": 99}})
            assert caught.value.code == -32602


class TestEnd:
    async def test_closing_cancels_the_turn_notifies_the_agent_and_releases_the_session(
        self, tmp_path: Path
    ) -> None:
        agent = ScriptedAgent(tmp_path)
        async with connected(agent) as peer, connected(ScriptedAgent(tmp_path)) as other:
            await peer.initialize()
            await other.initialize()
            session_id, running = await self.waiting(peer)
            assert await peer.about("session/close", session_id) == {}
            assert (await peer.answer_to(running))["result"] == {"stopReason": "cancelled"}
            assert agent.asked[-2:] == [("cancel", "0"), ("close", "0")]
            with pytest.raises(Refused) as caught:
                await peer.prompt(session_id, "two")
            assert caught.value.code == -32002
            assert words((await other.load(session_id))[1]) == [("user", "wait"), ("agent", "heard wait")]

    async def test_turn_that_ignores_cancel_is_ended_for_the_client(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(methods, "_CANCEL_WITHIN", 0.05)
        agent = ScriptedAgent(tmp_path)
        agent.ignores_cancel = True
        async with connected(agent) as peer:
            await peer.initialize()
            session_id, running = await self.waiting(peer)
            assert await peer.about("session/close", session_id) == {}
            assert (await peer.answer_to(running))["result"] == {"stopReason": "cancelled"}
            agent._cancelled.set()
            await agent._say("0", "too late")
            assert await peer.request("session/list") != {"sessions": []}
            answers = [message for message in peer.received if message.get("id") == running]
            assert len(answers) == 1
            assert "too late" not in str(peer.received)

    async def test_a_deleted_session_is_gone(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            session_id, _ = await self.waiting(peer)
            assert await peer.about("session/delete", session_id) == {}
            assert await peer.request("session/list") == {"sessions": []}
            with pytest.raises(Refused) as caught:
                await peer.load(session_id)
            assert caught.value.code == -32002

    async def waiting(self, peer: Peer) -> tuple[str, int]:
        """A session with a turn that goes on until it is cancelled."""
        session_id = await peer.new_session()
        running = await peer.begin_prompt(session_id, "wait")
        await peer.wait_for(lambda message: "heard wait" in str(message))
        return session_id, running
