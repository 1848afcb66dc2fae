"""The picker on a real terminal, and what it knows without one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import SnapshotMeta
from snapshot_plugin.cli.picker import Choice, Choices, Glimpse, footer, glimpse_of, list_of
from snapshot_plugin.operations.sessions import SessionRow, row_of
from snapshot_plugin.operations.text import width
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import saved
from tests.cli.stored import loaded, session_ids
from tests.cli.terminal import Terminal
from tests.tries import tries

NOW = datetime(2026, 11, 16, tzinfo=UTC)
UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
ENTER, ESC, TAB, CTRL_C = "\r", "\x1b", "\t", "\x03"


def row(name: str, **fields: Any) -> SessionRow:
    meta = SnapshotMeta(session_id=name, seq=1, saved_at=NOW, **fields)
    return row_of(meta, name[:6])


ROWS = (
    row("a1", title="Fix auth", agent="codex", cwd="/p"),
    row("b2", title="Write docs", agent="opencode", cwd="/p/docs", tags=("night",)),
    row("c3", title="Elsewhere", agent="codex", cwd="/q"),
    row("a1+memory", cwd="/p"),
)


def names(shown: Sequence[SessionRow]) -> list[str]:
    return [each.session_id for each in shown]


# What it knows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["a1", "b2", "c3"]),
        ("FIX", ["a1"]),
        ("codex", ["a1", "c3"]),
        ("codex else", ["c3"]),
        ("b2", ["b2"]),
        ("/p/do", ["b2"]),
        ("night", ["b2"]),
        ("zebra", ["c3"]),
        ("nothing", []),
    ],
)
def test_every_search_word_must_match_a_session_field(query: str, found: list[str]) -> None:
    choices = Choices(ROWS, "/p", everywhere=True)
    choices.learn(Choice("c3"), Glimpse(first="a Zebra", last="crossing"))

    choices.type(query)

    assert names(choices.shown) == found


def test_scope_is_here_or_all() -> None:
    choices = Choices(ROWS, "/p", everywhere=False)
    assert names(choices.shown) == ["a1", "b2"]

    choices.toggle_scope()

    assert names(choices.shown) == ["a1", "b2", "c3"]


def test_the_cursor_stays_on_its_session_and_stops_at_the_ends() -> None:
    choices = Choices(ROWS, "/p", everywhere=True)
    choices.move(2)
    choices.type("codex")
    assert choices.chosen == ROWS[2]
    choices.move(5)
    assert choices.chosen == ROWS[2]
    choices.move(-9)
    assert choices.chosen == ROWS[0]
    choices.type("nothing like it")
    assert choices.chosen is None
    choices.move(1)


def test_preview_loads_the_selected_session_first() -> None:
    choices = Choices(ROWS, "/p", everywhere=True)
    choices.move(2)
    order = []
    while place := choices.to_learn(2):
        order.append(place.session_id)
        choices.learn(place, Glimpse())

    assert order == ["c3", "a1", "b2"]


def test_preview_keeps_little_of_a_conversation() -> None:
    glimpse = glimpse_of(make_snapshot("x" * 10_000, "y" * 10_000, "", session_id="s"))

    assert (len(glimpse.first), len(glimpse.last)) == (400, 400)


@tries(60)
@given(
    columns=st.integers(20, 200),
    lines=st.integers(1, 40),
    titles=st.lists(st.text(max_size=60), min_size=1, max_size=30),
    at=st.integers(0, 40),
)
def test_every_line_fits_and_the_cursor_stays_visible(columns: int, lines: int, titles: list[str], at: int) -> None:
    choices = Choices([row(f"s{n}", title=title) for n, title in enumerate(titles)], "/", everywhere=True)
    choices.move(at)

    drawn = "".join(text for _, text in list_of(choices, NOW, columns=columns, lines=lines)).splitlines()

    assert len(drawn) <= lines
    assert sum(line.startswith("> ") for line in drawn) == 1
    assert all(width(line) <= max(columns, 22) for line in drawn)
    assert width(footer(choices, columns=columns)[0][1]) <= columns


# On a terminal -------------------------------------------------------------------------------------------


@pytest.fixture
def store(place: Path, home: Path) -> Path:
    """Three sessions: two here, one elsewhere."""
    now = datetime.now(UTC)
    here, far = str(home / "work"), str(home / "far")
    agent = {"name": "codex", "command": ["codex-acp"]}
    for age, (name, title, cwd) in enumerate(
        [("01aaa", "fix auth", here), ("01bbb", "write docs", here), ("01ccc", "far away", far)]
    ):
        when = now - timedelta(hours=age)
        config = {"cwd": cwd}
        texts = (f"please {title}", f"done with {title}, zebra-{age}")
        saved(
            place,
            make_snapshot(
                *texts, session_id=name, title=title, config=config, agent=agent, created_at=when, updated_at=when
            ),
        )
    return place


def test_session_is_found_by_typing_and_chosen(store: Path) -> None:
    with Terminal("resume", "--print") as terminal:
        terminal.wait_for("2 of 3 (here)")
        terminal.wait_for("please fix auth")
        terminal.send("docs")
        terminal.wait_for("1 of 3 (here)")
        terminal.wait_for("please write docs")
        terminal.send(ENTER)
        assert terminal.end() == 0
    assert b"asnap run --session 01bbb -- codex-acp" in terminal.received


def test_the_cursor_moves_and_the_preview_follows(store: Path) -> None:
    with Terminal("resume", "--print") as terminal:
        terminal.wait_for(lambda: any(line.startswith("> 01aaa") for line in terminal.lines))
        terminal.send(DOWN)
        terminal.wait_for(lambda: any(line.startswith("> 01bbb") for line in terminal.lines))
        terminal.wait_for("zebra-1")
        terminal.send(UP)
        terminal.wait_for("zebra-0")
        terminal.send(ENTER)
        assert terminal.end() == 0
    assert b"--session 01aaa" in terminal.received


def test_words_of_the_conversation_are_found(store: Path) -> None:
    with Terminal("resume", "--print") as terminal:
        terminal.wait_for("zebra-0")
        terminal.send("zebra-1")
        terminal.wait_for(lambda: any(line.startswith("> 01bbb") for line in terminal.lines))
        terminal.send(ESC)
        assert terminal.end() == 130


@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_escape_chooses_nothing(store: Path, key: str) -> None:
    with Terminal("resume", "--print") as terminal:
        terminal.wait_for("Esc quit")
        terminal.send(key)
        assert terminal.end() == 130
    assert b"--session" not in terminal.received


def test_the_scope_is_toggled_and_remembered(store: Path) -> None:
    with Terminal("resume", "--print") as terminal:
        terminal.wait_for("2 of 3 (here)")
        terminal.send(TAB)
        terminal.wait_for("3 of 3 (all)")
        terminal.send(ESC)
        terminal.end()
    with Terminal("resume", "--print") as terminal:
        terminal.wait_for("3 of 3 (all)")
        terminal.send(TAB)
        terminal.wait_for("2 of 3 (here)")
        terminal.send(ESC)
        terminal.end()


def test_narrow_window_puts_the_preview_below(store: Path) -> None:
    with Terminal("resume", "--print") as terminal:
        terminal.wait_for("zebra-0")
        terminal.resize(40, 20)
        terminal.wait_for("2/3 Tab all Enter resume Esc quit")
        terminal.wait_for("─" * 40)
        terminal.wait_for("> 01aaa fix auth")
        assert "│" not in terminal.text
        terminal.send(ENTER)
        assert terminal.end() == 0
    assert b"--session 01aaa" in terminal.received


def test_colours_can_be_disabled(store: Path) -> None:
    with Terminal("resume", "--print") as terminal:
        terminal.wait_for("> 01aaa")
        assert terminal.colour_of("01bbb") == "cyan"
        terminal.send(ESC)
        terminal.end()
    for words, env in ((["--color", "never"], {}), ([], {"NO_COLOR": "1"})):
        with Terminal("resume", "--print", *words, env=env) as terminal:
            terminal.wait_for("> 01aaa")
            assert terminal.colour_of("01bbb") == "default"
            terminal.send(ESC)
            terminal.end()


def test_hostile_titles_cannot_control_the_terminal(store: Path, place: Path) -> None:
    saved(place, make_snapshot("\x1b]0;pwned\x07hi", session_id="01evil", title="\x1b]0;pwned\x07\x1b[31mred"))

    with Terminal("resume", "--print") as terminal:
        terminal.send("01evil")
        terminal.wait_for("1 of 4")
        terminal.wait_for("hi")
        terminal.send(ESC)
        terminal.end()
    assert b"pwned" not in terminal.received


def test_damaged_session_is_marked_in_the_preview(store: Path) -> None:
    file = next((store / "sessions" / "01aaa").glob("*.snap.gz"))
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)

    with Terminal("resume", "--print") as terminal:
        terminal.send(TAB + "01aaa")
        terminal.wait_for("damaged")
        terminal.send(ENTER)
        assert terminal.end() == 5


def test_snapshots_can_be_browsed_with_their_changes_and_forked(store: Path) -> None:
    agent = {"name": "codex", "command": ["codex-acp"]}
    when, config = datetime.now(UTC), {"cwd": str(Path.cwd())}
    for texts in (("first words",), ("first words", "an answer"), ("first words", "an answer", "last words")):
        fields = {"created_at": when, "updated_at": when, "config": config, "agent": agent, "title": "long walk"}
        saved(store, make_snapshot(*texts, session_id="01ddd", **fields))
    with Terminal("resume", "--print", columns=140) as terminal:
        terminal.wait_for(lambda: any(line.startswith("> 01ddd") for line in terminal.lines))
        terminal.send(RIGHT)
        terminal.wait_for("3 snapshots")
        terminal.wait_for("since the snapshot before: 1 message added")
        terminal.send(DOWN)
        terminal.wait_for(lambda: any(line.startswith("> @2") for line in terminal.lines))
        terminal.wait_for("an answer")
        terminal.send(LEFT)
        terminal.wait_for("Tab all")
        terminal.send(RIGHT)
        terminal.wait_for("3 snapshots")
        terminal.send(DOWN + ENTER)
        assert terminal.end() == 0
    assert b"branched long walk at snapshot 2" in terminal.received
    (branch,) = set(session_ids(store)) - {"01aaa", "01bbb", "01ccc", "01ddd"}
    assert [message.text for message in loaded(store, branch).messages] == ["first words", "an answer"]
    assert f"--session {branch}".encode() in terminal.received
