"""Session ids: new ones, foreign ones, the directory name of an id, and the other ways to name a session.

One rule keeps names apart, wherever they come from:

- An id that ends as those of `COMPANIONS` do is a hidden part of another session. Only we give such ids. A session
  from elsewhere (an agent's, an imported one) is stored under its `local_id`; a program that chooses one is
  refused.
- ``latest``, ``latest~2``, ``tag:x``, ``session@3`` and ``id:x`` are references (`is_reference`). Agents and
  programs may use them as ids. They capture nothing: where a person names a session, the reference wins, and
  ``id:`` before the whole id means that session (`as_reference`). Names that people give, and ids that they choose,
  may not be one.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from snapshot_plugin.errors import InvalidInput, InvalidSessionId

if TYPE_CHECKING:
    from collections.abc import Container

    from ulid import ULID

__all__ = [
    "AT_SNAPSHOT",
    "COMPANIONS",
    "EXACTLY",
    "LATEST",
    "MAX_ID_BYTES",
    "TAG",
    "as_reference",
    "check_new_id",
    "check_number",
    "check_session_id",
    "companions",
    "dated",
    "derived_id",
    "dirname_of",
    "is_companion",
    "is_reference",
    "local_id",
    "new_id",
    "owner_of",
    "session_id_of",
    "short_id",
    "time_of",
]

COMPANIONS = ("+memory", "+subgraphs")
"""How the ids of sessions end that lists hide.

Release 0.2 kept working memory, subgraphs and subagents in such sessions; this one keeps state that sessions of
Google ADK share, and what `persistent_session` has to keep beside a framework's conversation.
"""
MAX_ID_BYTES = 200
"""The longest directory name of a session, in bytes. File systems end at 255; suffixes need the rest."""
AT_SNAPSHOT = re.compile(r"(?P<session>.+)@(?P<seq>[0-9]{1,18})\Z", re.DOTALL)
LATEST = re.compile(r"latest(?:~(?P<back>[0-9]{1,18}))?\Z")
TAG = "tag:"
EXACTLY = "id:"
"""References that are not ids or names: a snapshot, the newest session or one before it, a tag, and a whole id."""
_MAX_ID = 1 << 14
_READABLE = 80
_DERIVED = 40

_AS_IT_IS = re.compile(r"[a-z0-9_-][a-z0-9._-]*")
_BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGITS = [high + low for high in _BASE32 for low in _BASE32]
_RANDOM_DIGIT = (8 * _BASE32).encode()
"""A table for `bytes.translate` that maps every byte to one of 32 digits, evenly."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UPPER = re.compile(r"[A-Z~]")


def companions(session_id: str, known: Container[str]) -> tuple[str, ...]:
    """The companions of *session_id* among *known*. They share its fate: what is done to it is done to them."""
    return tuple(each for suffix in COMPANIONS if (each := session_id + suffix) in known)


def is_companion(session_id: str) -> bool:
    """Whether this is the id of a part of another session, which lists hide."""
    return session_id.endswith(COMPANIONS)


def owner_of(session_id: str) -> str | None:
    """The session that the companion *session_id* belongs to; None if it is not the id of a companion."""
    owners = (session_id.removesuffix(suffix) for suffix in COMPANIONS if session_id.endswith(suffix))
    return next(owners, None) or None


def new_id() -> str:
    """A new ULID in lower case: unique, sortable by time, safe on case-insensitive disks."""
    now = time.time_ns() // 1_000_000
    moment = [_DIGITS[now >> shift & 1023] for shift in (40, 30, 20, 10, 0)]
    return "".join(moment) + os.urandom(16).translate(_RANDOM_DIGIT).decode()


def dated(id_: str, moment: datetime) -> str:
    """The id with its time replaced by *moment*."""
    return str(_ulid().from_datetime(moment)).lower()[:10] + id_[10:]


def time_of(id_: str) -> datetime | None:
    """The time in the id; None if it is not a ULID."""
    try:
        return _ulid().from_str(id_.upper()).datetime.astimezone(UTC)
    except ValueError:
        return None


def _ulid() -> type[ULID]:
    from ulid import ULID  # noqa: PLC0415 — its import reads package metadata: 20 ms that lists do not need

    return ULID


