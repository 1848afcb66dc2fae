"""What a requirement is, and the words the lists are written with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["Requirement", "Status", "done", "section", "to_do"]

Status = Literal["done", "open"]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One promise: a stable id, where it was made, what it says, and whether a test proves it yet."""

    id: str
    source: str
    promise: str
    status: Status


class _Promise(NamedTuple):
    id: str
    text: str
    status: Status


def done(requirement_id: str, promise: str) -> _Promise:
    """A promise that at least one test proves."""
    return _Promise(requirement_id, promise, "done")


def to_do(requirement_id: str, promise: str) -> _Promise:
    """A promise that no test proves yet, or not the whole of it."""
    return _Promise(requirement_id, promise, "open")


def section(source: str, *promises: _Promise) -> tuple[Requirement, ...]:
    """The promises made in one section of a page."""
    return tuple(Requirement(id=p.id, source=source, promise=p.text, status=p.status) for p in promises)
