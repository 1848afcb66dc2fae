"""The core, driven with lists: messages in, actions out. Nothing here reads, writes, waits or sleeps."""

from __future__ import annotations

from typing import Any

import pytest

from snapshot_plugin import SessionSnapshot, SnapshotError, SnapshotNotFound
from snapshot_plugin.acp.actions import (
    PASS,
    Actions,
    AgentRefused,
    Ask,
    Checkpoint,
    Do,
    GiveUp,
    PassAs,
    RecordEvent,
    Restart,
    RunBlocking,
    Say,
    Steps,
    ToAgent,
    ToClient,
    Wait,
)
from snapshot_plugin.acp.compare import compare
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.messages import Message, Pending
from snapshot_plugin.acp.methods import SessionMethods
from snapshot_plugin.acp.notes import transcript_note
from snapshot_plugin.acp.reducer import reduce_events
from snapshot_plugin.acp.replay import LateReplay
from snapshot_plugin.acp.supervise import Supervision
from snapshot_plugin.live.outcome import Outcome
from tests.acp.events import prompt, recorded, said, stop, tool

HI = [{"type": "text", "text": "hi"}]
RECORD = recorded(prompt("one"), said("ONE"), stop())


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def started(clock: Clock | None = None, record: SessionSnapshot = RECORD, **capabilities: Any) -> Core:
    """A core whose agent has introduced itself, with the session ``s`` open."""
    core = Core(view=lambda _id: record, methods=SessionMethods().by_name(), now=clock or Clock(), timeout=10.0)
    core.from_client({"id": 0, "method": "initialize", "params": {"clientCapabilities": {}}})
    core.from_agent({"id": 0, "result": started_as(**capabilities)})
    core.sessions.open("s")
    return core


def started_as(**capabilities: Any) -> Message:
    return {"protocolVersion": 1, "agentCapabilities": capabilities}


