from __future__ import annotations

import re
import shutil
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from snapshot_plugin import SessionSnapshot
from snapshot_plugin.codec.frame import encode_frame, open_frame
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.manager.working_memory import memory_id
from snapshot_plugin.operations.sessions import Listed
from snapshot_plugin.operations.text import width
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, saved
from tests.cli.terminal import Terminal
from tests.manager.processes import heard, python

NOW = datetime.now(UTC)


def session(name: str, *texts: str, cwd: Path | None = None, age: float = 0, **fields: Any) -> SessionSnapshot:
    """A session that last changed *age* hours ago."""
    when = NOW - timedelta(hours=age)
    defaults = {"created_at": when, "updated_at": when, "config": {"cwd": str(cwd or Path.cwd())}}
    return make_snapshot(*(texts or ("hello",)), session_id=name, **{**defaults, **fields})


def ids(document: Any) -> list[str]:
    return [row["session_id"] for row in document["sessions"]]


def test_a_tree_shows_forks_below_the_sessions_they_came_from(asnap: Asnap, place: Path) -> None:
    def fork_of(parent: str) -> dict[str, Any]:
        return {"parent": {"session_id": parent, "seq": 1, "message_index": 1}}

    saved(
        place,
        session("root", title="first", age=5),
        session("other", title="apart", age=4),
        session("child", title="a way", age=3, **fork_of("root")),
        session("grandchild", age=2, **fork_of("child")),
        session("orphan", title="alone", age=1, **fork_of("gone")),
    )

    lines = [line.split("\t")[:2] for line in asnap("list", "--all", "--tree").out.splitlines()]

    assert lines == [
        ["orphan", "alone"],
        ["other", "apart"],
        ["root", "first"],
        ["child", "└ a way"],
        ["grandchild", "│ └ hello"],
    ]
    assert asnap("list", "--all", "--tree", "--json").json["kind"] == "list"


def test_unknown_turn_count_is_not_shown_as_zero(place: Path) -> None:
    saved(place, session("counted", metrics={"turns": 7}), session("uncounted"))

    with Terminal("list", "--all") as terminal:
        assert terminal.end() == 0
        shown = {line.split()[0]: line.split() for line in terminal.lines if "coun" in line}
    assert "7" in shown["counte"]
    assert "0" not in shown["uncoun"]


@pytest.mark.requirement("TERMINAL-UI-LIST")
def test_list_shows_title_agent_turns_tokens_and_size_newest_first(asnap: Asnap, place: Path) -> None:
    metrics = {"turns": 14, "total_tokens": 123_456}
    saved(place, session("old", age=2), session("new", title="fix auth", agent={"name": "codex"}, metrics=metrics))

    document = asnap("list", "--json").json

    jsonschema.validate(document, Listed.json_schema())
    assert ids(document) == ["new", "old"]
    row = document["sessions"][0]
    assert (row["title"], row["agent"], row["turns"], row["tokens"]) == ("fix auth", "codex", 14, 123_456)
    assert row["size_bytes"] > 0
    assert document["size_bytes"] == sum(row["size_bytes"] for row in document["sessions"])


def test_piped_output_has_full_fields_separated_by_tabs(asnap: Asnap, place: Path) -> None:
    saved(place, session("one", title="t" * 200, agent={"name": "codex"}, metrics={"total_tokens": 1234}))

    done = asnap("list")

    fields = done.out.rstrip("\n").split("\t")
    assert fields[:3] == ["one", "t" * 200, "codex"]
    assert fields[5] == "1234"
    assert "1 session" in done.err


def test_quiet_prints_only_the_data(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))

    done = asnap("list", "-q")

    assert done.out.startswith("one\t")
    assert done.err == ""


# Scope and filters ---------------------------------------------------------------------------------------


def test_here_means_the_work_tree_and_other_sessions_are_counted(
    asnap: Asnap, place: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "work" / ".git").mkdir()
    deep = home / "work" / "a" / "b"
    deep.mkdir(parents=True)
    (home / "workshop").mkdir()
    places = {"top": home / "work", "deep": deep, "next-door": home / "workshop", "far": home}
    saved(place, *(session(name, cwd=cwd) for name, cwd in places.items()), session("nowhere", config={}))

    monkeypatch.chdir(deep)
    document = asnap("list", "--json").json
    assert set(ids(document)) == {"top", "deep", "nowhere"}
    assert document["hidden"] == {"cwd": 2}
    assert set(ids(asnap("list", "--all", "--json").json)) == {*places, "nowhere"}
    assert set(ids(asnap("list", "--cwd", home / "workshop", "--json").json)) == {"next-door", "nowhere"}


