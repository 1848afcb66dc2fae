from __future__ import annotations

from snapshot_plugin import Message
from snapshot_plugin.model.context_size import estimated_tokens
from snapshot_plugin.testing import make_snapshot


def test_text_tools_and_prompts_count_and_pictures_do_not() -> None:
    tool = {"type": "tool_call", "toolCallId": "t", "rawInput": {"a": "x" * 399}, "rawOutput": ["y" * 400]}
    picture = {"type": "image", "data": "Q" * 4000, "mimeType": "image/png"}
    messages = (Message(role="user", content="w" * 400), Message(role="assistant", content=[tool, picture]))

    snapshot = make_snapshot(messages=messages, config={"system_prompt": "s" * 400})

    assert estimated_tokens(snapshot) == 400


def test_known_count_takes_precedence_over_the_estimate() -> None:
    snapshot = make_snapshot(messages=(Message(role="user", content="w" * 400, token_count=7),))

    assert estimated_tokens(snapshot) == 7