def asked(method: str, request_id: int = 1, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def update(session_id: str, kind: str = "agent_message_chunk", **fields: Any) -> Message:
    params = {"sessionId": session_id, "update": {"sessionUpdate": kind, **fields}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def answers(actions: Actions) -> list[Message]:
    return [action.message for action in actions if isinstance(action, ToClient) and "method" not in action.message]


def sent(actions: Actions) -> list[Message]:
    return [action.message for action in actions if isinstance(action, ToAgent)]


def work(actions: Actions) -> RunBlocking:
    (found,) = [action for action in actions if isinstance(action, RunBlocking)]
    return found


# What passes ----------------------------------------------------------------------------------------------


def test_prompt_is_durable_before_it_is_forwarded() -> None:
    record, passed = started().from_client(asked("session/prompt", sessionId="s", prompt=[{"type": "text"}]))
    assert isinstance(record, RecordEvent)
    assert (record.session_id, record.event["prompt"], record.durable) == ("s", [{"type": "text"}], True)
    assert passed is PASS


def test_prompt_that_cannot_be_recorded_gets_an_error_and_is_not_forwarded() -> None:
    core = started()
    prompt_ = asked("session/prompt", sessionId="s", prompt=[{"type": "text", "text": "lost"}])
    sent_first = core.from_client(prompt_)
    supervision = Supervision(core, restarts=True)
    record, answer = supervision.unsent(prompt_)
    assert isinstance(record, RecordEvent)
    assert answers([answer])[0]["error"]["data"]["asnap"]["sent"] is False
    assert supervision.agent_ended()[-1] == Restart(0.0)
    after = reduce_events(RECORD, [sent_first[0].event, record.event], RECORD.updated_at)  # type: ignore[union-attr]
    assert "lost" in after.messages[2].text
    assert "lost" not in transcript_note(after)
    assert compare(after, [{"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "one"}},
                           {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "ONE"}}]
                   ).missing == ()  # fmt: skip


@pytest.mark.parametrize("agent_id", [7, None, ["s"]])
def test_client_is_told_that_a_session_whose_id_is_not_text_is_not_recorded(agent_id: Any) -> None:
    core = started()
    (request,) = sent(core.from_client(asked("session/new", cwd="/", mcpServers=[])))
    actions = core.from_agent({"id": request["id"], "result": {"sessionId": agent_id, "_meta": {"theirs": 1}}})
    (answer,) = answers(actions)
    assert answer["result"]["sessionId"] == agent_id
    assert answer["result"]["_meta"]["theirs"] == 1
    assert answer["result"]["_meta"]["asnap"]["recorded"] is False
    assert any(isinstance(action, Say) and "NOT recorded" in action.text for action in actions)


def test_restoration_note_is_sent_once_after_the_users_own_text() -> None:
    core = started()
    core.sessions["s"].note = "NOTE"
    told = sent(core.from_client(asked("session/prompt", sessionId="s", prompt=[{"type": "text", "text": "hi"}])))
    assert [block["text"] for block in told[0]["params"]["prompt"]] == ["hi", "NOTE"]
    assert sent(core.from_client(asked("session/prompt", 2, sessionId="s", prompt=HI))) == []


@pytest.mark.parametrize(("kind", "durable"), [("tool_call", True), ("agent_message_chunk", False)])
def test_update_is_recorded_before_it_is_forwarded(kind: str, durable: bool) -> None:
    record, passed = started().from_agent(update("s", kind))
    assert record == RecordEvent("s", {"update": {"sessionUpdate": kind}}, durable)
    assert passed is PASS


def test_update_is_passed_on_under_our_session_id() -> None:
    core = started()
    core.sessions.bind("s", "the-agents")
    record, passed = core.from_agent(update("the-agents"))
    assert isinstance(record, RecordEvent)
    assert (record.session_id, passed) == ("s", PassAs("s"))


def test_id_that_a_restarted_agent_gives_to_another_session_is_not_the_lost_ones() -> None:
    """An agent that counts its sessions begins anew; the session that had the id before is not back yet."""
    core = started()
    core.bind("s", "1")
    Supervision(core, restarts=True).agent_ended()
    core.sessions.claim("1")
    core.bind("1", "1")
    record, passed = core.from_agent(update("1"))
    assert isinstance(record, RecordEvent)
    assert (record.session_id, passed) == ("1", PASS)


def test_end_of_a_turn_is_durable_and_triggers_a_snapshot() -> None:
    core = started()
    core.from_client(asked("session/prompt", 5, sessionId="s", prompt=HI))
    record, checkpoint, passed = core.from_agent({"id": 5, "result": {"stopReason": "end_turn"}})
    assert isinstance(record, RecordEvent)
    assert (record.event["stop"], record.durable) == ({"stopReason": "end_turn"}, True)
    assert (checkpoint, passed) == (Checkpoint("s"), PASS)


def test_a_second_answer_to_a_request_is_dropped() -> None:
    core = started()
    core.from_client(asked("session/prompt", 5, sessionId="s", prompt=HI))
    assert core.from_agent({"id": 5, "result": {}})
    assert core.from_agent({"id": 5, "result": {}}) == []


def test_settings_are_recorded_and_secrets_are_not() -> None:
    core = started()
    core.from_client(asked("session/set_model", 6, sessionId="s", modelId="deep"))
    record, _ = core.from_agent({"id": 6, "result": {}})
    assert record == RecordEvent("s", {"config": {"models": {"currentModelId": "deep"}}}, durable=False)
    read = {"id": "a", "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/x"}}
    assert core.from_agent(read) == [PASS]
    assert core.from_client({"id": "a", "result": {"content": "secret"}}) == [PASS]


# Answers --------------------------------------------------------------------------------------------------


def test_exception_in_a_handler_becomes_an_error_response() -> None:
    def broken(_core: Core, _pending: Pending) -> Steps[Message]:
        raise ZeroDivisionError
        yield

    core = Core(view=lambda _id: RECORD, methods={"session/load": broken})
    (answer,) = answers(core.from_client(asked("session/load", 9, sessionId="s")))
    assert (answer["id"], answer["error"]["code"]) == (9, -32603)


def test_agent_answer_that_cannot_be_handled_reaches_the_client_unchanged() -> None:
    core = started()
    core.from_client(asked("initialize", 9, clientCapabilities={}))
    core.introduced = lambda _result: 1 / 0  # type: ignore[method-assign,assignment,return-value]  # whatever it is
    assert core.from_agent({"id": 9, "result": {}}) == [PASS]
    assert core.from_agent({"id": 9, "result": {}}) == [], "and only once"


def test_exception_in_a_wait_becomes_an_answer() -> None:
    def waiting(_core: Core, _pending: Pending) -> Steps[Message]:
        yield Wait(lambda _now: 1 / 0 > 0, 5.0)
        return {}

    core = Core(view=lambda _id: RECORD, methods={"session/load": waiting}, now=Clock())
    assert core.from_client(asked("session/load", 9, sessionId="s")) == []
    (answer,) = answers(core.tick(0.0))
    assert (answer["id"], answer["error"]["code"]) == (9, -32603)
    assert core.next_tick() is None


def test_proxy_request_without_a_response_times_out() -> None:
    clock = Clock()
    core = started(clock)
    assert [message["method"] for message in sent(core.from_client(asked("session/new", 3, cwd="/")))] == [
        "session/new"
    ]
    assert core.tick(9.0) == []
    clock.now = 10.0
    (answer,) = answers(core.tick(10.0))
    assert (answer["id"], "no answer" in answer["error"]["message"]) == (3, True)
    assert core.next_tick() is None


def test_agents_login_error_reaches_the_client_with_its_own_code() -> None:
    core = started()
    (request,) = sent(core.from_client(asked("session/new", 3, cwd="/")))
    refused = core.from_agent({"id": request["id"], "error": {"code": -32000, "message": "log in"}})
    assert answers(refused)[0]["error"]["code"] == -32000


def test_messages_for_a_session_wait_for_work_in_progress_on_it() -> None:
    core = started()
    looking = work(core.from_client(asked("session/load", 3, sessionId="other")))
    assert core.from_client(asked("session/prompt", 4, sessionId="other", prompt=HI)) == []
    done = core.done(looking.number, error=SnapshotNotFound("no such session"))
    assert answers(done)[0]["error"]["code"] == -32002
    assert [message["id"] for message in sent(done)] == [4], "then they are passed on"


def test_open_session_is_replayed_without_asking_the_agent() -> None:
    actions = started().from_client(asked("session/load", 3, sessionId="s"))
    assert sent(actions) == []
    assert not any(isinstance(action, RunBlocking | RecordEvent) for action in actions)
    assert [a.message["params"]["update"]["content"]["text"] for a in actions[:2] if isinstance(a, ToClient)] == [
        "one",
        "ONE",
    ]
    assert answers(actions)[0]["id"] == 3


# When the agent ends --------------------------------------------------------------------------------------


def test_agents_copy_is_closed_before_it_is_deleted() -> None:
    """Some agents answer the deletion of an open session with success, and keep it."""
    core = started(sessionCapabilities={"close": {}, "delete": {}})
    steps = SessionMethods().delete(core, Pending.of(asked("session/delete", sessionId="s")))
    results = iter([("agents-id",), None])  # the agent's names; what went to the trash
    methods, step = list[str](), next(steps, None)
    while step is not None:
        methods += [step.method] if isinstance(step, Ask) else []
        try:
            step = steps.send(next(results) if isinstance(step, Do) else {})
        except StopIteration:
            step = None
    assert methods == ["session/close", "session/delete"]


def test_pending_requests_are_answered_once_before_the_restart() -> None:
    core = started(record=recorded(prompt("go"), tool("t", "tool_call", status="in_progress")))
    supervision = Supervision(core, restarts=True)
    core.from_client(asked("session/prompt", 5, sessionId="s", prompt=HI))
    actions = supervision.agent_ended()
    assert [answer["id"] for answer in answers(actions)] == [5]
    closed = [a.message["params"]["update"] for a in actions if isinstance(a, ToClient) and "method" in a.message]
    assert [(each["toolCallId"], each["status"]) for each in closed] == [("t", "failed")]
    assert any(isinstance(a, RecordEvent) and "interrupted" in a.event and a.durable for a in actions)
    assert isinstance(actions[-1], Restart)
    assert core.from_agent({"id": 5, "result": {}}) == []


def test_requests_of_a_restarted_agent_get_new_ids_and_their_answers_and_cancellations_find_them() -> None:
    core = started()
    ask = {"id": 0, "method": "session/request_permission", "params": {"sessionId": "s"}}
    assert core.from_agent(ask)[-1] is PASS
    core.cut_connection()
    assert core.from_client({"id": 0, "result": {}}) == [], "late: its process has ended"
    (shown,) = [action.message for action in core.from_agent(ask) if isinstance(action, ToClient)]
    (cancelled,) = core.from_agent({"method": "$/cancel_request", "params": {"requestId": 0}})
    assert isinstance(cancelled, ToClient)
    assert cancelled.message["params"]["requestId"] == shown["id"] != 0
    assert core.from_client({"id": 0, "result": {}}) == []
    assert sent(core.from_client({"id": shown["id"], "result": {}})) == [{"id": 0, "result": {}}]


def test_two_requests_of_the_agent_with_one_id_get_one_answer_each() -> None:
    core = started()
    ask = {"id": 0, "method": "session/request_permission", "params": {"sessionId": "s"}}
    assert core.from_agent(ask)[-1] is PASS
    (refused,) = sent(core.from_agent(ask))
    assert (refused["id"], refused["error"]["code"]) == (0, -32600)
    assert core.from_client({"id": 0, "result": {}})[-1] is PASS


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_death_counts_as_died_of_load_only_if_nothing_else_was_in_flight(is_busy: bool) -> None:
    core = started(record=RECORD.evolve(agent_session_id="s"), loadSession=True)
    supervision = Supervision(core, restarts=True)
    supervision.agent_ended()
    (hello,) = sent(supervision.agent_started())
    restoring = core.from_agent({"id": hello["id"], "result": started_as(loadSession=True)})
    record = RECORD.evolve(agent_session_id="s", agent=core.agent)
    assert [m["method"] for m in sent(core.done(work(restoring).number, record))] == ["session/load"]
    if is_busy:
        core.from_client(asked("_vendor/thing", 8))
    supervision.agent_ended()
    assert core.sessions["s"].died_of_load is not is_busy


def test_two_proxies_in_a_row_never_use_the_same_request_id() -> None:
    ids = [
        message["id"] for core in (started(), started()) for message in sent(core.from_client(asked("session/new")))
    ]
    assert len(set(ids)) == 2


def test_clients_login_is_repeated_before_any_session_is_restored() -> None:
    core = started()
    supervision = Supervision(core, restarts=True)
    core.from_client(asked("authenticate", 2, methodId="key", _meta={"token": "t"}))
    core.from_agent({"id": 2, "result": {}})
    supervision.agent_ended()
    (hello,) = sent(supervision.agent_started())
    (login,) = sent(core.from_agent({"id": hello["id"], "result": {"protocolVersion": 1}}))
    assert (login["method"], login["params"]) == ("authenticate", {"methodId": "key", "_meta": {"token": "t"}})
    assert isinstance(work(core.from_agent({"id": login["id"], "result": {}})), RunBlocking)


def test_agent_that_keeps_crashing_is_given_up_and_the_client_is_told() -> None:
    core = started()
    supervision = Supervision(core, restarts=True)
    for _ in range(4):
        assert isinstance(supervision.agent_ended()[-1], Restart)
    assert core.from_client(asked("session/prompt", 7, sessionId="s", prompt=HI)) == []
    actions = supervision.agent_ended()
    assert isinstance(actions[-1], GiveUp)
    assert [answer["id"] for answer in answers(actions)] == [7]


def test_agent_that_hangs_in_every_start_is_given_up_and_the_client_is_told() -> None:
    clock = Clock()
    core = started(clock)
    supervision = Supervision(core, restarts=True)
    assert isinstance(supervision.agent_ended()[-1], Restart)
    assert core.from_client(asked("session/prompt", 7, sessionId="s", prompt=HI)) == []
    actions: Actions = []
    for _ in range(4):
        supervision.agent_started()
        clock.now += 600  # its patience is over
        actions = core.tick(clock.now)
    assert isinstance(actions[-1], GiveUp)
    assert [answer["id"] for answer in answers(actions)] == [7]


@pytest.mark.parametrize("is_written", [True, False])
def test_our_request_that_meets_a_restart_is_sent_to_the_next_process(is_written: bool) -> None:
    core = started(loadSession=True)
    supervision = Supervision(core, restarts=True)
    loading = work(core.from_client(asked("session/load", 3, sessionId="mine", cwd="/", mcpServers=[])))
    if is_written:  # the agent ends while the store is read
        supervision.agent_ended()
        assert sent(core.done(loading.number, error=SnapshotNotFound("none"))) == []
    else:
        (unsent,) = sent(core.done(loading.number, error=SnapshotNotFound("none")))
        assert supervision.unsent(unsent) == []
        supervision.agent_ended()
    (hello,) = sent(supervision.agent_started())
    core.sessions.close("s")
    (load,) = sent(core.from_agent({"id": hello["id"], "result": started_as(loadSession=True)}))
    assert (load["method"], load["params"]["sessionId"]) == ("session/load", "mine")


def test_our_request_that_meets_the_last_end_of_the_agent_fails() -> None:
    core = started(loadSession=True)
    supervision = Supervision(core, restarts=True)
    loading = work(core.from_client(asked("session/load", 3, sessionId="mine", cwd="/", mcpServers=[])))
    supervision.agent_ended()
    core.done(loading.number, error=SnapshotNotFound("none"))
    supervision.stopped = "it is over"
    assert [answer["id"] for answer in answers(supervision.agent_ended())] == [3]


def test_agent_that_dies_now_and_then_is_restarted_each_time() -> None:
    clock = Clock()
    core = started(clock)
    supervision = Supervision(core, restarts=True)
    for _ in range(9):
        assert isinstance(supervision.agent_ended()[-1], Restart)
        (hello,) = sent(supervision.agent_started())
        core.from_agent({"id": hello["id"], "result": started_as()})
        clock.now += 16


def test_session_that_lists_would_hide_is_not_loaded_from_the_agent() -> None:
    core = started(loadSession=True)
    resuming = work(core.from_client(asked("session/load", 3, sessionId="x+memory", cwd="/", mcpServers=[])))
    (answer,) = answers(core.done(resuming.number, error=SnapshotNotFound("none")))
    assert answer["error"]["code"] == -32602


def test_error_given_as_a_string_is_accepted() -> None:
    assert AgentRefused("no", "no").code is None
    assert not AgentRefused("no", "no").wants_login
    core = started()
    (request,) = sent(core.from_client(asked("session/new", 3, cwd="/")))
    assert answers(core.from_agent({"id": request["id"], "error": "no"}))[0]["error"]["code"] == -32603


CLOSES_AND_DELETES: dict[str, Any] = {"sessionCapabilities": {"close": {}, "delete": {}}}


class Finished:
    """Live sessions that note what becomes of them."""

    def __init__(self) -> None:
        self.open: dict[str, Any] = {}
        self.done: list[str] = []

    def finish(self, session_id: str) -> Outcome:
        self.done.append(f"save {session_id}")
        return Outcome(session_id=session_id, status="saved")

    def newest(self, session_id: str) -> Any:
        raise SnapshotNotFound("none", session_id=session_id)

    def delete(self, session_id: str, _labels: Any) -> None:
        self.done.append(f"trash {session_id}")


def test_closed_session_shows_nothing_more_before_its_last_save_begins() -> None:
    """Else the client could see words that no snapshot and no spool holds."""
    core, live = started(**CLOSES_AND_DELETES), Finished()
    [close] = sent(core.from_client(asked("session/close", sessionId="s")))
    assert close["method"] == "session/close"
    assert any(isinstance(action, RecordEvent) for action in core.from_agent(update("s")))
    last = work(core.from_agent({"id": close["id"], "result": {}}))
    assert core.from_agent(update("s")) == []
    assert live.done == []
    assert answers(core.done(last.number, last.run(live)))[0]["result"] == {}  # type: ignore[arg-type]  # as far as asked
    assert live.done == ["save s"]


def test_deleted_session_is_closed_in_the_agent_then_trashed_then_deleted_in_the_agent() -> None:
    """Agents keep what is open, and a session must be in the trash before the agent's own copy is gone."""
    core, live = started(**CLOSES_AND_DELETES), Finished()
    names = work(core.from_client(asked("session/delete", sessionId="s")))
    [close] = sent(core.done(names.number, names.run(live)))  # type: ignore[arg-type]  # as above
    assert close["method"] == "session/close"
    trash = work(core.from_agent({"id": close["id"], "result": {}}))
    assert core.from_agent(update("s")) == [], "what is shown must be recorded"
    [delete] = sent(core.done(trash.number, trash.run(live)))  # type: ignore[arg-type]  # as above
    assert live.done == ["save s", "trash s"], "what is in the trash can be undone, with its last words"
    assert (delete["method"], delete["params"]["sessionId"]) == ("session/delete", "s")
    assert answers(core.from_agent({"id": delete["id"], "result": {}}))[0]["result"] == {}


# After a restore ------------------------------------------------------------------------------------------


def words(text: str, kind: str = "agent_message_chunk") -> Message:
    return update("s", kind, content={"type": "text", "text": text})


def restored(*more: Any) -> Core:
    """A core whose session was just restored, and whose agent may still replay it."""
    record = recorded(prompt("one"), said("Let me check the file."), *more, stop())
    core = started(record=record)
    core.sessions["s"].late = LateReplay(record)
    return core


def shown_texts(actions: Actions) -> list[str]:
    """What the client is shown; each must be recorded first."""
    told = [action.message["params"]["update"] for action in actions if isinstance(action, ToClient)]
    assert [action.event["update"] for action in actions if isinstance(action, RecordEvent)][: len(told)] == told
    return [each["content"]["text"] for each in told]


def test_late_replay_of_the_record_is_neither_shown_nor_recorded_again() -> None:
    core = restored(tool("c1", "tool_call", title="Read"))
    for message in (
        words("one", "user_message_chunk"), words("Let me "),
        update("s", "plan", entries=[]), words("check the file."),
        update("s", "tool_call", toolCallId="c1", title="Read"),
    ):  # fmt: skip
        assert core.from_agent(message) == []
    assert len(core.from_client(asked("session/prompt", sessionId="s", prompt=HI))) == 2, "the prompt alone"


def test_late_replay_of_a_thought_is_neither_shown_nor_recorded_again() -> None:
    core = restored({"update": words("I should look.", "agent_thought_chunk")["params"]["update"]})
    assert core.from_agent(words("I should ", "agent_thought_chunk")) == []
    assert core.from_agent(words("look.", "agent_thought_chunk")) == []
    assert core.from_agent(words("Or ask.", "agent_thought_chunk"))[-1] is PASS


def test_cancel_of_a_session_that_is_not_back_reaches_no_other_session() -> None:
    """The restarted agent may have given its id to another one."""
    core = started()
    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}
    assert core.from_client(cancel) == [PASS]
    core.sessions["s"].status = "lost"
    assert core.from_client(cancel) == []


