"""The requests of a front end. A request that does not fit its type is refused, and nothing is done."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from snapshot_plugin.errors import InvalidInput

__all__ = [
    "REQUESTS",
    "AddMessages",
    "ClearSession",
    "CreateSession",
    "DeleteSession",
    "ExportSession",
    "ListSessions",
    "LoadSession",
    "Request",
    "SaveSession",
    "TellState",
    "read_request",
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    id: str | int | None = None
    """Repeated in the answer, so that a front end can match it to its request."""


class CreateSession(_Request):
    """Begin a session and make it the current one."""

    type: Literal["session_create"]
    title: str | None = None


class AddMessages(_Request):
    """Add messages to the current session; creates one if there is none. Saved before it is answered."""

    type: Literal["session_message"]
    messages: list[dict[str, Any]] = Field(min_length=1)


class SaveSession(_Request):
    """Save the current session."""

    type: Literal["session_save"]


class LoadSession(_Request):
    """Load a session and make it the current one. `offset` and `limit` select the messages of the answer."""

    type: Literal["session_load"]
    session_id: str
    offset: int = Field(default=0, ge=0)
    limit: int | None = Field(default=None, ge=0)


class ListSessions(_Request):
    """List the sessions, last changed first."""

    type: Literal["session_list"]
    limit: int | None = Field(default=None, ge=1)


class DeleteSession(_Request):
    """Move a session to the trash."""

    type: Literal["session_delete"]
    session_id: str


class ExportSession(_Request):
    """Return a session as text; the current one if none is named."""

    type: Literal["session_export"]
    session_id: str | None = None
    format: Literal["markdown", "html", "json"] = "markdown"
    tools: bool = True
    redact: bool | None = None


class ClearSession(_Request):
    """Close the current session. It is saved and stays in the store."""

    type: Literal["session_clear"]


class TellState(_Request):
    """Ask for the current state."""

    type: Literal["session_state"]


REQUESTS: tuple[type[_Request], ...] = (
    CreateSession,
    AddMessages,
    SaveSession,
    LoadSession,
    ListSessions,
    DeleteSession,
    ExportSession,
    ClearSession,
    TellState,
)
Request = Annotated[
    CreateSession
    | AddMessages
    | SaveSession
    | LoadSession
    | ListSessions
    | DeleteSession
    | ExportSession
    | ClearSession
    | TellState,
    Field(discriminator="type"),
]
_ANY: TypeAdapter[Request] = TypeAdapter(Request)


def read_request(raw: Any) -> Request:
    """Parse a request.

    Raises:
        InvalidInput: the request is invalid; the message names the field.
    """
    if not isinstance(raw, dict):
        raise InvalidInput("a request is a JSON object on one line", hint=_KNOWN)
    try:
        return _ANY.validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
            raise InvalidInput("the request has no type that is known", hint=_KNOWN) from None
        path = ".".join(str(part) for part in first["loc"][1:])
        raise InvalidInput(f"{raw.get('type')}: {path}: {first['msg']}", hint="docs/reference/ipc.md") from None


_KNOWN = "the types are " + ", ".join(model.model_fields["type"].annotation.__args__[0] for model in REQUESTS)  # type: ignore[union-attr]
