"""Making a tool from a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.mcpserver.tools.base import Tool
from mcp_types import ToolAnnotations
from pydantic import ConfigDict

from snapshot_plugin.memory.server.failures import answering

__all__ = ["READS", "WRITES", "tool"]

READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)


def tool(
    function: Callable[..., Awaitable[Any]],
    title: str,
    description: str,
    annotations: ToolAnnotations,
    *,
    structured: bool = True,
) -> Tool:
    """*function* as a tool. If it has a parameter ``more``, that also gets every argument without a parameter."""
    made = Tool.from_function(
        answering(function),
        title=title,
        description=description,
        annotations=annotations,
        structured_output=None if structured else False,
    )
    if "more" in made.fn_metadata.arg_model.model_fields:
        made.fn_metadata.arg_model = _collecting(made.fn_metadata.arg_model)
    return made


def _collecting(arguments: Any) -> Any:
    class Collecting(arguments):  # type: ignore[misc]
        model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

        def model_dump_one_level(self) -> dict[str, Any]:
            known: dict[str, Any] = super().model_dump_one_level()
            return {**known, "more": {**(known["more"] or {}), **(self.model_extra or {})}}

    return Collecting
