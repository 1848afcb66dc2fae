"""What orbitmesh promises of ACP sessions, asked of ``asnap run`` in front of a real agent process."""

from __future__ import annotations

import fcntl
import gzip
import json
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.acp.proxied import history, words
from tests.acp_client import Client
from tests.promises.doors import Json, User, eventually

GOLDEN = Path(__file__).parents[1] / "golden" / "store" / "format-1"
UNABLE = ("--no-load", "--no-resume")


NOT_FOUND = 4
LOCK_TIMEOUT = 30.0
"""How long a save waits for the lock of another writer."""


def snapshots(user: User, session_id: str) -> list[Json]:
    """The timeline of a session, newest first, as ``show --history`` prints it; empty before the first save."""
    done = user.python("-m", "snapshot_plugin", "show", session_id, "--history", "--json")
    assert done.code in (0, NOT_FOUND), done
    shown: list[Json] = done.json["history"] if done.code == 0 else []
    return shown


def stored_messages(user: User, session_id: str) -> int:
    """How many messages the newest snapshot of a session has; 0 before the first save."""
    return next((each["messages"] for each in snapshots(user, session_id)), 0)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a session's files, as a writer in another process does."""
    with path.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def loaded(client: Client, session_id: str) -> tuple[Json, list[tuple[str, str]]]:
    """How a session came back, and what the client is shown of it."""
    client.initialize()
    result, updates = history(client, session_id)
    return result["_meta"]["asnap"]["restored"], words(updates)


@pytest.mark.requirement(
    "ORBIT-ACP-USER-MESSAGE",
    "ORBIT-ACP-ANSWER",
    "ORBIT-MODEL-MESSAGES",
    "ORBIT-MODEL-ROLE",
    "ORBIT-MODEL-TIME",
    "ORBIT-ACP-EVENT",
    "TERMINAL-BRIDGE-EXCHANGE",
    "TERMINAL-FEATURE-AUTO-SAVE",
    "TERMINAL-PERF-COMPLETE",
    "TERMINAL-PERF-TOKENS",
    "TERMINAL-QUALITY-TRANSPARENT",
)
def test_each_turn_is_saved_automatically_with_times_and_chunks_are_not_saves(user: User) -> None:
    began = datetime.now(UTC)
    with user.agent() as client:
        client.initialize()
        session_id = client.new_session(user.work)
        for number, text in enumerate(("say one", "say two", "stream 300 1"), start=1):
            client.prompt(session_id, text)
            found = eventually(lambda: snapshots(user, session_id), lambda all_: len(all_) == number)  # noqa: B023
            assert [each["messages"] for each in found] == [2 * turn for turn in range(number, 0, -1)]
        client.kill()
    messages = user.stored(session_id)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    assert [message["content"][0]["text"] for message in messages[:4]] == ["say one", "one", "say two", "two"]
    assert messages[5]["content"][0]["text"].count("part-") == 300
    times = [datetime.fromisoformat(message["timestamp"]) for message in messages]
    assert began < times[0]
    assert times == sorted(times)
    assert times[-1] < datetime.now(UTC)


@pytest.mark.requirement("MANAGER-AUTO-LOCKED")
def test_locked_session_does_not_delay_the_saves_of_another(user: User) -> None:
    with user.agent() as client:
        client.initialize()
        locked, other = client.new_session(user.work), client.new_session(user.work)
        for session_id in (locked, other):
            client.prompt(session_id, "say one")
            assert eventually(lambda: stored_messages(user, session_id), lambda count: count == 2) == 2  # noqa: B023
        with file_lock(user.store / "sessions" / locked / ".lock"):
            client.prompt(locked, "say two")
            client.prompt(other, "say two")
            began = time.monotonic()
            assert eventually(lambda: stored_messages(user, other), lambda count: count == 4) == 4
            assert time.monotonic() - began < LOCK_TIMEOUT / 2
            assert stored_messages(user, locked) == 2
        assert eventually(lambda: stored_messages(user, locked), lambda count: count == 4) == 4