def test_agent_that_continues_unprompted_after_a_restore_loses_no_word() -> None:
    """Its first words may also be in the record; once it says something else, they are shown first."""
    core = restored()
    assert core.from_agent(words("Let me check")) == core.from_agent(words(" the")) == []
    assert shown_texts(core.from_agent(words(" tests."))) == ["Let me check", " the", " tests."]
    assert core.from_agent(words("file"))[-1] is PASS
    core = restored()
    assert core.from_agent(words("file")) == []
    before_the_prompt = core.from_client(asked("session/prompt", sessionId="s", prompt=HI))[:-2]
    assert shown_texts(before_the_prompt) == ["file"]


def test_new_tool_call_after_a_restore_is_shown_and_a_repeated_one_is_not() -> None:
    core = restored(tool("c1", "tool_call", title="Read"))
    assert core.from_agent(update("s", "tool_call", toolCallId="renumbered", title="Read")) == []
    assert core.from_agent(update("s", "tool_call_update", toolCallId="renumbered", status="completed")) == []
    assert core.from_agent(words("Let")) == []
    actions = core.from_agent(update("s", "tool_call", toolCallId="c2", title="Write"))
    assert [(each.event["update"]["sessionUpdate"], each.durable) for each in actions[::2]] == [  # type: ignore[union-attr]
        ("agent_message_chunk", False), ("tool_call", True)
    ]  # fmt: skip
    assert core.from_agent(update("s", "tool_call_update", toolCallId="c2", status="completed"))[-1] is PASS


