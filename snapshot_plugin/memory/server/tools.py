"""What tools and resources are made of: the project they serve, arguments, answers and errors.

Answers are compact JSON; our errors are results that a model can read.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, ParamSpec
from urllib.parse import unquote, urlsplit

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.server.mcpserver.resolve import ListRoots, Resolve
from mcp.server.mcpserver.tools.base import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
from mcp_types import CallToolResult, ListRootsResult, TextContent, ToolAnnotations
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from snapshot_plugin.errors import InvalidInput, NotFound, SnapshotError
from snapshot_plugin.memory.place import ProjectPlace, find_project
from snapshot_plugin.memory.project_memory import ProjectMemory
from snapshot_plugin.operations.sessions import Selection
from snapshot_plugin.operations.work import Work
from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "ADDS", "DELETES", "ERROR", "READS", "Answer", "Served", "ServedProject", "answer_of", "argument",
    "entry_tool", "serving", "tool",
]  # fmt: skip

ERROR: Final = "asnap/error"
"""The key in ``_meta`` under which a failed call reports its error."""
_HINTS: Final = {
    "snapshot_not_found": "list_snapshots shows the sessions of this project",
    "store_not_found": "no session has been recorded yet",
    "key_missing": "ask the user to give the MCP server the key of this store (ASNAP_KEY_FILE)",
    "wrong_key": "ask the user to give the MCP server the right key of this store (ASNAP_KEY_FILE)",
    "corrupted": "tell the user to run asnap check; an older snapshot may still load (at=…)",
    "tampered": "tell the user to run asnap check; an older snapshot may still load (at=…)",
    "locked": "try again in a moment",
}
"""Hints for models, by error code, where the default hint is for programs."""
READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
DELETES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

Answer = dict[str, Any]
P = ParamSpec("P")

# The project -------------------------------------------------------------------------------------------------


class ServedProject:
    """The project of one server, its memory, and the sessions of *store* that an agent may see.

    The user names the project (*place*), else the client's roots do, else the current directory.
    """

    def __init__(
        self,
        place: ProjectPlace | None,
        store: SnapshotStore,
        work: Work,
        *,
        memory: ProjectMemory | None = None,
        all_projects: bool = False,
        asks_roots: bool = False,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.place, self.store, self.work = place, store, work
        self.asks_roots = asks_roots and place is None
        """Whether the client still has to be asked for its roots."""
        self._memory, self._all_projects, self._say = memory, all_projects, say

    @property
    def scope(self) -> Selection:
        """The sessions that the agent may see. Raises `InvalidInput` if there is no project."""
        here = str(self.choose().directory)
        return Selection(below=None if self._all_projects else here, unplaced=self._all_projects)

    def announce(self) -> None:
        """Report which project is served and what its memory holds, without counting a session."""
        try:
            place = self.place or find_project()
        except InvalidInput as error:
            self._say(f"no project yet: {error}")
            return
        self._say(f"project {place.directory} ({place.why}). {ProjectMemory(place).peek().start_line}")

    def choose(self, roots: Sequence[Path] = ()) -> ProjectPlace:
        """Choose the project, once. Raises `InvalidInput` if there is none."""
        self.asks_roots = False
        if self.place is None:
            self.place = find_project(roots=roots)
            if roots:
                self.announce()
        return self.place

    async def memory(self) -> ProjectMemory:
        """The memory, opened when it is first needed. Raises `InvalidInput` if there is no project."""
        if self._memory is None:
            self._memory = await ProjectMemory(self.choose(), lazy=True).__aenter__()
        return self._memory

    async def aclose(self) -> None:
        """Write what is only in memory."""
        if self._memory is not None:
            await self._memory.aclose()


async def _ask_roots(ctx: Context[Any, Any]) -> ListRoots | ListRootsResult | None:
    project: ServedProject = ctx.mcp_server.project  # type: ignore[attr-defined]
    can = ctx.client_capabilities
    return ListRoots() if project.asks_roots and can is not None and can.roots is not None else None


async def _served(
    ctx: Context[Any, Any], roots: Annotated[ListRootsResult | None, Resolve(_ask_roots)]
) -> ServedProject:
    project: ServedProject = ctx.mcp_server.project  # type: ignore[attr-defined]
    if project.asks_roots and roots is not None:
        urls = [urlsplit(str(root.uri)) for root in roots.roots]
        with contextlib.suppress(InvalidInput):  # the tool reports it
            project.choose([Path(unquote(url.path)) for url in urls if url.scheme == "file"])
    return project


Served = Annotated[ServedProject, Resolve(_served)]
"""A parameter of tools: the server's project. The client is asked for its roots first, if needed."""

