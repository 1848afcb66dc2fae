# ruff: noqa: N802 - the kit writes its ids in capitals
"""The requirements of ACP's compatibility kit that bind a proxy, one test each, under the kit's own ids.

The agent is the scripted one: once able to do everything itself, once able to do nothing that the proxy offers.
Where the kit seeds no turn, we do, and compare.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import forkserver
from tests.acp.proxied import UNABLE, history, proxied, words
from tests.acp_client import Client, RpcError

Json = dict[str, Any]
STOP_REASONS = {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
TRACE = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"}


class Exchange(NamedTuple):
    """A request that brings a session back: what came before its answer, and from then to the next turn's end."""

    result: Any
    before: list[Json]
    after: list[Json]


def exchange(client: Client, method: str, params: Json) -> Exchange:
    """The next turn is the fence: what the agent or we had still to say of the request has come by then."""
    mark = len(client.received)
    answer = client.answer_to(client.begin(method, params))
    end = next(at for at, (_, message) in enumerate(client.received) if message == answer and at >= mark)
    session_id = params["sessionId"]
    client.prompt(session_id, "say fence")
    before, after = client.received[mark:end], client.received[end:]
    return Exchange(answer["result"], _conversation(before, session_id), _conversation(after, session_id))


def _conversation(received: list[Any], session_id: str) -> list[Json]:
    found = [m["params"] for _, m in received if m and m.get("method") == "session/update"]
    assert {params["sessionId"] for params in found} <= {session_id}
    return [p["update"] for p in found if p["update"]["sessionUpdate"] in CONVERSATION]


CONVERSATION = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"}


@pytest.fixture(
    scope="module",
    params=[(), UNABLE, ("--misbehave", "late-replay"), ("--misbehave", "resume-replays")],
    ids=["able", "unable", "late-replay", "resume-replays"],
)
def restored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Exchange]]:
    """A session with turns in it, loaded and then resumed in the next process."""
    place = tmp_path_factory.mktemp("restored")
    flags = ("--state", str(place / "state.json"), *request.param)
    with proxied(place / "store", *flags) as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "say one")
        client.prompt(session_id, "think two\ntool\nsay two")
    setup = {"sessionId": session_id, "cwd": "/"}
    with proxied(place / "store", *flags) as client:
        client.initialize()
        loaded = exchange(client, "session/load", {**setup, "mcpServers": []})
        client.request("session/close", {"sessionId": session_id})
        yield {"load": loaded, "resume": exchange(client, "session/resume", setup)}


