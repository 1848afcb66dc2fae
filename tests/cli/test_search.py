from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.model import AgentInfo, SessionConfig, TextBlock, ToolCallBlock
from snapshot_plugin.operations.searching import Searched
from snapshot_plugin.testing import make_message, make_snapshot
from tests import forkserver
from tests.cli.conftest import Asnap, Ran, saved
from tests.cli.terminal import Terminal

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
EVIL = "\x1b[2J\x1b]0;owned\x07\u202e"


def session(
    name: str, *texts: str, day: int = 0, agent: str = "gemini", cwd: str = "/p", **fields: Any
) -> SessionSnapshot:
    return make_snapshot(
        *texts, session_id=name, updated_at=NOON + timedelta(days=day), agent=AgentInfo(name=agent),
        config=SessionConfig(cwd=cwd), **fields,
    )  # fmt: skip


@pytest.fixture
def talks(place: Path) -> None:
    """Three sessions that speak of a walrus, each in its own way."""
    tool = Message(
        role="assistant",
        content=(TextBlock(text="a walrus"), ToolCallBlock(tool_call_id="c", title="bash: ls", status="completed")),
    )
    saved(
        place,
        session("first", "the walrus", "and the carpenter", title="Beach", cwd="/p/sea", tags=("poem",)),
        session("second", "no animal", title="Walrus", day=1, agent="codex"),
        session("third", "hello", day=2).append(tool),
    )


def found(done: Ran) -> list[tuple[str, int | None]]:
    return [(hit["session_id"], hit["message"]) for hit in done.json["hits"]]


@pytest.mark.usefixtures("talks")
def test_hits_are_messages_with_the_command_that_shows_them(asnap: Asnap) -> None:
    done = asnap("search", "walrus", "--json")

    assert found(done) == [("third", 2), ("second", None), ("first", 1)]
    hit = done.json["hits"][2]
    assert (hit["role"], hit["snippet"], hit["matches"]) == ("user", "the walrus", [[4, 10]])
    assert hit["jump"] == "asnap show first --message 1"
    assert "the walrus" in asnap(*hit["jump"].split()[1:]).out
    assert done.json["hits"][1]["jump"] == "asnap show second"
    jsonschema.validate(done.json, Searched.json_schema())


@pytest.mark.usefixtures("talks")
def test_all_words_have_to_be_in_the_same_message(asnap: Asnap) -> None:
    assert found(asnap("search", "walrus the", "--json")) == [("first", 1)]
    assert found(asnap("search", "walrus carpenter", "--json")) == []
    assert found(asnap("search", '"the carpenter"', "--json")) == [("first", 2)]
    assert found(asnap("search", "carp*", "--json")) == [("first", 2)]


@pytest.mark.usefixtures("talks")
def test_or_and_not_are_supported(asnap: Asnap) -> None:
    assert found(asnap("search", "carpenter OR hello", "--json")) == [("third", 1), ("first", 2)]
    assert found(asnap("search", "walrus NOT the", "--json")) == [("third", 2), ("second", None)]
    assert found(asnap("search", "walrus OR hello", "--role", "user", "--json")) == [("third", 1), ("first", 1)]
    done = asnap("search", "animal OR carpenter", "--json")
    assert [hit["matches"] for hit in done.json["hits"]] == [[[3, 9]], [[8, 17]]]


@pytest.mark.usefixtures("talks")
def test_only_sessions_with_hits_are_listed(asnap: Asnap) -> None:
    done = asnap("search", "carpenter", "--json").json
    assert [(each["session_id"], each["hits"]) for each in done["sessions"]] == [("first", 1)]
    assert (done["total_sessions"], done["searched"]) == (1, 3)


def test_capitals_read_as_operators_get_advice(asnap: Asnap, place: Path) -> None:
    saved(place, session("s", "404 NOT FOUND", "404 it is"))
    done = asnap("search", "404 NOT FOUND")
    assert (done.out.count("404"), """asnap search '"404 NOT FOUND"'""" in done.err) == (1, True)
    assert found(asnap("search", '"404 NOT FOUND"', "--json")) == [("s", 1)]
    assert "NOT" not in asnap("search", "it NOT found").err


