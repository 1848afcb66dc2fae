"""The base class of every value in a snapshot: frozen, keyword-only; unknown stored fields are kept."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, get_args, get_origin

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
from snapshot_plugin.model.frozen import FrozenDict, FrozenList, check_depth, freeze
from snapshot_plugin.model.times import as_utc, rfc3339

__all__ = ["ABSENT", "MAX_NUMBER", "Json", "JsonObject", "Timestamp", "Value", "with_text_names"]

MAX_NUMBER = 2**63 - 1
"""The largest integer that a field accepts from Python code. Stored integers may be larger."""


def _object(value: Any) -> FrozenDict:
    if not isinstance(value, dict):
        kind = type(value).__name__.removeprefix("Frozen").lower()
        raise InvalidSnapshot(f"expected a JSON object, got {kind}")
    frozen: FrozenDict = freeze(value)
    return frozen


Json = Annotated[Any, BeforeValidator(freeze)]
JsonObject = Annotated[FrozenDict, PlainValidator(_object), WithJsonSchema({"type": "object"})]
Timestamp = Annotated[datetime, AfterValidator(as_utc), PlainSerializer(rfc3339, when_used="json")]


class Value(BaseModel):
    """An immutable value.

    The constructor and `evolve` raise `InvalidSnapshot` with the path of an invalid value, and reject unknown
    keywords, which are most likely typos. ``model_validate`` reads stored or foreign data: it raises pydantic's
    ``ValidationError``, and keeps unknown fields to write them back verbatim. Both errors are `ValueError`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        populate_by_name=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,
    )
    if not TYPE_CHECKING:  # type checkers would take it for a field
        __pydantic_extra__: dict[str, Json]
    _refused_as: ClassVar[type[InvalidInput]] = InvalidSnapshot
    _takes_unknown: ClassVar[bool] = False
    """Whether the constructor accepts unknown fields: for wire formats that others extend."""
    _also_takes: ClassVar[frozenset[str]] = frozenset()
    """Further keywords of the constructor, which are converted to fields."""

    def __init__(self, /, **data: Any) -> None:
        _check_given(type(self), data)
        try:
            super().__init__(**_with_parts(type(self), data))
        except ValidationError as error:
            raise _refusal(type(self), error) from None

    # Tells pydantic not to call this for nested values, which would be slow.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        """Equal values are stored as the same JSON. So 1, 1.0 and true differ, as they do on disk."""
        if self is other:
            return True
        return type(self) is type(other) and _canonical(self) == _canonical(other)

    def __hash__(self) -> int:
        return hash(_canonical(self))

    def evolve(self, /, **changes: Any) -> Self:
        """A copy with some fields changed. Fields that are not named stay the same objects.

        Only the changed fields are validated, so the cost does not depend on the length of a session. Small classes
        with rules over several fields are validated as a whole.
        """
        return self._evolved(_with_parts(type(self), changes), known=self.__pydantic_extra__ or {})

    def with_stored(self, changes: Mapping[str, Any]) -> Self:
        """As `evolve`, for data from a store or spool: fields unknown to this release are kept."""
        return self._evolved(changes, known=changes)

    def _evolved(self, changes: Mapping[str, Any], known: Container[str]) -> Self:
        _check_given(type(self), changes, known)
        extra = self.__pydantic_extra__ or {}
        if type(self).__pydantic_decorators__.model_validators:
            whole = self._whole({**self.__dict__, **extra, **changes})
            object.__setattr__(whole, "__pydantic_private__", self.__pydantic_private__)
            return whole
        fields = _names(type(self))
        named = {fields[name]: value for name, value in changes.items() if name in fields}
        copy = self.model_copy(update={name: self._checked(name, value) for name, value in named.items()})
        more = {name: freeze(value, name) for name, value in changes.items() if name not in fields}
        if more:
            object.__setattr__(copy, "__pydantic_extra__", {**extra, **more})
        return copy

    @classmethod
    def _whole(cls, data: dict[str, Any]) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _refusal(cls, error) from None

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        try:
            return _adapter(cls, name).validate_python(value)
        except ValidationError as error:
            raise _refusal(cls, error, name) from None

    def raw(self) -> dict[str, Any]:
        """The value as plain JSON data under its wire names, without defaults."""
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
        defaults = _raw_defaults(type(self))
        if name not in defaults:
            return (self.__pydantic_extra__ or {}).get(name, ABSENT)
        value = _raw(self.__dict__[name])
        return ABSENT if value == defaults[name] else value


