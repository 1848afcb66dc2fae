from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.model import SessionConfig, ToolCallBlock
from snapshot_plugin.model.suggest import suggest_tags
from snapshot_plugin.testing import make_message, make_snapshot
from tests.tries import tries

SECRET = "ghp_" + "a1B2" * 9


def call(**fields: Any) -> Message:
    return Message(role="assistant", content=(ToolCallBlock(tool_call_id="1", **fields),))


def session(*messages: Message, cwd: str | None = "/home/ann/shop", **fields: Any) -> SessionSnapshot:
    return make_snapshot(**fields).evolve(messages=messages, config=SessionConfig(cwd=cwd))


def tags(snapshot: SessionSnapshot) -> dict[str, str]:
    return {each.tag: each.kind for each in suggest_tags(snapshot)}


@pytest.mark.requirement("TERMINAL-TAGS-AUTO")
def test_tags_are_suggested_from_languages_tools_places_topics_and_project() -> None:
    snapshot = session(
        make_message("The login is broken: fix the crash."),
        call(locations=[{"path": "/home/ann/shop/src/checkout/cart.py"}, {"path": "src/checkout/pay.rs"}]),
        call(kind="execute", raw_input={"command": "cd src && CI=1 sudo pytest -q | tee log; git diff"}),
        call(content=[{"type": "diff", "path": "web/cart.tsx", "newText": "…"}]),
        make_message("Now fix the login for real."),
    )

    assert tags(snapshot) == {
        "shop": "project",
        "python": "language",
        "rust": "language",
        "typescript": "language",
        "git": "tool",
        "pytest": "tool",
        "auth": "topic",
        "bug": "topic",
        "checkout": "place",
    }


def test_code_fence_suggests_its_language() -> None:
    assert tags(session(make_message("```Go\nfunc main() {}\n```\n~~~unheard\n~~~"), cwd=None)) == {
        "go": "language"
    }


def test_existing_tags_are_not_suggested() -> None:
    snapshot = session(make_message("```py\n```"), tags=("Python", "shop"))

    assert tags(snapshot) == {}


def test_most_frequent_tags_come_first_and_few_of_each_kind() -> None:
    endings = ["py", "rs", "go", "go", "rb", "rb", "rb", "java"]
    snapshot = session(*(call(raw_input={"file_path": f"x.{ending}"}) for ending in endings), cwd=None)

    assert [(each.tag, each.count) for each in suggest_tags(snapshot)] == [("ruby", 3), ("go", 2), ("java", 1)]


def test_word_used_once_is_neither_a_topic_nor_a_place() -> None:
    assert tags(session(make_message("a bug"), call(raw_input={"path": "billing/x"}), cwd=None)) == {}


def test_outside_directories_and_common_names_are_not_suggested() -> None:
    paths = ["/etc/nginx/conf", "/home/ann/other/place/x", "/home/ann/shop/src/lib/x"] * 2

    assert tags(session(call(locations=[{"path": path} for path in paths]))) == {"shop": "project"}


@pytest.mark.parametrize("cwd", ["/", "/root", "/home/ann/" + SECRET, "/home/ann/\x1b[31m", "", None])
def test_generic_directory_is_not_suggested_as_a_project(cwd: str | None) -> None:
    assert tags(session(cwd=cwd)) == {}


def test_arbitrary_words_of_the_conversation_never_become_tags() -> None:
    text = f"password hunter2 {SECRET} Ann Smith"
    calls = [call(raw_input={"command": f"{SECRET} hunter2"}), call(raw_input={"path": f"{SECRET}/x.{SECRET}"})]

    assert tags(session(*[make_message(text), *calls] * 3, cwd=None)) == {"auth": "topic"}


_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["path", "command", "x"]), inner),
    max_leaves=8,
)


@tries(80)
@given(_JSON, _JSON, _JSON, st.text(max_size=30))
def test_any_agent_output_gives_a_result(given_: Any, where: Any, content: Any, text: str) -> None:
    snapshot = session(
        make_message(text), call(raw_input=given_, locations=where, content=content), cwd=text.replace("\0", "")
    )

    for each in suggest_tags(snapshot):
        assert each.tag.isprintable()
        assert each.tag == each.tag.strip().lower()