@pytest.mark.usefixtures("talks")
@pytest.mark.parametrize("query", ["walrus OR", "NOT walrus", "walrus AND", "(walrus OR hello) the"])
def test_malformed_query_is_refused_with_a_remedy(asnap: Asnap, query: str) -> None:
    done = asnap("search", query, "--json")
    assert (done.code, done.error["code"]) == (2, "invalid_input")
    assert done.error["hint"]


def test_tags_of_earlier_snapshots_match_the_tag_filter(asnap: Asnap, place: Path) -> None:
    saved(place, session("tagged", "the walrus"), tags=("pre-deploy",))
    saved(place, session("tagged", "the walrus", title="later"), session("other", "the walrus"))
    for _ in range(2):  # before and after it is indexed
        assert found(asnap("search", "walrus", "--tag", "pre-deploy", "--json")) == [("tagged", 1)]


@pytest.mark.usefixtures("talks")
@pytest.mark.requirement("TERMINAL-SEARCH-FILTER")
@pytest.mark.parametrize(
    ("words", "sessions"),
    [
        (("--agent", "codex"), ["second"]),
        (("--cwd", "/p/sea"), ["first"]),
        (("--tag", "poem"), ["first"]),
        (("--tool", "bash"), ["third"]),
        (("--role", "assistant"), ["third"]),
        (("--role", "user"), ["first"]),
        (("--since", "2026-03-03"), ["third", "second"]),
        (("--until", "2026-03-02"), ["first"]),
        (("--since", "2026-03-03", "--until", "2026-03-03"), ["second"]),
        (("--limit", "1"), ["third"]),
    ],
)
def test_search_filters_by_date_tag_agent_place_tool_and_role(
    asnap: Asnap, words: tuple[str, ...], sessions: list[str]
) -> None:
    asnap("search", "walrus")  # the index knows all sessions
    done = asnap("search", "walrus", "--json", *words)
    assert [name for name, _ in found(done)] == sessions
    if "--limit" not in words:
        assert (done.json["total_hits"], done.json["total_sessions"]) == (len(sessions), len(sessions))


@pytest.mark.usefixtures("talks")
@pytest.mark.requirement("TERMINAL-SEARCH-WITHIN")
def test_search_can_be_limited_to_one_session(asnap: Asnap) -> None:
    done = asnap("search", "the", "Beach", "--json")
    assert (found(done), done.json["searched"]) == ([("first", 1), ("first", 2)], 1)
    assert found(asnap("search", "walrus", "second", "--json")) == [("second", None)]


def test_session_with_many_hits_shows_the_first_and_how_to_see_the_rest(asnap: Asnap, place: Path) -> None:
    saved(place, session("long", *["ape"] * 9, day=1), session("short", "ape"))
    everywhere, within = asnap("search", "ape", "--json").json, asnap("search", "ape", "long", "--json").json

    assert [hit["session_id"] for hit in everywhere["hits"]] == ["long"] * 5 + ["short"]
    assert (everywhere["total_hits"], [each["hits"] for each in everywhere["sessions"]]) == (10, [9, 1])
    assert len(within["hits"]) == 9
    few = asnap("search", "ape", "-n", "3", "--json").json
    assert [each["session_id"] for each in few["sessions"]] == ["long"]
    assert (few["total_hits"], few["total_sessions"]) == (10, 2)


@pytest.mark.usefixtures("talks")
def test_unsearched_sessions_are_counted(asnap: Asnap, place: Path) -> None:
    saved(place, session("first+memory", "walrus"))
    assert asnap("search", "walrus", "--agent", "codex", "--json").json["hidden"] == {"agent": 2, "memory": 1}


@pytest.mark.usefixtures("talks")
@pytest.mark.parametrize(
    "words",
    [
        ("walrus",), ("the",), ("hello OR the", "-n", "2"), ("unicorn",), ("walrus", "--tag", "poem"),
        ("the", "first"), ("walrus", "latest~1"), ("walrus", "--since", "2026-03-03", "--role", "assistant"),
    ],
)  # fmt: skip
def test_index_and_store_give_the_same_answer(asnap: Asnap, words: tuple[str, ...]) -> None:
    opened = asnap("search", *words, "--rebuild", "--json")
    alone = asnap("search", *words, "--json")
    assert {**opened.json, "as_of": None} == {**alone.json, "as_of": None}
    assert (alone.code, alone.err) == (0, "")