def test_further_tool_call_with_a_recorded_title_is_new_once_the_recorded_ones_were_replayed() -> None:
    core = restored(tool("c1", "tool_call", title="Read"))
    late = core.sessions["s"].late
    assert late is not None
    late.replayed([tool("other", "tool_call", title="Read")["update"]])
    assert core.from_agent(update("s", "tool_call_update", toolCallId="other", status="completed")) == []
    assert core.from_agent(update("s", "tool_call", toolCallId="c2", title="Read"))[-1] is PASS
    assert core.from_agent(update("s", "tool_call_update", toolCallId="c2", status="completed"))[-1] is PASS


def test_words_held_after_a_restore_are_shown_when_the_session_is_closed_or_the_agent_ends() -> None:
    core = restored()
    assert core.from_agent(words("file")) == []
    assert shown_texts(core.from_client(asked("session/close", sessionId="s"))[:2]) == ["file"]
    core = restored()
    assert core.from_agent(words("file")) == []
    assert shown_texts(Supervision(core, restarts=True).agent_ended()[:2]) == ["file"]


def test_update_of_an_unknown_session_during_session_new_reaches_the_client() -> None:
    core = started()
    (request,) = sent(core.from_client(asked("session/new", cwd="/", mcpServers=[])))
    assert core.from_agent(update("another")) == []
    core.sessions.close("closed")
    assert core.from_agent(update("closed")) == []
    assert core.from_agent(update("new")) == []
    begun = work(core.from_agent({"id": request["id"], "result": {"sessionId": "new"}}))
    actions = core.done(begun.number, ("new", None))
    told = [action.message for action in actions if isinstance(action, ToClient)]
    assert [each["params"]["sessionId"] for each in told if "method" in each] == ["new", "another"]


