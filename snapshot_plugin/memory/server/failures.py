"""Our errors as the protocol wants them: a tool's as a result the model can read, a resource's as an error."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp_types import CallToolResult, TextContent

from snapshot_plugin.errors import InvalidInput, NotFound, SnapshotError

__all__ = ["ERROR", "answering", "described", "serving"]

ERROR: Final = "asnap/error"
"""Where in ``_meta`` a failed call says what went wrong."""

P = ParamSpec("P")
R = TypeVar("R")


def described(error: SnapshotError) -> dict[str, Any]:
    """An error as data."""
    return {"code": error.code, "message": error.message, "hint": error.hint, "retryable": error.retryable}


def answering(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | CallToolResult]]:
    """A tool whose own errors are results with ``isError``: text for the model, and the same as data in ``_meta``.

    Not as structured content: some clients hold that against the output schema, error or not.
    """

    @functools.wraps(tool)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R | CallToolResult:
        try:
            return await tool(*args, **kwargs)
        except SnapshotError as error:
            text = TextContent(type="text", text=f"{error.code}: {error}")
            return CallToolResult(content=[text], is_error=True, _meta={ERROR: described(error)})

    return call


def serving(resource: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """A resource whose own errors are protocol errors; what is not there is told apart."""

    @functools.wraps(resource)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await resource(*args, **kwargs)
        except (NotFound, InvalidInput) as error:
            raise ResourceNotFoundError(f"{error.code}: {error}") from error
        except SnapshotError as error:
            raise ResourceError(f"{error.code}: {error}") from error

    return call
