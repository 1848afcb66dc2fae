"""What a project's memory knows about: baselines, errors, endpoints, timings, noise."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, model_validator

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.frozen import FrozenDict
from snapshot_plugin.model.value import Json, JsonObject, Timestamp, Value

__all__ = [
    "ApiSchema",
    "Baseline",
    "Endpoint",
    "EndpointTiming",
    "ErrorHistory",
    "ErrorRecord",
    "NoiseConfig",
    "NoiseRule",
    "Timings",
]


def _assume_utc(moment: Any) -> Any:
    """Times that agents and people write by hand: ``2026-01-20`` is one, too."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return moment
    return moment.replace(tzinfo=UTC) if isinstance(moment, datetime) and moment.tzinfo is None else moment


Moment = Annotated[Timestamp, BeforeValidator(_assume_utc)]


class _Record(Value):
    _refused_as: ClassVar[type[InvalidInput]] = InvalidInput


class Baseline(_Record):
    """How a feature behaves when it is right, under a name; `data` is whatever the author compares with.

    What stands under ``response`` or ``body`` in it is stored as its shape; see `shapes.shape_of`.
    """

    name: str
    data: JsonObject = FrozenDict()
    saved_at: Moment | None = None
    last_validated: Moment | None = None


class ErrorRecord(_Record):
    """One error, across sessions. Errors with the same fingerprint are the same error."""

    fingerprint: str
    first_seen: Moment
    last_seen: Moment
    occurrences: int = 1
    message: str | None = None
    resolved_at: Moment | None = None
    first_session: int | None = None
    resolved_session: int | None = None

    @property
    def resolved(self) -> bool:
        """Whether it was resolved, and has not been seen since."""
        return self.resolved_at is not None and self.resolved_at >= self.last_seen


class Endpoint(_Record):
    """One endpoint of the project's API: how often it was seen, and what it looks like.

    `merged` counts the rarely seen endpoints it stands for, where there were too many (``GET /users/*``);
    `session` is the last session that saw it.
    """

    endpoint: str
    seen: int = 1
    last_seen: Moment
    session: int = 0
    shape: Json = None
    merged: int = 0


class EndpointTiming(_Record):
    """How long an endpoint takes: in the latest session that measured it, and on average in those before."""

    endpoint: str
    updated_at: Moment
    session: int
    session_ms: float
    session_samples: int = 1
    before_ms: float = 0.0
    before_samples: int = 0


class NoiseRule(_Record):
    """What is not worth looking at: any text that contains `pattern`, in which ``*`` stands for anything."""

    pattern: str
    auto: bool = False
    reason: str | None = None
    filtered: int = 0

    @model_validator(mode="before")
    @classmethod
    def _plain_text(cls, data: Any) -> Any:
        return {"pattern": data} if isinstance(data, str) else data

    def matches(self, text: str) -> bool:
        """Whether *text* is noise by this rule."""
        place = 0
        for piece in self.pattern.split("*"):
            found = text.find(piece, place)
            if found < 0:
                return False
            place = found + len(piece)
        return bool(self.pattern.strip("*"))


def _bare_list(field: str, data: Any) -> Any:
    return {field: data} if isinstance(data, list) else data


class ErrorHistory(_Record):
    """The document ``errors/history``: the oldest entry comes first."""

    entries: tuple[ErrorRecord, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _as_list(cls, data: Any) -> Any:
        return _bare_list("entries", data)


class ApiSchema(_Record):
    """The document ``api_schema/schema``."""

    endpoints: tuple[Endpoint, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _as_list(cls, data: Any) -> Any:
        return _bare_list("endpoints", data)


class Timings(_Record):
    """The document ``performance/endpoints``."""

    endpoints: tuple[EndpointTiming, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _as_list(cls, data: Any) -> Any:
        return _bare_list("endpoints", data)


class NoiseConfig(_Record):
    """The document ``noise/config``: the rules that are active."""

    rules: tuple[NoiseRule, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _as_list(cls, data: Any) -> Any:
        return _bare_list("rules", data)

    def rule_for(self, text: str) -> NoiseRule | None:
        """The first rule by which *text* is noise; None if it is worth looking at."""
        return next((rule for rule in self.rules if rule.matches(text)), None)
