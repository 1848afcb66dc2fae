"""The answer of an operation: one value that the command line prints as text or JSON, and the browser gets as JSON.

The JSON Schema of every answer comes from the same declaration. The command line has a function for each type that
prints it for people.

Answers are dataclasses, which the type checker checks: pydantic, half of the start-up of a short command, is only
loaded for the schema.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, dataclass_transform

__all__ = ["SCHEMA_VERSION", "Document", "Part", "plain_json"]

SCHEMA_VERSION = 1
"""Increased when a field is removed or changes its meaning. New fields do not increase it: ignore unknown ones."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Part:
    """A value inside an answer: a frozen dataclass with keyword-only fields, like every subclass."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    """For the schema: there are no other fields."""

    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        made: Any = dataclass(frozen=True, kw_only=True)(cls)
        cls._names = tuple(field.name for field in fields(made))

    @classmethod
    def from_fields(cls, source: object, **others: Any) -> Self:
        """Return a value with the fields that *source* has under the same names, and *others*."""
        same = {name: getattr(source, name) for name in cls._names if name not in others and hasattr(source, name)}
        return cls(**same, **others)


class Document(Part):
    """An answer. A subclass names its ``kind`` and adds its fields."""

    kind: ClassVar[str]
    """What `asnap schema` calls it; in every document, so that a program knows what it reads."""
    rows: ClassVar[str | None] = None
    """The field whose entries ``--jsonl`` prints one by one; None prints the document as one line."""

    @property
    def exit_code(self) -> int:
        """The command's exit status; not 0 if the answer reports a failure, such as damage found by a check."""
        return 0

    def document(self) -> dict[str, Any]:
        """The answer as ``--json`` prints it."""
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **plain_json(self)}

    def lines(self) -> list[dict[str, Any]]:
        """The answer as ``--jsonl`` prints it: each line a document of its own."""
        if self.rows is None:
            return [self.document()]
        head = {"schema_version": SCHEMA_VERSION, "kind": f"{self.kind}.{self.rows}"}
        return [{**head, **plain_json(row)} for row in getattr(self, self.rows)]

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema of `document`."""
        from pydantic import TypeAdapter

        schema = TypeAdapter(cls).json_schema(mode="serialization")
        fixed = {"schema_version": {"const": SCHEMA_VERSION}, "kind": {"const": cls.kind}}
        properties = {**fixed, **schema.pop("properties", {})}
        required = [*fixed, *schema.pop("required", [])]
        dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        return {**dialect, **schema, "title": cls.kind, "properties": properties, "required": required}


def plain_json(value: Part) -> dict[str, Any]:
    """Return *value* as plain JSON, as in an answer."""
    from pydantic_core import to_jsonable_python

    plain: dict[str, Any] = to_jsonable_python(value, inf_nan_mode="null")
    return plain