def check_session_id(session_id: str) -> str:
    """Return *session_id* if every store can hold it; raise `InvalidSessionId` otherwise."""
    if not (type(session_id) is str and len(session_id) <= MAX_ID_BYTES and _AS_IT_IS.fullmatch(session_id)):
        dirname_of(session_id)
    return session_id


def check_new_id(session_id: str) -> str:
    """Return *session_id* if a person or program may choose it for a new session; else raise `InvalidSessionId`."""
    if is_companion(check_session_id(session_id)):
        raise _bad(session_id, "it names a part of another session")
    if is_reference(session_id):
        raise _bad(session_id, "it means something else where sessions are named")
    return session_id


def local_id(foreign_id: str) -> str:
    """The id under which a session from elsewhere is stored: its own, unless that is the id of a companion."""
    return derived_id(foreign_id) if is_companion(check_session_id(foreign_id)) else foreign_id


def derived_id(name: str) -> str:
    """A readable id for a *name* that cannot be one itself; always the same, and another one for each name."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    readable = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name[:_DERIVED])
    return f"{readable}~{digest}"


def is_reference(text: str) -> bool:
    """Whether commands take *text* for something else than the id or name of a session."""
    return bool(LATEST.match(text) or AT_SNAPSHOT.match(text) or text.startswith((TAG, EXACTLY)))


def as_reference(session_id: str) -> str:
    """How a command names exactly this session: by its id, after ``id:`` if it would mean something else."""
    return EXACTLY + session_id if is_reference(session_id) else session_id


def check_number(name: str, value: object) -> None:
    """Raise `InvalidInput` unless *value*, the argument *name*, is None or a whole number."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidInput(f"{name}={value!r} is not a whole number", hint=f"as {name}=3")


def short_id(session_id: str) -> str:
    """The id as used in file names, locks and the trash. A store finds the session by either.

    This is the id itself, unless it is too long for a file name: then its readable beginning and a digest.
    """
    return session_id if len(_encoded(session_id)) <= MAX_ID_BYTES else _shortened(session_id)


def dirname_of(session_id: str) -> str:
    """The directory name of a session: percent-encoded so that ids never collide, even on case-insensitive disks.

    Only ``a-z 0-9 . _ -`` are kept; a leading dot is encoded, so no session is a hidden file. A long id has the
    name of its `short_id`.
    """
    name = _encoded(session_id)
    return name if len(name) <= MAX_ID_BYTES else _encoded(_shortened(session_id))


def _shortened(session_id: str) -> str:
    beginning = re.sub(r"[^a-z0-9._-]+", "-", session_id[:_READABLE].lower()).lstrip(".")
    return f"{beginning}~{hashlib.sha256(session_id.encode()).hexdigest()[:40]}"


def _encoded(session_id: str) -> str:
    if not isinstance(session_id, str):
        raise _bad(session_id, "it is not text")
    if _AS_IT_IS.fullmatch(session_id):
        return _bounded(session_id)
    if session_id in ("", ".", ".."):
        raise _bad(session_id, "it is empty or names a directory")
    if _CONTROL.search(session_id):
        raise _bad(session_id, "it contains a control character")
    try:
        encoded = quote(session_id, safe="")
    except UnicodeEncodeError:
        raise _bad(session_id, "it is not valid Unicode") from None
    escaped = re.sub(r"%[0-9A-F]{2}", lambda m: m[0].lower(), encoded)
    name = _UPPER.sub(lambda m: f"%{ord(m[0]):02x}", escaped)
    if name.startswith("."):
        name = "%2e" + name[1:]
    return _bounded(name)


def _bounded(name: str) -> str:
    if len(name) > _MAX_ID:
        raise _bad(name, f"it has {len(name)} bytes, over {_MAX_ID}")
    return name


def session_id_of(dirname: str) -> str | None:
    """The session id (or `short_id`) of a directory name; None if no session id has that name."""
    try:
        session_id = unquote(dirname, errors="strict")
        return session_id if dirname_of(session_id) == dirname else None
    except (UnicodeDecodeError, InvalidSessionId):
        return None


def _bad(session_id: object, why: str) -> InvalidSessionId:
    shown = repr(session_id)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"  # noqa: PLR2004 — fits a line
    return InvalidSessionId(f"the session id {shown} cannot be used: {why}", hint="use letters, digits, . _ -")