def with_text_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """*data* with names that fields can have: a lone surrogate, which JSON may carry, becomes its escape."""
    return {name.encode("utf-8", "backslashreplace").decode(): value for name, value in data.items()}


def _check_given(model: type[Value], data: Mapping[str, Any], known: Container[str] = ()) -> None:
    """Reject mistakes of the caller: misspelled fields, numbers out of range, values nested too deeply."""
    fields = _names(model)
    for name, value in data.items():
        if name not in fields and name not in known and not model._takes_unknown:  # noqa: SLF001 — the class beside
            raise _no_field(model, name)
        if name in _numbers(model) and type(value) is int and abs(value) > MAX_NUMBER:
            raise model._refused_as(f"{model.__name__}.{name} is out of range: it has more than 64 bits")  # noqa: SLF001 — as above
        if isinstance(value, dict | list | tuple):
            check_depth(value, f"{model.__name__}.{name}")


def _with_parts(model: type[Value], data: dict[str, Any]) -> dict[str, Any]:
    """*data*, with parts given as dicts checked, and constructed if pydantic alone would not accept them."""
    made: dict[str, Any] = {}
    for name, part in _parts(model).items():
        value = data.get(name)
        if type(value) is dict:
            made[name] = _part(part, value, f"{model.__name__}.{name}")
        elif isinstance(value, list | tuple) and any(type(each) is dict for each in value):
            named = ((each, f"{model.__name__}.{name}[{index}]") for index, each in enumerate(value))
            made[name] = [_part(part, each, path) if type(each) is dict else each for each, path in named]
    return {**data, **made} if made else data


def _part(part: type[Value], given: dict[str, Any], path: str) -> Value | dict[str, Any]:
    """Check a part given as a dict. Fields of other libraries are kept, as in stored data; typos are rejected."""
    large = any(type(value) is int and abs(value) > MAX_NUMBER for value in given.values())
    unknown = given.keys() - _names(part).keys()
    if not large and not unknown & part._also_takes and not any(_meant(part, name) for name in unknown):  # noqa: SLF001 — the class beside
        return given
    try:
        return part(**given)
    except InvalidInput as error:
        raise type(error)(path + error.message.removeprefix(part.__name__), hint=error.hint) from None


@cache
def _parts(model: type[Value]) -> dict[str, type[Value]]:
    """The fields that hold a `Value`, or several."""
    found: dict[str, type[Value]] = {}
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is dict:  # its keys are the caller's own names
            continue
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        parts = [kind for kind in kinds if issubclass(kind, Value)]
        found |= dict.fromkeys((name, field.alias or name), parts[0]) if parts else {}
    return found


@cache
def _numbers(model: type[Value]) -> frozenset[str]:
    fields = model.model_fields.items()
    return frozenset(name for name, field in fields if field.annotation in (int, int | None))


def _no_field(model: type[Value], name: str) -> InvalidInput:
    meant = _meant(model, name)
    hint = f"did you mean {meant!r}?" if meant else "put data of your own in metadata"
    return model._refused_as(f"{model.__name__} has no field {name!r}", hint=hint)  # noqa: SLF001 — the class beside


def _meant(model: type[Value], name: str) -> str | None:
    """The field that a misspelled *name* probably means; None if no field is similar."""
    import difflib  # noqa: PLC0415 — for typos only

    if name in _OLD_NAMES:
        return _OLD_NAMES[name]
    return next(iter(difflib.get_close_matches(str(name), model.model_fields, n=1)), None)


_OLD_NAMES = {"acp_session_id": "agent_session_id", "working_dir": "cwd", "tokens": "token_count"}
"""Names of fields in version 1 and in other libraries."""


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
"""Stands for a field that is not written, because None is a value."""


def _default(name: str, field: FieldInfo) -> Any:
    if name == "type" or field.is_required():
        return _REQUIRED
    return field.get_default(call_default_factory=True, validated_data={})


@cache
def _plan(model: type[Value]) -> tuple[tuple[str, str, Any], ...]:
    fields = model.model_fields.items()
    return tuple((name, field.alias or name, _default(name, field)) for name, field in fields)


@cache
def _raw_defaults(model: type[Value]) -> dict[str, Any]:
    return {name: _raw(default) for name, _, default in _plan(model)}


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