class TestTransport:
    def test_TRANSPORT_001_every_line_is_one_message(self, tmp_path: Path) -> None:
        with proxied(tmp_path, "--misbehave", "garbage-stdout") as client:
            client.initialize()
            client.prompt(client.new_session(), "say a\u2028b\\nc")
            client.hang_up()
            assert client.exit_status() == 0
            assert all(message and message["jsonrpc"] == "2.0" for _, message in client.received)
            assert all(line.endswith(b"\n") for line, _ in client.received)

    def test_TRANSPORT_002_output_is_UTF_8(self, client: Client, session_id: str) -> None:
        assert client.prompt(session_id, "say žluťoučký 🐎") == "žluťoučký 🐎"
        client.request("session/close", {"sessionId": session_id})
        assert ("agent", "žluťoučký 🐎") in words(history(client, session_id)[1])
        assert all(line.decode() for line, _ in client.received)

    def test_SHUTDOWN_001_proxy_exits_at_stdin_eof(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            client.begin_prompt(client.new_session(), "stream 100000 5")
            client.wait_for_text("part-002.")
            client.hang_up()
            assert client.exit_status() == 0


class TestJsonRpc:
    @pytest.mark.parametrize("request_id", [0, 7_000_000, "seven", "7", ""])
    @pytest.mark.parametrize("method", ["session/list", "session/new", "session/load"])
    def test_JSONRPC_001_response_repeats_the_request_id(
        self, client: Client, method: str, request_id: int | str
    ) -> None:
        params = {"cwd": "/", "mcpServers": [], "sessionId": "never-was"}
        answer = client.answer_to(client.begin(method, params, request_id=request_id))
        assert answer["id"] == request_id
        assert type(answer["id"]) is type(request_id)

    def test_JSONRPC_002_response_has_a_result_or_an_error(self, client: Client, session_id: str) -> None:
        which = {"sessionId": session_id}
        for method in ("list", "close", "delete", "load", "resume", "fork", "no_such"):
            client.answer_to(client.begin(f"session/{method}", {**which, "cwd": "/", "mcpServers": []}))
        answers = [message for _, message in client.received if message and "method" not in message]
        assert all(("result" in answer) != ("error" in answer) for answer in answers)
        errors = [answer["error"] for answer in answers if "error" in answer]
        assert errors
        assert all(type(error["code"]) is int and isinstance(error["message"], str) for error in errors)

    def test_JSONRPC_003_notifications_are_never_answered(self, client: Client, session_id: str) -> None:
        mark = len(client.received)
        for method in ("session/cancel", "session/load", "session/list", "session/close", "_vendor/news"):
            client.notify(method, {"sessionId": "never-was", "cwd": "/", "mcpServers": []})
        fence = client.begin_prompt(session_id, "say fence")
        client.answer_to(fence)
        answers = [m["id"] for _, m in client.received[mark:] if m and "method" not in m]
        assert answers == [fence]

    def test_JSONRPC_004_an_unknown_method_is_not_found(self, client: Client) -> None:
        with pytest.raises(RpcError) as refused:
            client.request("session/no_such", {})
        assert refused.value.code == -32601

    @pytest.mark.parametrize(
        "line",
        [b"{no json\n", b"[]\n", b"5\n", b"\n", b'{"jsonrpc":"2.0","id":"bad","method":5}\n',
         b'{"jsonrpc":"2.0","id":"bad","method":"session/load","params":[]}\n',
         b'{"jsonrpc":"2.0","id":"bad","method":"session/close","params":{"sessionId":5}}\n',
         b'{"jsonrpc":"2.0","id":"bad","method":"session/list","params":{"cwd":5,"cursor":5}}\n'],
    )  # fmt: skip
    def test_JSONRPC_005_connection_survives_an_invalid_request(
        self, client: Client, session_id: str, line: bytes
    ) -> None:
        mark = len(client.received)
        client.write(line)
        if b'"bad"' in line:
            assert "error" in client.wait_for(lambda message: message.get("id") == "bad", since=mark)
        assert client.prompt(session_id, "say still here") == "still here"


class TestInitialize:
    def test_INIT_001_the_version_is_a_number(self, client: Client) -> None:
        assert type(client.initialize()["protocolVersion"]) is int

    def test_INIT_002_version_1_gets_version_1(self, client: Client) -> None:
        assert client.initialize()["protocolVersion"] == 1

    def test_INIT_003_an_unsupported_version_is_not_echoed(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            assert client.request("initialize", {"protocolVersion": 65535})["protocolVersion"] == 1
            assert client.prompt(client.new_session(), "say hi") == "hi"

    def test_INIT_004_initialize_names_the_agent(self, client: Client) -> None:
        assert {"name", "version"} <= client.initialize()["agentInfo"].keys()


class TestTurns:
    def test_SESSION_001_a_new_session_has_an_id(self, client: Client) -> None:
        made = client.request("session/new", {"cwd": "/", "mcpServers": []})
        assert isinstance(made["sessionId"], str)
        assert made["sessionId"]

    def test_SESSION_002_two_sessions_have_two_ids(self, client: Client) -> None:
        assert client.new_session() != client.new_session()

    def test_PROMPT_001_a_prompt_ends_with_a_stop_reason(self, client: Client, session_id: str) -> None:
        answer = client.answer_to(client.begin_prompt(session_id, "say hi"))
        assert answer["result"]["stopReason"] in STOP_REASONS

    def test_PROMPT_002_updates_carry_the_id_of_the_session(self, client: Client, session_id: str) -> None:
        client.request("session/close", {"sessionId": session_id})
        history(client, session_id)  # now an agent that cannot load knows it under another name
        mark = len(client.received)
        client.prompt(session_id, "think\ntool\nsay hi")
        updates = [m["params"] for _, m in client.received[mark:] if m and m.get("method") == "session/update"]
        assert len(updates) >= 5
        assert {params["sessionId"] for params in updates} == {session_id}

    def test_PROMPT_003_a_link_is_accepted(self, client: Client, session_id: str) -> None:
        link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}
        prompt = [link, {"type": "text", "text": "echo-blocks"}]
        mark = len(client.received)
        client.request("session/prompt", {"sessionId": session_id, "prompt": prompt})
        assert json.loads(client.said(session_id, since=mark)) == prompt

    def test_CANCEL_001_cancelled_prompt_returns_stop_reason_cancelled(
        self, client: Client, session_id: str
    ) -> None:
        mark = len(client.received)
        running = client.begin_prompt(session_id, "stream 100000 5")
        client.wait_for_text("part-002.", since=mark)
        client.notify("session/cancel", {"sessionId": session_id})
        assert client.answer_to(running)["result"] == {"stopReason": "cancelled"}

    def test_CANCEL_002_no_update_comes_after_the_cancelled_prompts_answer(
        self, client: Client, session_id: str
    ) -> None:
        mark = len(client.received)
        running = client.begin_prompt(session_id, "stream 100000 1")
        client.wait_for_text("part-002.", since=mark)
        client.notify("session/cancel", {"sessionId": session_id})
        answer = client.answer_to(running)
        client.prompt(session_id, "say fence")
        messages = [m for _, m in client.received[mark:]]
        late = messages[messages.index(answer) :]
        assert [m["params"]["update"]["content"]["text"] for m in late if m and "method" in m] == ["fence"]

    def test_META_001_meta_is_forwarded(self, client: Client, session_id: str) -> None:
        prompt = [{"type": "text", "text": "echo-blocks", "_meta": TRACE}]
        mark = len(client.received)
        ended = client.request("session/prompt", {"sessionId": session_id, "prompt": prompt, "_meta": TRACE})
        assert ended["stopReason"] == "end_turn"
        assert json.loads(client.said(session_id, since=mark)) == prompt


class TestComingBack:
    def test_LOAD_001_the_result_is_an_object(self, restored: dict[str, Exchange]) -> None:
        assert isinstance(restored["load"].result, dict)
        assert "sessionId" not in restored["load"].result

    def test_LOAD_002_the_whole_replay_comes_before_the_answer(self, restored: dict[str, Exchange]) -> None:
        loaded = restored["load"]
        spoken = [("user", "say one"), ("agent", "one"), ("user", "think two\ntool\nsay two"), ("agent", "two")]
        assert words(loaded.before) == spoken
        kinds = [update["sessionUpdate"] for update in loaded.before]
        assert kinds.count("tool_call") == kinds.count("agent_thought_chunk") == 1
        assert words(loaded.after) == [("agent", "fence")]
        assert len(loaded.after) == 1

    @pytest.mark.parametrize("habit", ["fake-load", "load-hangs"])
    def test_LOAD_003_result_is_never_null(self, tmp_path: Path, habit: str) -> None:
        flags = ("--state", str(tmp_path / "state.json"), "--misbehave", habit)
        patience = ("--patience", "1") if habit == "load-hangs" else ()
        with proxied(tmp_path / "store", *flags, run=patience) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.request("session/close", {"sessionId": session_id})
            result, updates = history(client, session_id)
            assert isinstance(result, dict)
            assert words(updates) == [("user", "say one"), ("agent", "one")]

    def test_RESUME_001_resume_works_without_mcp_servers(self, restored: dict[str, Exchange]) -> None:
        assert isinstance(restored["resume"].result, dict)
        assert "sessionId" not in restored["resume"].result

    def test_RESUME_002_nothing_is_replayed(self, restored: dict[str, Exchange]) -> None:
        assert restored["resume"].before == []
        assert words(restored["resume"].after) == [("agent", "fence")]


class TestSessions:
    def test_LIST_001_the_session_is_listed(self, client: Client, session_id: str) -> None:
        client.prompt(session_id, "say one")
        sessions = client.request("session/list", {})["sessions"]
        assert [info["cwd"] for info in sessions if info["sessionId"] == session_id] == ["/"]

    def test_LIST_002_directory_without_sessions_has_an_empty_list(self, client: Client, session_id: str) -> None:
        assert client.request("session/list", {"cwd": "/nowhere"})["sessions"] == []

    def test_LIST_unknown_cursor_is_refused(self, client: Client) -> None:
        with pytest.raises(RpcError) as refused:
            client.request("session/list", {"cursor": "made-up"})
        assert refused.value.code == -32602

    def test_DELETE_001_a_deleted_session_is_gone(self, client: Client, session_id: str) -> None:
        client.prompt(session_id, "say one")
        assert client.request("session/delete", {"sessionId": session_id}) == {}
        assert session_id not in str(client.request("session/list", {}))

    def test_DELETE_001_deleted_session_is_gone_if_the_agent_lists_but_cannot_delete(self, tmp_path: Path) -> None:
        with proxied(tmp_path, "--no-delete") as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            assert session_id in str(client.request("session/list", {}))
            assert client.request("session/delete", {"sessionId": session_id}) == {}
            assert client.request("session/list", {})["sessions"] == []

    def test_DELETE_a_session_deleted_in_the_editor_comes_back_with_undo(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.request("session/delete", {"sessionId": session_id})
            undo = [sys.executable, "-m", "snapshot_plugin", "undo", "--store", str(tmp_path)]
            assert forkserver.run(undo, timeout=60).returncode == 0
            assert session_id in str(client.request("session/list", {}))

    def test_DELETE_002_deleting_an_unknown_session_succeeds(self, client: Client, session_id: str) -> None:
        for gone in (session_id, session_id, "never-was"):
            assert client.request("session/delete", {"sessionId": gone}) == {}

    def test_CLOSE_001_an_idle_session_is_closed(self, client: Client, session_id: str) -> None:
        client.prompt(session_id, "say one")
        assert client.request("session/close", {"sessionId": session_id}) == {}
        assert words(history(client, session_id)[1]) == [("user", "say one"), ("agent", "one")]

    def test_CLOSE_002_a_running_prompt_is_cancelled(self, client: Client, session_id: str) -> None:
        mark = len(client.received)
        running = client.begin_prompt(session_id, "stream 2000 5")
        client.wait_for_text("part-002.", since=mark)
        assert client.request("session/close", {"sessionId": session_id}) == {}
        assert client.answer_to(running)["result"]["stopReason"] == "cancelled"

    def test_FORK_a_fork_is_a_session_of_its_own(self, client: Client, session_id: str) -> None:
        client.prompt(session_id, "say one")
        client.prompt(session_id, "say two")
        at = {"sessionId": session_id, "cwd": "/", "_meta": {"asnap": {"at": 2}}}
        child = client.request("session/fork", at)["sessionId"]
        assert child != session_id
        assert client.prompt(child, "say three") == "three"
        client.request("session/close", {"sessionId": child})
        client.request("session/close", {"sessionId": session_id})
        began = [("user", "say one"), ("agent", "one")]
        assert words(history(client, child)[1]) == [*began, ("user", "say three"), ("agent", "three")]
        assert words(history(client, session_id)[1]) == [*began, ("user", "say two"), ("agent", "two")]

    @pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork", "session/prompt"])
    def test_UNKNOWNSESSION_an_unknown_id_is_resource_not_found(self, client: Client, method: str) -> None:
        params = {"sessionId": "never-was", "cwd": "/", "mcpServers": [], "prompt": []}
        with pytest.raises(RpcError) as refused:
            client.request(method, params)
        assert refused.value.code == -32002
        assert refused.value.data["sessionId"] == "never-was"

    @pytest.mark.parametrize(("said", "answered"), [(-32603, -32002), (-32602, -32002), (-32000, -32000)])
    def test_UNKNOWNSESSION_other_agent_errors_for_an_unknown_id_become_resource_not_found(
        self, tmp_path: Path, said: int, answered: int
    ) -> None:
        """Only that one must log in first is passed on."""
        module = "tests.acp_agent"
        words = f"from {module} import agent, __main__; agent._NOT_FOUND = {said}; __main__.main()"
        with proxied(tmp_path, agent=(sys.executable, "-c", words)) as client:
            client.initialize()
            with pytest.raises(RpcError) as refused:
                client.request("session/load", {"sessionId": "never-was", "cwd": "/", "mcpServers": []})
            assert refused.value.code == answered
            assert refused.value.data["sessionId"] == "never-was"
            assert refused.value.data["error"]["code"] == said
