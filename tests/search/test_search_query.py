from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidInput
from snapshot_plugin.search.database import TOKENIZER
from snapshot_plugin.search.query import expression, indexable, narrowing
from tests.tries import tries


@pytest.fixture
def table() -> Iterator[sqlite3.Connection]:
    with made_table() as made:
        yield made


@contextmanager
def made_table() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE message USING fts5(body, tools, role, {TOKENIZER})")
        yield connection


def put(table: sqlite3.Connection, text: str, *, tools: str = "", role: str = "user") -> None:
    table.execute("INSERT INTO message VALUES (?, ?, ?)", (indexable(text), indexable(tools), indexable(role)))


def count(table: sqlite3.Connection, words: str) -> int:
    return int(table.execute("SELECT count(*) FROM message WHERE message MATCH ?", (words,)).fetchone()[0])


def matches(table: sqlite3.Connection, query: str, text: str) -> bool:
    table.execute("DELETE FROM message")
    put(table, text)
    return bool(count(table, expression(query)))


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
        ("cats OR dogs", "only cats", True),
        ("cats OR dogs", "only dogs", True),
        ("cats OR dogs", "a walrus or two", False),
        ("cats or dogs", "only cats", False),
        ("cats or dogs", "cats or dogs", True),
        ('"cats OR dogs"', "only cats", False),
        ("cats walrus OR dogs", "only cats", False),
        ("cats walrus OR dogs", "a walrus with cats", True),
        ("cats walrus OR dogs", "dogs", True),
        ("cats OR dogs OR apes", "apes", True),
        ('cats OR "big dogs"', "dogs that are big", False),
        ("cats OR do*", "dogs", True),
        ("cats AND dogs", "cats with dogs", True),
        ("cats AND dogs", "cats and birds", False),
        ("cats NOT dogs", "only cats", True),
        ("cats NOT dogs", "cats with dogs", False),
        ("cats AND NOT dogs", "cats with dogs", False),
        ("cats NOT dogs NOT apes", "cats with apes", False),
        ('cats NOT "big dogs"', "cats, dogs, big", True),
        ("cats NOT do*", "cats with dogs", False),
        ("NOT dogs cats", "only cats", True),
        ("cats NOT dogs OR apes", "apes with dogs", True),
        ("rm -rf", "rm -rf /tmp/x", True),
        ("rm -rf", "rm /tmp/x", False),
        ("foo(x) OR bar", "bar", True),
        ("near NEAR(x)", "near NEAR x", True),
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
def test_words_phrases_and_prefixes_are_found(
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


@pytest.mark.parametrize(
    "query",
    [
        "OR", "cats OR", "OR cats", "cats OR OR dogs", "cats OR -> dogs OR ()", "cats AND", "AND cats",
        "cats AND AND dogs", "cats AND OR dogs", "NOT", "cats NOT", "cats NOT NOT dogs", "NOT cats",
        "cats OR NOT dogs",
    ],
)  # fmt: skip
def test_operator_without_operands_is_refused_with_a_remedy(query: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        expression(query)
    assert refused.value.hint


@pytest.mark.parametrize("query", ["(cats OR dogs) fish", "cats NOT (dogs fish)", "cats AND (dogs OR fish)"])
def test_unsupported_grouping_is_refused(query: str) -> None:
    with pytest.raises(InvalidInput):
        expression(query)


def test_parentheses_without_operators_are_plain_text(table: sqlite3.Connection) -> None:
    assert matches(table, "print( x", "print( x )")
    assert matches(table, '"(cats" OR dogs', "dogs")


def test_tool_and_role_filters_narrow_a_search(table: sqlite3.Connection) -> None:
    put(table, "list files", tools="Run ls\nexecute", role="assistant")
    put(table, "list files of user ls")

    def narrowed(query: str = "files", **asked: str) -> int:
        return count(table, f"({expression(query)}){narrowing(**asked)}")

    assert (narrowed(), narrowed(role="user"), narrowed(tool="ls"), narrowed(tool="run LS")) == (2, 1, 1, 1)
    assert (narrowed(tool="Execute"), narrowed(tool="ls run"), narrowed(tool="exec*")) == (1, 0, 1)
    assert narrowed(tool="ls", role="user") == 0
    assert (narrowed("nothing OR files", role="user"), narrowed("files OR nothing", role="user")) == (1, 1)


def test_tool_and_role_filters_are_not_searched_as_text(table: sqlite3.Connection) -> None:
    put(table, "list files", tools="Run ls", role="assistant")
    for query in ("assistant", "run", '"files run"', "assist*", "files NOT files OR ls"):
        assert not count(table, f"body : ({expression(query)})")


def test_a_tool_without_a_word_is_refused() -> None:
    with pytest.raises(InvalidInput):
        narrowing(tool="!!")


_typed = st.text(st.characters() | st.sampled_from("\"*:()^-+{}[]\\'% \t\n.ANDORTé搜\u200b\ue000\x00"), max_size=30)


_words = st.lists(st.sampled_from(["OR", "AND", "NOT", "cats", '"a b"', "do*", "(", "->", "x)"])).map(" ".join)


@given(_typed | _words, _typed)
@tries(400)
def test_any_input_is_a_valid_query_or_refused(query: str, tool: str) -> None:
    try:
        words = f"({expression(query)}){narrowing(tool=tool or None)}"
    except InvalidInput:
        return
    with made_table() as table:
        count(table, words)


@given(
    st.lists(
        st.text(st.characters(whitelist_categories=("Ll", "Nd"), max_codepoint=0x24F), min_size=1),
        min_size=1,
        max_size=5,
    )
)
@tries(200)
def test_a_text_is_found_by_each_of_its_words(words: list[str]) -> None:
    text = " ".join(words)
    with made_table() as table:
        assert all(matches(table, word, text) for word in words)
        assert matches(table, f'"{text}"', text)