@pytest.mark.usefixtures("talks", "home")
@pytest.mark.parametrize("words", [("walrus",), ("walrus", "latest"), ("the OR hello", "--agent", "gemini")])
def test_search_with_a_current_index_loads_few_modules(words: tuple[str, ...]) -> None:
    program = (
        "import sys\nfrom snapshot_plugin.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program, "search", *words, *more], capture_output=True, check=True)
        for more in (["-q"], ["-q"])
    ]
    ours = ("snapshot_plugin.codec", "snapshot_plugin.model.snapshot")
    heavy = {"pydantic", "anyio", "asyncio", "cryptography", *ours}
    loaded = set(runs[1].stderr.decode().split())
    of_the_store = {name for name in loaded if name.startswith("snapshot_plugin.store.")}
    assert runs[1].stdout == runs[0].stdout != b""
    assert (sorted(heavy & loaded), "sqlite3" in loaded) == ([], True)
    assert of_the_store == {"snapshot_plugin.store.look"}


@pytest.mark.usefixtures("talks")
def test_key_for_a_plain_store_is_refused_even_if_the_index_could_answer(
    asnap: Asnap, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asnap("search", "walrus").code == 0
    monkeypatch.setenv("ASNAP_PASSPHRASE", "words")
    assert asnap("search", "walrus").code == 2


def test_the_index_follows_the_store(asnap: Asnap, place: Path) -> None:
    saved(place, session("s", "one"))
    assert found(asnap("search", "two", "--json")) == []
    saved(place, session("s", "one", "two"))
    assert found(asnap("search", "two", "--json")) == [("s", 2)]
    assert found(asnap("search", "two", "--rebuild", "--json")) == [("s", 2)]


@pytest.mark.usefixtures("talks")
def test_incomplete_index_is_rebuilt_on_request(asnap: Asnap, home: Path) -> None:
    asnap("search", "walrus")
    (index,) = (home / "cache" / "asnap").glob("search-*.db")
    with sqlite3.connect(index) as connection:
        connection.execute("DELETE FROM message")
    connection.close()
    assert found(asnap("search", "walrus", "--json")) == []
    assert len(found(asnap("search", "walrus", "--rebuild", "--json"))) == 3


@pytest.mark.usefixtures("talks")
def test_the_index_is_in_the_cache_and_may_be_deleted(asnap: Asnap, home: Path) -> None:
    asnap("search", "walrus")
    (index,) = (home / "cache" / "asnap").glob("search-*.db")
    index.unlink()
    assert len(found(asnap("search", "walrus", "--json"))) == 3


@pytest.mark.usefixtures("talks")
def test_piped_output_has_one_line_of_fields_per_hit(asnap: Asnap) -> None:
    lines = [line.split("\t") for line in asnap("search", "the", "first", "-q").out.splitlines()]
    assert lines[0] == ["first", "1", "user", "2026-03-02T12:00:00+00:00", "**the** walrus"]
    assert asnap("search", "the", "-q").err == ""


@pytest.mark.usefixtures("talks")
def test_each_hit_is_a_json_document(asnap: Asnap) -> None:
    lines = asnap("search", "walrus", "--jsonl").out.splitlines()
    assert len(lines) == 3
    assert all('"kind": "search.hits"' in line for line in lines)


@pytest.mark.usefixtures("talks")
@pytest.mark.parametrize("query", ["!!!", "", '"', "*"])
def test_query_without_a_word_is_refused(asnap: Asnap, query: str) -> None:
    done = asnap("search", query, "--json")
    assert (done.code, done.error["code"]) == (2, "invalid_input")
    assert "fts5" not in done.err.lower()


@pytest.mark.usefixtures("talks")
@pytest.mark.parametrize(
    "query", ["a and", "not", "(", 'x"y', "col:x", "^x", "NEAR(a b)", "a' OR 1=1 --", "\udcff x"]
)
def test_sqlite_syntax_is_searched_as_plain_words(asnap: Asnap, query: str) -> None:
    if any(char.isalnum() for char in query):
        assert asnap("search", "--", query).code == 0
    else:
        assert asnap("search", "--", query).code == 2


@pytest.mark.usefixtures("talks")
def test_no_hits_is_reported_and_not_an_error(asnap: Asnap) -> None:
    done = asnap("search", "unicorn")
    assert (done.code, done.out) == (0, "")
    assert "0 hits" in done.err


@pytest.mark.usefixtures("talks")
def test_unquoted_words_without_hits_get_advice(asnap: Asnap) -> None:
    done = asnap("search", "walrus", "carpenter", "--json")
    assert (done.code, done.error["code"]) == (4, "snapshot_not_found")
    assert "asnap search 'walrus carpenter'" in done.error["hint"]


@pytest.fixture
def shortened(place: Path) -> None:
    """A session that spoke of a walrus, until its beginning was made a summary; then of a penguin, and again."""
    talk = session("talk", "the walrus sings", "a carpenter", "a seal", title="Zoo")
    shorter = talk.evolve(messages=(make_message("a summary"), *talk.messages[2:]))
    longer = shorter.append(make_message("the penguin sings"), make_message("a gull"))
    saved(place, talk, shorter, longer, shorter.append(make_message("the end")))


@pytest.mark.usefixtures("shortened")
def test_text_dropped_from_a_session_is_found_in_its_earlier_snapshot(asnap: Asnap) -> None:
    assert found(asnap("search", "sings", "--json")) == found(asnap("search", "sings", "talk", "--json")) == []
    done = asnap("search", "sings OR seal OR end", "talk", "--earlier", "--json")

    hits = [(hit["snapshot"], hit["message"]) for hit in done.json["hits"]]
    assert hits == [(None, 2), (None, 3), (3, 3), (1, 1)]
    assert (done.json["total_hits"], done.json["total_sessions"], done.json["searched"]) == (4, 1, 1)
    assert [each["short_id"] for each in done.json["sessions"]] == ["talk", "talk@3", "talk@1"]
    jump = done.json["hits"][3]["jump"]
    assert jump == "asnap show talk@1 --message 1"
    assert "the walrus sings" in asnap(*jump.split()[1:]).out
    assert asnap("search", "walrus", "talk", "--earlier", "-q").out.split("\t")[:2] == ["talk@1", "1"]
    jsonschema.validate(done.json, Searched.json_schema())


@pytest.mark.usefixtures("shortened")
def test_single_snapshot_can_be_searched(asnap: Asnap) -> None:
    done = asnap("search", "seal OR carpenter", "talk@1", "--json")
    assert [(hit["snapshot"], hit["message"]) for hit in done.json["hits"]] == [(1, 2), (1, 3)]
    assert found(asnap("search", "walrus", "talk@3", "--json")) == []
    asnap("search", "walrus", "talk")
    assert len(found(asnap("search", "walrus", "talk@1", "--json"))) == 1  # not what the index holds
    assert asnap("search", "walrus", "talk@9").code == 4


@pytest.mark.usefixtures("shortened")
def test_session_named_like_a_snapshot_is_not_mistaken_for_it(asnap: Asnap, place: Path) -> None:
    saved(place, session("talk@1", "a whale"))
    asnap("search", "whale")
    assert found(asnap("search", "whale", "id:talk@1", "--json")) == [("talk@1", 1)]
    assert found(asnap("search", "whale", "talk@1", "--json")) == []
    assert found(asnap("search", "whale", "Zoo@1", "--json")) == []
    assert found(asnap("search", "walrus", "Zoo@1", "--json")) == [("talk", 1)]


@pytest.mark.usefixtures("shortened")
def test_earlier_snapshots_of_one_session_are_searched_without_indexing_them(asnap: Asnap, home: Path) -> None:
    assert asnap("search", "walrus", "--earlier").code == 2
    asnap("search", "walrus", "talk", "--earlier")
    asnap("search", "gull")
    assert found(asnap("search", "walrus", "--json")) == []
    assert not [file for file in (home / "cache").rglob("*") if file.is_file() and b"walrus" in file.read_bytes()]


def test_exit_codes_without_a_store_or_its_key(asnap: Asnap, place: Path) -> None:
    assert asnap("search", "x").code == 10
    saved(place, session("s", "walrus"), key="secret")
    assert asnap("search", "x").code == 7


def test_encrypted_store_is_searched_and_leaves_no_plaintext(
    asnap: Asnap, place: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(place, session("s", "the walrus"), key="secret")
    monkeypatch.setenv("ASNAP_KEY", "secret")
    for _ in range(2):
        assert found(asnap("search", "walrus", "--json")) == [("s", 1)]
    assert not [file for file in (home / "cache").rglob("*") if file.is_file() and b"walrus" in file.read_bytes()]


def test_a_damaged_session_is_named_and_the_others_are_searched(asnap: Asnap, place: Path) -> None:
    saved(place, session("good", "walrus"), session("bad", "walrus"))
    (file,) = (place / "sessions" / "bad").glob("*.snap.gz")
    file.write_bytes(b"nonsense")
    done = asnap("search", "walrus", "--json", "-q")
    assert (found(done), done.json["unreadable"], done.json["searched"]) == ([("good", 1)], ["bad"], 1)
    assert "asnap check" in done.err


def test_session_content_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    saved(place, session("s", f"walrus {EVIL} word", agent=f"a{EVIL}", title=f"t{EVIL}"))
    done = asnap("search", "walrus", "--color", "never")
    assert "walrus" in done.out
    assert not {"\x1b", "\x07", "\u202e"} & set(done.out + done.err)
    assert "\x1b" not in asnap("search", "walrus", "--json").json["hits"][0]["snippet"]


def test_concurrent_searches_in_several_processes_all_answer(home: Path, place: Path) -> None:
    saved(place, *(session(f"s{n}", "walrus", f"number {n}") for n in range(20)))
    line = [sys.executable, "-m", "snapshot_plugin", "search", "walrus", "--jsonl", "-n", "100"]
    running = [forkserver.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    outputs = [process.communicate(timeout=60) for process in running]
    assert [len(out.splitlines()) for out, _ in outputs] == [20] * 3
    assert [err for _, err in outputs] == [b""] * 3


# On a terminal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 40])
def test_terminal_shows_the_match_within_its_width(home: Path, place: Path, columns: int) -> None:
    talk = session("talk", "word " * 30 + "walrus " + "word " * 30, title=f"A long title {EVIL} " * 4)
    saved(place, talk.append(make_message(f"the walrus {EVIL}", timestamp=NOON)))
    with Terminal("search", "walrus", columns=columns) as terminal:
        terminal.wait_for("2 hits in 1 session")
        assert terminal.text.count("walrus") == 2
        assert "asnap show talk --message 2" in terminal.text
        assert all(len(line) <= columns for line in terminal.lines)
        assert b"\x1b[2J" not in terminal.received
        assert b"owned" not in terminal.received


def test_progress_bar_is_shown_while_indexing(home: Path, place: Path) -> None:
    saved(place, *(session(f"s{n}", *["words of a walrus " * 50] * 40, title=f"t{EVIL}") for n in range(8)))
    with Terminal("search", "walrus") as terminal:
        terminal.wait_for("hits in 8 sessions")
        assert b"indexing" in terminal.received
        assert b"owned" not in terminal.received
    with Terminal("search", "walrus") as again:
        again.wait_for("hits in 8 sessions")
        assert b"indexing" not in again.received


def test_first_search_on_a_terminal_answers_immediately(asnap: Asnap, place: Path) -> None:
    saved(place, *(make_snapshot(f"needle {n}", session_id=f"s{n}") for n in range(40)))
    with Terminal("search", "needle") as terminal:
        assert terminal.end() == 0
    assert b"of 0 searched" in terminal.received
    assert b"40 more are being indexed in the background" in terminal.received
    assert asnap("search", "needle", "--wait", "--json").json["total_hits"] == 40


def test_first_search_in_a_script_answers_immediately_and_the_rest_is_indexed(
    asnap: Asnap, home: Path, place: Path
) -> None:
    saved(place, *(make_snapshot(f"needle {n}", session_id=f"s{n}") for n in range(40)))
    line = [sys.executable, "-m", "snapshot_plugin", "search", "needle"]
    first = forkserver.run(line, text=True, check=True, timeout=60)
    assert "40 more are being indexed in the background" in first.stderr
    assert first.stdout == ""
    end = time.monotonic() + 60
    while in_the_index(home) < 40:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert asnap("search", "needle", "--json").json["total_hits"] == 40


def in_the_index(home: Path) -> int:
    (file,) = home.glob("**/search-*.db")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("SELECT count(*) FROM session").fetchone()[0])


def test_search_reads_everything_where_no_index_can_be_kept(
    asnap: Asnap, home: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "no-directory").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "no-directory"))
    saved(place, *(make_snapshot(f"needle {n}", session_id=f"s{n}") for n in range(40)))
    assert asnap("search", "needle", "--json").json["total_hits"] == 40
