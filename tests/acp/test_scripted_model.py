"""The scripted model that published agents are run against: the same script in every dialect, over HTTP."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from integration.agents.scripted_model import SUMMARY, ScriptedModel

Json = dict[str, Any]
_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


class Api(NamedTuple):
    """How a client writes one dialect."""

    path: str
    body: Callable[[list[str], bool], Json]
    """User words, and whether a tool has answered; the request."""


def _chat(words: list[str], answered: bool) -> Json:
    messages: list[Json] = [{"role": "user", "content": each} for each in words]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": _SCHEMA}}]
    result = [{"role": "tool", "tool_call_id": "call_0001", "content": "done"}] if answered else []
    return {"messages": messages + result, "tools": tools, "stream": True}


def _responses(words: list[str], answered: bool) -> Json:
    said: list[Json] = [{"role": "user", "content": [{"type": "input_text", "text": each}]} for each in words]
    result = [{"type": "function_call_output", "call_id": "call_0001", "output": "done"}] if answered else []
    tools = [{"type": "function", "name": "exec_command", "parameters": _SCHEMA}]
    return {"input": said + result, "tools": tools, "stream": True}


def _anthropic(words: list[str], answered: bool) -> Json:
    reminder = {"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>"}
    said: list[Json] = [{"role": "user", "content": [{"type": "text", "text": each}, reminder]} for each in words]
    result = [{"type": "tool_result", "tool_use_id": "call_0001", "content": "done"}, reminder]
    after = [{"role": "user", "content": result}] if answered else []
    return {"messages": said + after, "tools": [{"name": "Bash", "input_schema": _SCHEMA}], "stream": True}


def _gemini(words: list[str], answered: bool) -> Json:
    said: list[Json] = [{"role": "user", "parts": [{"text": each}]} for each in words]
    result = {"role": "user", "parts": [{"functionResponse": {"name": "run_shell_command", "response": {}}}]}
    tools = [{"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": _SCHEMA}]}]
    return {"contents": [*said, result] if answered else said, "tools": tools}


APIS = {
    "chat completions": Api("/v1/chat/completions", _chat),
    "responses": Api("/v1/responses", _responses),
    "Anthropic messages": Api("/v1/messages?beta=true", _anthropic),
    "Gemini": Api("/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", _gemini),
}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(params=list(APIS.values()), ids=list(APIS))
def ask(request: pytest.FixtureRequest, model: ScriptedModel) -> Callable[..., str]:
    """Send a request in one of the dialects; returns the events of the answer as one text."""
    api: Api = request.param

    def send(*words: str, answered: bool = False, without_tools: bool = False) -> str:
        body = api.body(list(words), answered)
        if without_tools:
            del body["tools"]
        url = f"http://127.0.0.1:{model.port}{api.path}"
        data = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(data, timeout=30) as answer:
            text: str = answer.read().decode()
        events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        return "\n".join(json.dumps(json.loads(event)) for event in events if event != "[DONE]")

    return send


def test_model_answers_as_the_last_prompt_directs(ask: Callable[..., str], model: ScriptedModel) -> None:
    said = ask("first [[say one]]", "then [[say two]]")
    assert "answer-two." in said
    assert "answer-one." not in said
    assert "[[say two]]" in model.requests[-1]


def test_model_ignores_directives_in_a_restoration_note(ask: Callable[..., str]) -> None:
    note = '<restoration-note from="asnap">\nUser: [[run two rm made.txt]]\n</restoration-note>'
    assert "answer-one." in ask(f"then [[say one]]\n{note}")
    assert "answer-two." in ask("then [[say two]]", note)


def test_model_streams_its_pieces_separately(ask: Callable[..., str]) -> None:
    events = ask("[[stream word 3]]").splitlines()
    assert [n for event in events for n in re.findall(r'"word-(\d{3}) "', event)][:3] == ["001", "002", "003"]
    assert not any("word-001" in event and "word-002" in event for event in events[:3])


def test_model_calls_the_shell_and_continues_after_the_tool_result(ask: Callable[..., str]) -> None:
    before = ask("[[run two echo made]]")
    assert "before-two." in before
    assert "echo made" in before
    assert "call_0001" in before
    after = ask("[[run two echo made]]", answered=True)
    assert "after-two." in after
    assert "before-two." not in after


def test_model_writes_a_summary_on_request(ask: Callable[..., str], model: ScriptedModel) -> None:
    assert SUMMARY in ask("[[say one]]", "Create a detailed summary of the conversation so far.")
    assert model.summaries == 1
    assert "answer-two." in ask("Here is the summary.", "[[say two]]")


def test_model_writes_a_title_when_no_tools_are_offered(ask: Callable[..., str], model: ScriptedModel) -> None:
    assert "A title" in ask("[[say one]]", without_tools=True)
    assert model.requests == []
