"""What a requirement is, and the words the lists are written with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["Requirement", "Status", "differs", "done", "section", "to_do"]

Status = Literal["done", "open", "differs"]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One promise: a stable id, where it was made, what it says, and whether a test proves it.

    `why` says what is missing of an open promise, or why the package deliberately does something else.
    """

    id: str
    source: str
    promise: str
    status: Status
    why: str = ""


class _Promise(NamedTuple):
    id: str
    text: str
    status: Status
    why: str = ""


def done(requirement_id: str, promise: str) -> _Promise:
    """A promise that at least one test proves, through the interface its user has."""
    return _Promise(requirement_id, promise, "done")


def to_do(requirement_id: str, promise: str, why: str) -> _Promise:
    """A promise that does not hold yet, or that no test proves as a whole; *why* says what is missing."""
    return _Promise(requirement_id, promise, "open", why)


def differs(requirement_id: str, promise: str, why: str) -> _Promise:
    """A promise the package deliberately keeps in another way; `docs/explanation/seeds.md` says how."""
    return _Promise(requirement_id, promise, "differs", why)


def section(source: str, *promises: _Promise) -> tuple[Requirement, ...]:
    """The promises made in one section of a page."""
    return tuple(Requirement(id=p.id, source=source, promise=p.text, status=p.status, why=p.why) for p in promises)
