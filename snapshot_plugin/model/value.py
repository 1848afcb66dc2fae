"""The base of every value in a snapshot: frozen, keyword-only, and never dropping a field it does not know."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, TypeAdapter
from pydantic.fields import FieldInfo

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.model.frozen import FrozenDict, freeze

__all__ = ["Json", "JsonObject", "Timestamp", "Value", "rfc3339"]


def _object(value: Any) -> FrozenDict:
    if not isinstance(value, dict):
        raise InvalidSnapshot(f"expected a JSON object, got {type(value).__name__}")
    frozen: FrozenDict = freeze(value)
    return frozen


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise InvalidSnapshot(
            f"the time {value.isoformat()} has no time zone", hint="use datetime.now(UTC), never a naive time"
        )
    return value.astimezone(UTC)


def rfc3339(moment: datetime) -> str:
    """A UTC time as stored: ``2026-11-16T00:51:47.000001Z``; always six digits, so text sorts as time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


Json = Annotated[Any, BeforeValidator(freeze)]
JsonObject = Annotated[FrozenDict, BeforeValidator(_object)]
Timestamp = Annotated[datetime, AfterValidator(_utc), PlainSerializer(rfc3339, when_used="json")]


class Value(BaseModel):
    """An immutable value. Unknown fields are kept and written back as they came."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        populate_by_name=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
    )
    __pydantic_extra__: dict[str, Json]

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields changed. Fields that are not named stay the same objects.

        Only what changes is validated, so evolving a session of 100 000 messages costs what the change costs.
        """
        known = {name: value for name, value in changes.items() if name in type(self).model_fields}
        copy = self.model_copy(update={name: _checked(type(self), name, v) for name, v in known.items()})
        extra = {name: freeze(value, name) for name, value in changes.items() if name not in known}
        if extra:
            object.__setattr__(copy, "__pydantic_extra__", {**(self.__pydantic_extra__ or {}), **extra})
        return copy

    def raw(self) -> dict[str, Any]:
        """The value as plain JSON data, under its wire names, leaving out what is at its default."""
        data = self.__dict__
        out: dict[str, Any] = {}
        for name, wire, default in _plan(type(self)):
            value = data[name]
            if value is default or (name != "type" and value == default):
                continue
            out[wire] = _raw(value)
        if self.__pydantic_extra__:
            out.update(self.__pydantic_extra__)
        return out


@cache
def _adapter(model: type[Value], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    annotation: Any = field.annotation
    for extra in field.metadata:
        annotation = Annotated[annotation, extra]
    return TypeAdapter(annotation)


def _checked(model: type[Value], name: str, value: Any) -> Any:
    return _adapter(model, name).validate_python(value)


_REQUIRED = object()


def _default(name: str, field: FieldInfo) -> Any:
    if name == "type" or field.is_required():
        return _REQUIRED
    return field.get_default(call_default_factory=True, validated_data={})


@cache
def _plan(model: type[Value]) -> tuple[tuple[str, str, Any], ...]:
    fields = model.model_fields.items()
    return tuple((name, field.alias or name, _default(name, field)) for name, field in fields)


def _raw(value: Any) -> Any:
    if isinstance(value, Value):
        return value.raw()
    if isinstance(value, tuple):
        return [_raw(item) for item in value]
    if isinstance(value, datetime):
        return rfc3339(value)
    return value