@pytest.mark.requirement(
    "ORBIT-USE-LONG",
    "ORBIT-USE-RESTART",
    "ORBIT-ACP-RESUME",
    "ORBIT-MODEL-AGENT-ID",
    "ORBIT-PROTOCOL-CAPABILITY",
    "ORBIT-PROTOCOL-FALLBACK",
    "ORBIT-PROTOCOL-WARNING",
    "ORBIT-TEST-COMPATIBILITY",
    "TERMINAL-BRIDGE-RESTORE-SAID",
    "TERMINAL-UI-RESTORED",
    "TERMINAL-USE-CONTINUE",
)
def test_session_continues_over_restarts_with_and_without_load_support(user: User) -> None:
    state = ("--state", str(user.home / "agent.json"))
    with user.agent(*state) as client:
        client.initialize()
        session_id = client.new_session(user.work)
        client.prompt(session_id, "say day 0")
    said = [("user", "say day 0"), ("agent", "day 0")]
    grades, own_ids = [], [user.stored(session_id)["agent_session_id"]]
    for day, flags in enumerate(((), UNABLE, (), ()), start=1):
        with user.agent(*state, *flags) as client:
            report, shown = loaded(client, session_id)
            assert shown == said
            client.prompt(session_id, f"say day {day}")
            client.wait_for_stderr(f"{session_id} was restored ({report['grade']}, {len(said)} messages)")
        said += [("user", f"say day {day}"), ("agent", f"day {day}")]
        grades.append((report["grade"], report["tried"]))
        own_ids.append(user.stored(session_id)["agent_session_id"])
        assert user.asnap("show", session_id, "--json").json["about"]["last_restore"]["grade"] == report["grade"]
    assert grades == [
        ("native-load", ["load: whole"]),
        ("context", ["load: not advertised", "resume: not advertised"]),
        ("native-load", ["load: whole"]),
        ("native-load", ["load: whole"]),
    ]
    assert own_ids[1] == session_id, "the agent's own id"
    assert own_ids[2] != session_id, "a session that could not be loaded got a new one"
    assert own_ids[3:] == [own_ids[2]] * 2, "and by that one it was loaded afterwards"


@pytest.mark.requirement("ORBIT-USE-NO-LOSS", "ORBIT-SUCCESS-SHUTDOWN")
def test_planned_stop_in_mid_turn_loses_nothing_of_any_session(user: User) -> None:
    with user.agent() as client:
        client.initialize()
        sessions = [client.new_session(user.work) for _ in range(3)]
        for number, session_id in enumerate(sessions):
            client.prompt(session_id, f"say answer {number}")
        client.begin_prompt(sessions[0], "stream 400 5")
        client.wait_for(lambda message: "part-009." in str(message))
        client.process.send_signal(signal.SIGTERM)
        client.process.wait(30)
        seen = client.said(sessions[0]).removeprefix("answer 0")
    listed = user.asnap("list", "--all", "--json").json["sessions"]
    assert {row["session_id"] for row in listed} == set(sessions)
    assert [row["live"] for row in listed] == [None] * 3
    for number, session_id in enumerate(sessions):
        messages = user.stored(session_id)["messages"]
        assert messages[1]["content"][0]["text"] == f"answer {number}"
    assert user.stored(sessions[0])["messages"][3]["content"][0]["text"].startswith(seen)
    assert "part-009." in seen


@pytest.mark.requirement("ORBIT-USE-DEPLOY", "MANAGER-ALL-EACH", "MANAGER-CONTROL-ASK")
def test_before_a_deploy_every_live_session_of_every_process_is_saved_and_reported(user: User) -> None:
    with user.agent() as client, user.bridge() as bridge:
        client.initialize()
        streaming = client.new_session(user.work)
        client.begin_prompt(streaming, "stream 2000 5")
        client.wait_for(lambda message: "part-003." in str(message))
        chatting = bridge.exchange("question", "answer")["session_id"]

        report = user.asnap("snapshot", "--all", "--tag", "release-7", "--json").json

        assert {each["session_id"]: each["status"] for each in report["sessions"]} == {
            streaming: "saved",
            chatting: "saved",
        }
    for session_id in (streaming, chatting):
        tagged = [each for each in snapshots(user, session_id) if "release-7" in each["tags"]]
        assert len(tagged) == 1