def test_empty_here_names_the_command_that_lists_all(asnap: Asnap, place: Path, home: Path) -> None:
    (home / "work" / ".git").mkdir()  # the temporary directory itself may lie in a repository
    saved(place, session("far", cwd=home / "elsewhere"))

    done = asnap("list")

    assert (done.code, done.out) == (0, "")
    assert "asnap list --all" in done.err
    assert "1 elsewhere" in done.err


@pytest.mark.requirement("TERMINAL-TAGS-FILTER")
@pytest.mark.parametrize(
    ("words", "shown", "hidden"),
    [
        (["--tag", "night"], ["b"], {"tag": 2}),
        (["--agent", "CODEX"], ["a", "b"], {"agent": 1}),
        (["--since", "36h"], ["a"], {"date": 2}),
        (["--until", "36h"], ["b", "c"], {"date": 1}),
        (["--since", "3d", "--agent", "codex", "--limit", "1"], ["a"], {"agent": 1, "limit": 1}),
        (["--live"], [], {"live": 3}),
    ],
)
def test_filters_select_sessions_and_count_the_rest(
    asnap: Asnap, place: Path, words: list[str], shown: list[str], hidden: dict[str, int]
) -> None:
    saved(
        place,
        session("a", age=24, agent={"name": "codex-acp"}),
        session("b", age=48, agent={"name": "codex-acp"}, tags=("night",)),
        session("c", age=60, agent={"name": "opencode"}),
    )

    document = asnap("list", *words, "--json").json

    assert (ids(document), document["hidden"]) == (shown, hidden)


def test_tags_of_snapshots_match_the_tag_filter(asnap: Asnap, place: Path) -> None:
    saved(place, session("a"), tags=("pre-deploy",))

    assert ids(asnap("list", "--tag", "pre-deploy", "--json").json) == ["a"]


def test_tags_of_earlier_snapshots_match_the_tag_filter(asnap: Asnap, place: Path) -> None:
    saved(place, session("a", tags=("night",)), tags=("pre-deploy",))
    saved(place, session("a", tags=("night",), title="later"), session("b"), session("c"))
    saved(place, session("c", title="later"))
    for words in (["--tag", "pre-deploy"], ["--tag", "pre-deploy", "--tag", "night"]):
        assert ids(asnap("list", *words, "--json").json) == ["a"]
    assert ids(asnap("list", "--tag", "pre-deploy", "--tag", "day", "--json").json) == []


@pytest.mark.requirement("TERMINAL-MANAGER-LIMIT")
def test_a_limit_keeps_the_newest(asnap: Asnap, place: Path) -> None:
    saved(place, *(session(f"s{age}", age=age) for age in range(5)))

    assert ids(asnap("list", "--limit", "2", "--json").json) == ["s0", "s1"]


@pytest.mark.parametrize("when", ["soon", "2026-13-01", "999999y", ""])
def test_invalid_time_is_refused(asnap: Asnap, place: Path, when: str) -> None:
    saved(place, session("a"))

    done = asnap("list", "--since", when or " ")

    assert done.code == 2


def test_working_memory_is_hidden_and_why_names_it(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("a"), session(memory_id("a")), session("far", cwd=home / "x"))

    document = asnap("list", "--why", "--json").json

    assert ids(document) == ["a"]
    assert {hidden["session_id"]: hidden["by"] for hidden in document["hidden_sessions"]} == {
        "a+memory": "memory",
        "far": "cwd",
    }
    assert str(home / "x") in asnap("list", "--why").out


def test_ids_are_printed_in_full_and_can_be_nul_separated(asnap: Asnap, place: Path) -> None:
    long = "01jd7aaaaaaaaaaaaaaaaaaaaa"
    saved(place, session(long), session("b c", age=1))

    assert asnap("list", "--ids").out == f"{long}\nb c\n"
    assert asnap("list", "-0").out == f"{long}\0b c\0"


def test_each_line_of_jsonl_is_a_session(asnap: Asnap, place: Path) -> None:
    saved(place, session("a"), session("b"))

    lines = asnap("list", "--jsonl").out.splitlines()

    assert len(lines) == 2
    assert all('"kind": "list.sessions"' in line for line in lines)


# States --------------------------------------------------------------------------------------------------


