"""Gemini generateContent and streamGenerateContent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from integration.agents.dialects.turns import Call, Tool, Turn, latest, sse, text_of

__all__ = ["events", "speaks", "turn", "whole"]

Json = dict[str, Any]


def speaks(path: str) -> bool:
    """Whether a request to *path* generates content."""
    return path.endswith((":generateContent", ":streamGenerateContent"))


def turn(body: Json) -> Turn:
    """Read a request."""
    said = (
        (text_of(content.get("parts")), any("functionResponse" in part for part in content.get("parts") or []))
        for content in body.get("contents") or []
        if content.get("role") == "user"
    )
    tools = tuple(
        Tool(each["name"], each.get("parametersJsonSchema") or each.get("parameters") or {})
        for group in body.get("tools") or []
        for each in group.get("functionDeclarations") or []
    )
    return Turn(*latest(said), tools, text_of((body.get("systemInstruction") or {}).get("parts")))


def events(pieces: Iterable[str], call: Call | None, tokens: int) -> Iterator[str]:
    """A streamed answer to a request of *tokens*."""
    for piece in pieces:
        yield sse(_chunk([{"text": piece}], "", tokens))
    yield sse(_chunk([_call(call)] if call else [], "STOP", tokens))


def whole(pieces: Iterable[str], call: Call | None, tokens: int) -> Json:
    """The answer in one piece."""
    return _chunk([{"text": "".join(pieces)}, *([_call(call)] if call else [])], "STOP", tokens)


def _chunk(parts: list[Json], finish: str, tokens: int) -> Json:
    candidate: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish:
        candidate["finishReason"] = finish
    usage = {"promptTokenCount": tokens, "candidatesTokenCount": 10, "totalTokenCount": tokens + 10}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash"}


def _call(call: Call) -> Json:
    return {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