@pytest.mark.requirement("ORBIT-FUTURE-CROSS", "ORBIT-MODEL-PROVIDER")
def test_session_moves_from_the_bridge_to_an_agent_and_back(user: User) -> None:
    with user.bridge() as bridge:
        session_id = bridge.exchange("my name is Ann", "hello Ann")["session_id"]
        assert bridge.close() == 0
    assert user.stored(session_id)["provider_type"] == "ipc"
    with user.agent(*UNABLE, run=("--session", session_id)) as client:
        client.initialize()
        made = client.request("session/new", {"cwd": str(user.work), "mcpServers": []})
        assert made["sessionId"] == session_id
        assert words(client.updates(session_id)) == [("user", "my name is Ann"), ("agent", "hello Ann")]
        assert "hello Ann" in client.prompt(session_id, "echo-blocks"), "the agent's model is told"
        client.prompt(session_id, "say and on")
    with user.bridge() as bridge:
        found = bridge.ask("session_load", session_id=session_id)["messages"]
        assert bridge.exchange("and back", "yes")["message_count"] == len(found) + 2
    assert [message["role"] for message in found] == ["user", "assistant"] * 3
    assert found[-1]["content"][0]["text"] == "and on"


@pytest.mark.requirement("ORBIT-USE-UPDATE", "ORBIT-TEST-VERSIONS", "ORBIT-MIGRATE-OLD")
def test_session_saved_by_the_first_release_continues_in_an_agent(user: User) -> None:
    shutil.copytree(GOLDEN / "plain", user.store)
    expected = json.loads((GOLDEN / "expected.json").read_bytes())["sessions"]["written-by-version-1"]
    before = expected[max(expected, key=int)]["document"]
    with user.agent(*UNABLE, run=("--session", "written-by-version-1")) as client:
        client.initialize()
        client.request("session/new", {"cwd": str(user.work), "mcpServers": []})
        client.prompt("written-by-version-1", "say and on")
    after = user.stored("written-by-version-1")
    assert len(after["messages"]) == len(before["messages"]) + 2
    assert after["messages"][-1]["content"][0]["text"] == "and on"
    assert user.asnap("check").code == 0


def utc_text() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def header_of(segment: Path) -> Json:
    """The header of a segment's first frame: JSON in the extra field of its gzip member."""
    data = segment.read_bytes()
    (length,) = struct.unpack("<H", data[10:12])
    extra = data[12 : 12 + length]
    header: Json = json.loads(extra[extra.index(b"{") : extra.rindex(b"}") + 1])
    return header


@pytest.mark.requirement(
    "ORBIT-STORE-VERSIONED", "ORBIT-MODEL-VERSION", "ORBIT-STORE-FILES", "ORBIT-STORE-READABLE"
)
def test_files_are_readable_json_with_a_schema_version(user: User) -> None:
    place = user.home / "chosen"
    with user.agent(run=("--store", str(place))) as client:
        client.initialize()
        session_id = client.new_session(user.work)
        client.prompt(session_id, "say one")
    [segment] = place.glob(f"sessions/{session_id}/*.snap.gz")
    assert header_of(segment)["v"] == 2
    lines = [json.loads(line) for line in gzip.decompress(segment.read_bytes()).splitlines()]
    assert "one" in str([line["message"] for line in lines if "message" in line])


@pytest.mark.requirement("ORBIT-SECURITY-ENCRYPT", "ORBIT-SECURITY-USER-KEY", "STORE-KEY-CLOSED")
def test_encrypted_store_is_unreadable_and_opens_only_with_its_key(tmp_path: Path) -> None:
    owner = User(tmp_path / "home", ASNAP_KEY="correct horse battery staple")
    with owner.bridge() as bridge:
        session_id = bridge.ask("session_create", title="zebra title")["session_id"]
        bridge.exchange("zebra question", "zebra answer")
        assert bridge.close() == 0
    files = [path for path in owner.store.rglob("*") if path.is_file()]
    assert [path for path in files if b"zebra" in path.read_bytes()] == []
    assert [path for path in files if path.suffix == ".gz" and b"zebra" in gzip.decompress(path.read_bytes())] == []
    assert owner.stored(session_id)["title"] == "zebra title"
    for variables in ({}, {"ASNAP_KEY": "wrong"}):
        refused = User(tmp_path / "home", **variables).asnap("show", session_id, "--no-input", fails=True)
        assert refused.code == 7
        assert "zebra" not in refused.out + refused.err


