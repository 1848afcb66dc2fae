from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any, ClassVar

import jsonschema
import pytest

from snapshot_plugin.operations.document import Document, Part


class Thing(Part):
    name: str
    when: datetime | None = None
    share: float | None = None


class Things(Document):
    kind: ClassVar[str] = "things"
    rows: ClassVar[str] = "things"
    things: tuple[Thing, ...]
    total: int = 0


ONE = Things(things=(Thing(name="a", when=datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC)),), total=1)


def test_document_is_json_with_its_kind() -> None:
    thing = {"name": "a", "when": "2026-11-16T01:02:03Z", "share": None}

    assert ONE.document() == {"schema_version": 1, "kind": "things", "things": [thing], "total": 1}
    assert ONE.lines() == [{"schema_version": 1, "kind": "things.things", **thing}]


def test_schema_is_derived_from_the_declaration_and_has_every_field() -> None:
    schema = Things.json_schema()

    jsonschema.validate(ONE.document(), schema)
    assert schema["required"] == ["schema_version", "kind", "things"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**ONE.document(), "more": 1}, schema)


def test_number_beyond_json_is_null() -> None:
    thing = Things(things=(Thing(name="a", share=float("nan")),)).document()["things"][0]

    assert json.dumps(thing["share"]) == "null"


@pytest.mark.parametrize("fields", [{}, {"name": "a", "colour": "red"}], ids=["missing", "unknown"])
def test_missing_and_unknown_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Thing(**fields)


def test_document_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        ONE.total = 2  # type: ignore[misc]