@pytest.mark.parametrize("before", ["closed", "lost"])
def test_first_updates_of_a_session_are_its_own_though_another_had_its_id(before: str) -> None:
    """A restarted agent counts its sessions from the start again, and says its commands before we know the id."""
    core = started()
    core.sessions.agent_ended()
    if before == "closed":
        core.sessions.close("s")
    (request,) = sent(core.from_client(asked("session/new", cwd="/", mcpServers=[])))
    commands = update("s", "available_commands_update", availableCommands=[])
    assert core.from_agent(commands) == []
    begun = work(core.from_agent({"id": request["id"], "result": {"sessionId": "s"}}))
    assert core.from_agent(commands) == []
    actions = core.done(begun.number, ("ours", None))
    told = [action.message for action in actions if isinstance(action, ToClient)]
    assert [each["params"]["sessionId"] for each in told if "method" in each] == ["ours", "ours"]


def test_prompt_to_a_session_that_could_not_be_restored_is_refused() -> None:
    """The agent may have it all the same, and then a whole turn would not be recorded."""
    core = started(loadSession=True)
    loading = work(core.from_client(asked("session/load", 3, sessionId="mine", cwd="/", mcpServers=[])))
    reading = work(core.done(loading.number))
    released = work(core.done(reading.number, error=SnapshotError("the disk is full")))
    assert [answer["id"] for answer in answers(core.done(released.number))] == [3]
    (refused,) = answers(core.from_client(asked("session/prompt", 4, sessionId="mine", prompt=HI)))
    assert refused["error"]["message"] == "session mine is not open"


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_session_that_is_not_back_can_be_closed_and_deleted(method: str) -> None:
    core = started()
    Supervision(core, restarts=True)
    core.sessions["s"].status = "lost"
    prompt_first = core.from_client(asked("session/prompt", 5, sessionId="s", prompt=HI))
    assert core.from_client(asked(method, 6, sessionId="s")) == []
    actions = core.done(work(prompt_first).number, error=SnapshotNotFound("gone", session_id="s"))
    assert [answer["id"] for answer in answers(actions)] == [5], "the prompt is refused"
    work(actions)  # the session is being closed
