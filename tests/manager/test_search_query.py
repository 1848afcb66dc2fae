from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.manager.search.database import WORDS
from snapshot_plugin.manager.search.query import expression, indexable


@pytest.fixture
def table() -> Iterator[sqlite3.Connection]:
    with made_table() as made:
        yield made


@contextmanager
def made_table() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE message USING fts5({WORDS})")
        yield connection


def matches(table: sqlite3.Connection, query: str, text: str, *, tools: str = "", role: str = "user") -> bool:
    table.execute("DELETE FROM message")
    table.execute("INSERT INTO message VALUES (?, ?, ?)", (indexable(text), indexable(tools), role))
    return bool(
        table.execute("SELECT count(*) FROM message WHERE message MATCH ?", (expression(query),)).fetchone()[0]
    )


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("token refresh", "refresh the token", True),
        ("token refresh", "the token alone", False),
        ('"token refresh"', "a token refresh fails", True),
        ('"token refresh"', "refresh the token", False),
        ("TOKEN", "a token", True),
        ("cafe", "Café", True),
        ("migrat*", "the migration", True),
        ("migrat", "the migration", False),
        ("snake_case", "call snake_case()", True),
        ("snake_case", "case of a snake", False),
        ("foo()", "what does foo do", True),
        ("--verbose", "pass --verbose to it", True),
        ("a.b.c", "import a.b.c", True),
        ("don't", "I don't know", True),
        ("cats OR dogs", "only cats", False),
        ("cats OR dogs", "cats or dogs", True),
        ("NOT NEAR AND", "and not near", True),
        ("body:x", "body x", True),
        ("-> word", "the word", True),
        ('un"closed', "un closed", True),
        ('"never closed', "never closed", True),
        ("搜索", "全文搜索很好", True),
        ("索搜", "全文搜索很好", False),
        ("検索", "全文検索エンジン", True),
        ("검색", "전문검색", True),
        ("*", "x", None),
        ("x*y*", "x y z", True),
    ],
)
def test_words_phrases_and_beginnings_are_found(
    table: sqlite3.Connection, query: str, text: str, found: bool | None
) -> None:
    if found is None:
        with pytest.raises(InvalidInput):
            expression(query)
    else:
        assert matches(table, query, text) is found


@pytest.mark.parametrize("query", ["", "   ", "!!!", '"', '""', "-> ()", "*", "\x00", "\u200b", "\ud800", "…", "_"])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        expression(query)
    assert refused.value.hint


def test_tool_and_role_narrow_a_search(table: sqlite3.Connection) -> None:
    rows = [("list files", "Run ls\nexecute", "assistant"), ("list files", "", "user")]
    table.executemany("INSERT INTO message VALUES (?, ?, ?)", rows)

    def count(**narrowed: str) -> int:
        select = "SELECT count(*) FROM message WHERE message MATCH ?"
        return int(table.execute(select, (expression("files", **narrowed),)).fetchone()[0])

    assert (count(), count(role="user"), count(tool="ls"), count(tool="Execute"), count(tool="grep")) == (
        2,
        1,
        1,
        1,
        0,
    )
    assert count(tool="ls", role="user") == 0


def test_a_tool_without_a_word_is_refused() -> None:
    with pytest.raises(InvalidInput):
        expression("files", tool="!!")


_typed = st.text(st.characters() | st.sampled_from("\"*:()^-+{}[]\\'% \t\n.ANDORTé搜\u200b\ue000\x00"), max_size=30)


@given(_typed, _typed)
@settings(max_examples=400, deadline=None)
def test_whatever_is_typed_is_a_valid_question_or_refused(query: str, tool: str) -> None:
    try:
        words = expression(query, tool=tool or None)
    except InvalidInput:
        return
    with made_table() as table:
        table.execute("SELECT count(*) FROM message WHERE message MATCH ?", (words,)).fetchone()


@given(
    st.lists(
        st.text(st.characters(whitelist_categories=("Ll", "Nd"), max_codepoint=0x24F), min_size=1),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=200, deadline=None)
def test_a_text_is_found_by_each_of_its_words(words: list[str]) -> None:
    text = " ".join(words)
    with made_table() as table:
        assert all(matches(table, word, text) for word in words)
        assert matches(table, f'"{text}"', text)
