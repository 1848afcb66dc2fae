"""The base of every value in a snapshot: frozen, keyword-only, and never dropping a field it does not know."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot
from snapshot_plugin.model.frozen import FrozenDict, FrozenList, freeze
from snapshot_plugin.model.times import as_utc, rfc3339

__all__ = ["ABSENT", "Json", "JsonObject", "Timestamp", "Value"]


def _object(value: Any) -> FrozenDict:
    if not isinstance(value, dict):
        raise InvalidSnapshot(f"expected a JSON object, got {type(value).__name__}")
    frozen: FrozenDict = freeze(value)
    return frozen


Json = Annotated[Any, BeforeValidator(freeze)]
JsonObject = Annotated[FrozenDict, PlainValidator(_object), WithJsonSchema({"type": "object"})]
Timestamp = Annotated[datetime, AfterValidator(as_utc), PlainSerializer(rfc3339, when_used="json")]


class Value(BaseModel):
    """An immutable value. Unknown fields are kept and written back as they came.

    Making one, and `evolve`, raise `InvalidSnapshot` with the path of what does not fit; ``model_validate``,
    which reads what others wrote, keeps pydantic's ``ValidationError``. Both are `ValueError`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        populate_by_name=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,
    )
    __pydantic_extra__: dict[str, Json]
    _refused_as: ClassVar[type[InvalidInput]] = InvalidSnapshot

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _refusal(type(self), error) from None

    # Tells pydantic that reading nested values need not come through here, which would be slow.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        """Equal means: stored as the same JSON. So 1, 1.0 and true differ here, as they do on disk."""
        if self is other:
            return True
        return type(self) is type(other) and _canonical(self) == _canonical(other)

    def __hash__(self) -> int:
        return hash(_canonical(self))

    def evolve(self, /, **changes: Any) -> Self:
        """A copy with some fields changed. Fields that are not named stay the same objects.

        Only what changes is validated, so evolving a session of 100 000 messages costs what the change costs.
        A kind with rules over several fields (there are few, and small) is validated whole.
        """
        if type(self).__pydantic_decorators__.model_validators:
            whole = type(self)(**{**self.__dict__, **(self.__pydantic_extra__ or {}), **changes})
            object.__setattr__(whole, "__pydantic_private__", self.__pydantic_private__)
            return whole
        fields = _names(type(self))
        known = {fields[name]: value for name, value in changes.items() if name in fields}
        copy = self.model_copy(update={name: self._checked(name, value) for name, value in known.items()})
        extra = {name: freeze(value, name) for name, value in changes.items() if name not in fields}
        if extra:
            object.__setattr__(copy, "__pydantic_extra__", {**(self.__pydantic_extra__ or {}), **extra})
        return copy

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        try:
            return _adapter(cls, name).validate_python(value)
        except ValidationError as error:
            raise _refusal(cls, error, name) from None

    def raw(self) -> dict[str, Any]:
        """The value as plain JSON data, under its wire names, leaving out what is at its default."""
        data = self.__dict__
        out: dict[str, Any] = {}
        for name, wire, default in _plan(type(self)):
            value = data[name]
            if value is not default and value != default:
                out[wire] = value if type(value) in _JSON else _raw(value)
        if self.__pydantic_extra__:
            out.update(self.__pydantic_extra__)
        return out

    def raw_field(self, name: str) -> Any:
        """One field as `raw` would write it; a field at its default, or unknown, is `ABSENT`."""
        for known, _wire, default in _plan(type(self)):
            if known == name:
                value = _raw(self.__dict__[name])
                return ABSENT if value == _raw(default) else value
        return (self.__pydantic_extra__ or {}).get(name, ABSENT)


def _canonical(value: Value) -> str:
    return json.dumps(value.raw(), sort_keys=True)


@cache
def _adapter(model: type[Value], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    annotation: Any = field.annotation
    for extra in field.metadata:
        annotation = Annotated[annotation, extra]
    return TypeAdapter(annotation)


def _refusal(model: type[Value], error: ValidationError, *prefix: str) -> InvalidInput:
    first = error.errors(include_input=False, include_url=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in (*prefix, *first["loc"]))
    cause = first.get("ctx", {}).get("error")
    if not isinstance(cause, InvalidInput):
        return model._refused_as(f"{model.__name__}{path}: {first['msg']}")  # noqa: SLF001 — the class beside
    inside, value, where = cause.message.partition("value")
    text = f"{path}{where}" if value and not inside else f"{path}: {cause.message}"
    return type(cause)(f"{model.__name__}{text}", hint=cause.hint)


_REQUIRED = object()
_JSON = frozenset({str, int, float, bool, type(None), FrozenDict, FrozenList})
ABSENT = object()
"""Stands for a field that is not written, where None is a value."""


def _default(name: str, field: FieldInfo) -> Any:
    if name == "type" or field.is_required():
        return _REQUIRED
    return field.get_default(call_default_factory=True, validated_data={})


@cache
def _plan(model: type[Value]) -> tuple[tuple[str, str, Any], ...]:
    fields = model.model_fields.items()
    return tuple((name, field.alias or name, _default(name, field)) for name, field in fields)


@cache
def _names(model: type[Value]) -> dict[str, str]:
    wires = {wire: name for name, wire, _ in _plan(model)}
    return wires | {name: name for name in model.model_fields}


def _raw(value: Any) -> Any:
    if isinstance(value, Value):
        return value.raw()
    if isinstance(value, tuple):
        return [_raw(item) for item in value]
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value
