"""What tools answer, as the protocol wants it: results as compact JSON, our errors as results a model can read."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from snapshot_plugin.errors import InvalidInput, NotFound, SnapshotError

__all__ = ["ERROR", "answering", "serving", "text_result"]

ERROR: Final = "asnap/error"
"""Where in ``_meta`` a failed call says what went wrong."""

_HINTS: Final = {
    "snapshot_not_found": "list_snapshots shows the sessions of this project",
    "store_not_found": "no session has been recorded yet",
    "key_missing": "ask the user to give the MCP server the key of this store (ASNAP_KEY_FILE)",
    "wrong_key": "ask the user to give the MCP server the right key of this store (ASNAP_KEY_FILE)",
    "corrupted": "tell the user to run asnap check; an older snapshot may still load (at=…)",
    "tampered": "tell the user to run asnap check; an older snapshot may still load (at=…)",
    "locked": "try again in a moment",
}
"""What a model can do, where the default hint is for programs."""

P = ParamSpec("P")
R = TypeVar("R")


def text_result(text: str, **more: Any) -> CallToolResult:
    """A result of one text."""
    return CallToolResult(content=[TextContent(type="text", text=text)], **more)


def answering(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | CallToolResult]]:
    """A tool whose answer is compact JSON, and whose errors are results: text for the model, data in ``_meta``.

    Errors have no structured content: some clients check that against the output schema, error or not.
    """

    @functools.wraps(tool)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R | CallToolResult:
        try:
            answer = await tool(*args, **kwargs)
        except SnapshotError as error:
            hint = _hint(error)
            about = {"code": error.code, "message": error.message, "hint": hint, "retryable": error.retryable}
            return text_result(_told(error), is_error=True, _meta={ERROR: about})
        if isinstance(answer, BaseModel) and not isinstance(answer, CallToolResult):
            return text_result(answer.model_dump_json(), structured_content=answer.model_dump(mode="json"))
        return answer

    return call


def serving(resource: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """A resource whose errors are protocol errors; what does not exist has a code of its own."""

    @functools.wraps(resource)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await resource(*args, **kwargs)
        except (NotFound, InvalidInput) as error:
            raise ResourceNotFoundError(_told(error)) from error
        except SnapshotError as error:
            raise ResourceError(_told(error)) from error

    return call


def _hint(error: SnapshotError) -> str:
    return _HINTS.get(error.code, error.hint) if error.hint == error.default_hint else error.hint


def _told(error: SnapshotError) -> str:
    hint = _hint(error)
    return f"{error.code}: {error.message} ({hint})" if hint else f"{error.code}: {error.message}"