def test_a_damaged_session_is_listed_as_damaged(asnap: Asnap, place: Path) -> None:
    saved(place, session("good"), session("bad"))
    file = next((place / "sessions" / "bad").glob("*.snap.gz"))
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)

    states = {row["session_id"]: row["state"] for row in asnap("list", "--all", "--json").json["sessions"]}

    assert states == {"good": "ok", "bad": "damaged"}


_OWNER = """
    import sys, datetime
    from pathlib import Path
    from snapshot_plugin.live.lease import Lease, Owner
    lease = Lease.acquire(Path(sys.argv[1]), Owner.this_process(since=datetime.datetime.now(datetime.UTC)))
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_owned_session_is_live_and_after_a_kill_ended_unexpectedly(asnap: Asnap, place: Path) -> None:
    saved(place, session("a"), session("b", age=1))
    with python(_OWNER, place / "sessions" / "a") as process:
        assert heard(process) == "ready"
        row = asnap("list", "--live", "--json").json["sessions"][0]
        assert (row["session_id"], row["live"]["pid"]) == ("a", process.pid)
        assert f"live {process.pid}" in asnap("list").out

    row = asnap("list", "--json").json["sessions"][0]
    assert (row["live"], row["ended_unexpectedly"]) == (None, True)
    assert asnap("list", "--live", "--json").json["hidden"] == {"live": 2}


def test_listing_changes_nothing_on_disk(asnap: Asnap, place: Path) -> None:
    saved(place, session("a"))
    before = sorted(place.rglob("*"))

    asnap("list")

    assert sorted(place.rglob("*")) == before


# Bad input -----------------------------------------------------------------------------------------------


def test_missing_store_lists_nothing_and_says_how_to_begin(asnap: Asnap, place: Path) -> None:
    done = asnap("list", "--json")
    assert (done.code, done.json["sessions"], done.json["total"]) == (0, [], 0)
    told = asnap("list")
    assert told.code == 0
    assert "asnap chat" in told.err
    assert not place.exists()


def test_messages_are_counted_in_the_list(asnap: Asnap, place: Path) -> None:
    saved(place, session("a", "one", "two", "three"))
    assert asnap("list", "--all").out.rstrip().split("\t")[-1] == "3"


def test_encrypted_store_needs_its_key_and_says_so(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(place, session("a"), key="secret words")

    assert asnap("list").code == 7
    monkeypatch.setenv("ASNAP_PASSPHRASE", "secret words")
    document = asnap("list", "--json").json
    assert (ids(document), document["encrypted"]) == (["a"], True)


def test_agent_text_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    hostile = "\x1b]0;pwned\x07\x1b[2J\u202eevil\r\n\tname"
    saved(place, session("a", title=hostile, agent={"name": hostile}))

    done = asnap("list")

    assert not set("\x1b\x07\r\u202e") & set(done.out + done.err)
    assert done.out.count("\n") == 1


# On a terminal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 40])
def test_lines_fit_the_terminal_and_ids_are_never_cut(place: Path, columns: int) -> None:
    names = [f"01jd7aaaaaaaaaaaaaaaaaaa{n}" for n in range(3)]
    more: dict[str, Any] = {
        "title": "a title that goes on and on 漢字漢字漢字",
        "agent": {"name": "claude-code-acp"},
    }
    saved(place, *(session(name, metrics={"turns": 5, "total_tokens": 99_999}, **more) for name in names))

    with Terminal("list", "--all", columns=columns) as terminal:
        assert terminal.end() == 0
        assert terminal.text.count("…") >= 3
        for name in names:
            assert any(line.startswith(name) for line in terminal.lines)
    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", terminal.received).decode()
    assert all(width(line.rstrip("\r")) <= columns for line in plain.split("\n")[:4])


def test_states_are_coloured_on_a_terminal_unless_disabled(place: Path) -> None:
    saved(place, session("bad"), session("fine", age=1))
    file = next((place / "sessions" / "bad").glob("*.snap.gz"))
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)

    with Terminal("list", "--all") as terminal:
        terminal.end()
        assert terminal.colour_of("damaged") == "red"
        assert terminal.colour_of("fine") == "cyan"
    with Terminal("list", "--all", env={"NO_COLOR": "1"}) as terminal:
        terminal.end()
        assert b"\x1b" not in terminal.received


def test_crash_is_mentioned_once_on_a_terminal(place: Path) -> None:
    saved(place, session("a", title="fix auth", metrics={"turns": 14}))
    with python(_OWNER, place / "sessions" / "a") as process:
        assert heard(process) == "ready"

    said = []
    for _ in range(2):
        with Terminal("list", columns=120) as terminal:
            assert terminal.end() == 0
            said.append("session fix auth ended unexpectedly" in terminal.text)
            if said == [True]:
                assert "at turn 14 — asnap resume a" in terminal.text
    assert said == [True, False]


# Speed and memory ----------------------------------------------------------------------------------------


@pytest.mark.requirement("TERMINAL-PERF-MEMORY")
def test_a_list_keeps_no_conversation_in_memory(asnap: Asnap, place: Path) -> None:
    body = "".join(chr(33 + (n * 7919) % 90) for n in range(200_000))
    saved(place, *(session(f"s{n}", body + str(n)) for n in range(10)))
    asnap("list")

    tracemalloc.start()
    try:
        assert asnap("list").out.count("\n") == 10
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_500_000, f"{peak} bytes for 10 sessions of {len(body)} bytes each, on {sys.platform}"


def test_untitled_session_is_shown_by_its_first_prompt(asnap: Asnap, place: Path) -> None:
    saved(
        place, session("01a", "Please  fix\nthe login " + "x" * 100, "Done."), session("01b", "hi", title="named")
    )

    assert {
        row["session_id"]: (row["title"], row["opening"]) for row in asnap("list", "--json").json["sessions"]
    } == {
        "01a": (None, "Please fix the login " + "x" * 59 + "…"),
        "01b": ("named", None),
    }
    assert "\tPlease fix the login" in asnap("list").out
    assert asnap("show", "01a", "--summary").out.startswith("Please fix")


def test_session_resumed_by_its_agent_is_marked(asnap: Asnap, place: Path) -> None:
    saved(place, session("01a", metadata={"acp": {"restored": {"grade": "native-load"}}}))

    assert asnap("list", "--json").json["sessions"][0]["restored"] == "native-load"
    assert "\trestored\t" in asnap("list").out


def test_each_unreadable_session_says_why_and_what_to_do(
    asnap: Asnap, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other = "correct horse battery staple", tmp_path / "other"
    for where, name, words in ((place, "01mine", key), (other, "01locked", "quite another passphrase")):
        saved(where, session(name), key=Passphrase(words))
    shutil.copytree(next((other / "sessions").iterdir()), place / "sessions" / "01locked")
    saved(tmp_path / "plain", session("01newer"), session("01broken"))
    newer, broken = (
        next((tmp_path / "plain" / "sessions" / name).glob("*.snap.gz")) for name in ("01newer", "01broken")
    )
    header, payload = open_frame(newer.read_bytes(), session_id="01newer", keys=None)
    newer.write_bytes(encode_frame(header._replace(v=99, sum=""), payload, None))
    broken.write_bytes(broken.read_bytes()[:-9] + b"x" * 9)
    monkeypatch.setenv("ASNAP_PASSPHRASE", key)

    sealed = asnap("list", "--all", "--json").json["sessions"]
    monkeypatch.delenv("ASNAP_PASSPHRASE")
    plain = asnap("list", "--all", "--json", "--store", tmp_path / "plain").json["sessions"]

    assert {row["session_id"]: (row["state"], row["next"]) for row in (*sealed, *plain)} == {
        "01mine": ("ok", None),
        "01locked": ("encrypted", "asnap keys status"),
        "01newer": ("too_new", "pip install --upgrade snapshot-plugin"),
        "01broken": ("damaged", "asnap check 01broken"),
    }
    told = asnap("list", "--all", "--store", tmp_path / "plain")
    assert "01newe is too new" in told.err
    assert "pip install --upgrade snapshot-plugin" in told.err


@pytest.mark.parametrize("where", ["--store", "ASNAP_STORE"])
def test_named_store_that_does_not_exist_is_an_error_and_no_empty_list(
    asnap: Asnap, home: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    named: tuple[str | Path, ...] = ("--store", home / "typo")
    if where == "ASNAP_STORE":
        monkeypatch.setenv(where, str(home / "typo"))
        named = ()

    ran, others = asnap("list", *named), asnap("show", "latest", *named)

    assert (ran.code, ran.err) == (10, others.err)
    assert f"there is no store at {home / 'typo'}" in ran.err
    assert where != "--store" or "next: asnap paths" in ran.err
    assert asnap("list", "--store", home).code == 10, "a directory that is no store"


def test_list_of_a_user_without_a_store_says_how_to_begin(asnap: Asnap) -> None:
    ran = asnap("list")
    assert ran.code == 0
    assert "asnap demo" in ran.err
