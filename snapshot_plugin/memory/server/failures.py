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
            about = {"code": error.code, "message": error.message, "hint": error.hint, "retryable": error.retryable}
            return text_result(f"{error.code}: {error}", is_error=True, _meta={ERROR: about})
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
            raise ResourceNotFoundError(f"{error.code}: {error}") from error
        except SnapshotError as error:
            raise ResourceError(f"{error.code}: {error}") from error

    return call