_RING = """
import json, pathlib
from keyring.backend import KeyringBackend

class Ring(KeyringBackend):
    priority, path = 1, pathlib.Path.home() / "ring"

    def get_password(self, service, username):
        return json.loads(self.path.read_text()).get(username) if self.path.exists() else None

    def set_password(self, service, username, password):
        self.path.write_text(json.dumps({username: password}))
"""
"""A keychain, as a system registers its own with the library that asks for keys."""


@pytest.mark.requirement("ORBIT-SECURITY-KEYCHAIN")
def test_key_in_the_keychain_opens_the_store_of_a_running_bridge(user: User) -> None:
    (user.work / "ring.py").write_text(_RING)
    user.environment["PYTHONPATH"] += f":{user.work}"
    user.environment["PYTHON_KEYRING_BACKEND"] = "ring.Ring"
    user.asnap("keys", "init", "--keyring", "work")
    assert user.asnap("check", "--no-input", fails=True).code == 7
    user.environment["ASNAP_KEYRING"] = "work"
    with user.bridge() as bridge:
        session_id = bridge.ask("session_create", title="zebra title")["session_id"]
        assert bridge.close() == 0
    assert user.stored(session_id)["title"] == "zebra title"
    (user.home / "ring").unlink()
    assert user.asnap("show", session_id, "--no-input", fails=True).code == 7


@pytest.mark.requirement(
    "ORBIT-ERROR-VERSION",
    "ORBIT-MIGRATE-UNKNOWN",
    "ORBIT-MIGRATE-CURRENT",
    "ORBIT-ERROR-NOT-FOUND",
    "ORBIT-MODEL-ID",
    "ORBIT-MODEL-VERSION",
    "ORBIT-MODEL-CREATED",
    "ORBIT-MODEL-UPDATED",
    "ORBIT-TEST-SERIAL",
)
def test_each_reason_for_a_missing_snapshot_has_its_own_exit_code(user: User) -> None:
    began = utc_text()
    with user.bridge() as bridge:
        session_id = bridge.exchange("question", "answer")["session_id"]
        assert bridge.close() == 0
    document = user.stored(session_id)
    for name, version in (("current", document["version"]), ("newer", 99)):
        (user.work / f"{name}.json").write_text(json.dumps({**document, "version": version, "session_id": name}))
    assert user.asnap("import", "current.json").code == 0
    assert user.stored("current") == {**document, "session_id": "current"}
    assert (document["session_id"], document["version"]) == (session_id, 2)
    assert began <= document["created_at"] < document["updated_at"] <= utc_text()
    newer = user.asnap("import", "newer.json", fails=True)
    assert newer.code == 8
    assert "99" in newer.err
    assert user.asnap("show", "newer", fails=True).code == 4


@pytest.mark.requirement("ORBIT-CONFIG-ENABLE", "ORBIT-CONFIG-INTERVAL", "ORBIT-CONFIG-EXIT", "ONERING-OPTION-OFF")
def test_defaults_are_as_promised_and_each_can_be_set(tmp_path: Path) -> None:
    names = ("enable_persistence", "snapshot_interval", "snapshot_on_exit")

    def settings(**variables: str) -> list[object]:
        shown = User(tmp_path / "home", **variables).asnap("config", "show", "--json").json["settings"]
        values = {each["name"]: each["value"] for each in shown}
        return [values[name] for name in names]

    assert settings() == [True, 300.0, True]
    changed = settings(
        ASNAP_ENABLE_PERSISTENCE="false", ASNAP_SNAPSHOT_INTERVAL="1m", ASNAP_SNAPSHOT_ON_EXIT="false"
    )
    assert changed == [False, 60.0, False]
