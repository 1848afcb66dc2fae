"""JSON lines of other tools: parsed with bounds, and errors that name the line."""

from __future__ import annotations

import json
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot

__all__ = ["Line", "as_dict", "as_list", "as_text", "parse_json", "parse_lines"]

Line = dict[str, Any]


def parse_json(text: str, *, where: str = "the file") -> Any:
    """Parse *text* as JSON; `InvalidSnapshot` if it is not JSON, or nested too deeply."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        reason = f"{error.msg} in column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise InvalidSnapshot(f"{where} is not JSON: {reason}", hint="check that the file is complete") from error
    except RecursionError:
        raise InvalidSnapshot(f"{where} is nested too deeply") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_lines(text: str) -> list[Line]:
    """Parse a file with one JSON object per line. An incomplete last line is ignored.

    Raises:
        InvalidSnapshot: another line is not a JSON object.
    """
    rows = [(number, row) for number, row in enumerate(text.split("\n"), 1) if row.strip()]
    out: list[Line] = []
    for number, row in rows:
        try:
            value = parse_json(row, where=f"line {number}")
        except InvalidSnapshot:
            if len(out) == len(rows) - 1 and out and not text.endswith("\n"):
                break
            raise
        if not isinstance(value, dict):
            raise InvalidSnapshot(f"line {number} is not a JSON object")
        out.append(value)
    return out


def as_dict(value: Any) -> Line:
    """*value* if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """*value* if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """*value* if it is text, else an empty string, so that it can be used as a key."""
    return value if isinstance(value, str) else None