# Tools and resources -----------------------------------------------------------------------------------------


def argument(description: str, *names: str, **limits: Any) -> Any:
    """Describe an argument to the model. It is accepted under each of *names*; the schema has the first."""
    return Field(description=description, validation_alias=AliasChoices(*names) if names else None, **limits)


def answer_of(**fields: Any) -> Answer:
    """An answer without empty fields; empty lists stay."""
    return {name: value for name, value in fields.items() if value is not None and value != {}}


def tool(
    function: Callable[..., Awaitable[Answer]],
    title: str,
    annotations: ToolAnnotations,
    *,
    structured: bool = True,
) -> Tool:
    """Make a tool from *function*, which its docstring describes to the model.

    A parameter ``more`` receives every argument that has no parameter; the model is not told of it. An answer that
    is not *structured* is sent as text only.
    """
    made = _Tool.from_function(
        _answering(function, structured=structured), title=title, description=inspect.getdoc(function),
        annotations=annotations, structured_output=None if structured else False,
    )  # fmt: skip
    if "more" in made.fn_metadata.arg_model.model_fields:
        made.fn_metadata.arg_model = _collecting(made.fn_metadata.arg_model)
        del made.parameters["properties"]["more"]
    return made


class _Tool(Tool):
    async def run(self, *args: Any, **kwargs: Any) -> Any:
        """See `Tool`. Invalid arguments are reported in words that a model can read."""
        try:
            return await super().run(*args, **kwargs)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = [
                ": ".join([*map(str, each["loc"]), each["msg"].removeprefix("Value error, ")])
                for each in error.__cause__.errors()
            ]
            return _refused(InvalidInput(f"{self.name} refused its arguments: {'; '.join(wrong)}"))


def _answering(tool: Callable[P, Awaitable[Answer]], *, structured: bool) -> Callable[P, Awaitable[Answer]]:
    """Errors have no structured content, because some clients validate even errors against the output schema."""

    @functools.wraps(tool)
    async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            answer = await tool(*args, **kwargs)
        except SnapshotError as error:
            return _refused(error)
        return _text(json.dumps(answer, ensure_ascii=False), structured_content=answer if structured else None)

    return call


def _refused(error: SnapshotError) -> CallToolResult:
    about = {"code": error.code, "message": error.message, "hint": _hint(error), "retryable": error.retryable}
    return _text(_told(error), is_error=True, _meta={ERROR: about})


def _text(text: str, **more: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], **more)


def _collecting(arguments: Any) -> Any:
    class Collecting(arguments):  # type: ignore[misc]
        model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

        def model_dump_one_level(self) -> dict[str, Any]:
            known: dict[str, Any] = super().model_dump_one_level()
            return {**known, "more": {**(known["more"] or {}), **(self.model_extra or {})}}

    return Collecting


def entry_tool(
    function: Callable[..., Awaitable[Answer]], title: str, annotations: ToolAnnotations, model: type[BaseModel]
) -> Tool:
    """Make a tool whose arguments are the fields of *model*; *function* gets them as ``entry``.

    The fields of *model* that have a description are published as the tool's schema.
    """

    class Arguments(model, ArgModelBase):  # type: ignore[valid-type, misc]
        def model_dump_one_level(self) -> dict[str, Any]:
            return {"entry": self}

    made = tool(function, title, annotations)
    made.fn_metadata.arg_model = Arguments
    schema = Arguments.model_json_schema(by_alias=True)
    fields = {name: about for name, about in schema["properties"].items() if "description" in about}
    made.parameters = {"type": "object", "properties": fields, "required": schema.get("required", [])}
    return made


def serving(resource: Callable[P, Awaitable[Any]]) -> Callable[P, Awaitable[str]]:
    """Return a resource as JSON. Errors become protocol errors; a missing resource has its own code."""

    @functools.wraps(resource)
    async def call(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return json.dumps(await resource(*args, **kwargs), ensure_ascii=False)
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
