"""All errors of the package, as one tree.

::

    SnapshotError
    ├── InvalidInput                what the caller passed cannot be stored
    │   ├── InvalidSessionId
    │   ├── InvalidSnapshot
    │   └── InvalidPolicy
    ├── NotFound
    │   ├── SnapshotNotFound        no such session, or no snapshot at that sequence number
    │   └── StoreNotFound           there is no store at that place
    ├── Damaged
    │   ├── SnapshotCorrupted       bytes are not what was written
    │   └── SnapshotTampered        bytes are well-formed, but not made with this store's key
    ├── InvalidSnapshotVersion      written by a newer release; never read in part
    ├── KeyProblem
    │   ├── KeyMissing              the store is encrypted and no key was given
    │   └── WrongKey                a key was given and does not open this store
    ├── Conflict                    another writer saved first
    ├── SessionLocked               another process owns the session
    │   └── Fenced                  another process took over or deleted a session that was live here
    ├── StoreUnavailable            the disk or service refused: full, read-only, I/O error
    │   └── StoreForbidden          the service refuses these credentials
    ├── LimitExceeded               a project memory, or an entry of one, would grow over its limit
    ├── MemoryReadOnly              another process writes this project's memory
    ├── AgentNoLoadSupport          the agent cannot load sessions, and the caller requires it
    ├── AgentUnavailable            the agent cannot be started, or keeps dying
    ├── FidelityNotMet              the session can be restored, but only below the required grade
    ├── Unsupported                 this operating system does not have what a feature needs
    └── MissingExtra                an optional dependency is not installed

Every class has a stable ``code``, and ``retryable`` tells whether the same call may succeed later. Every instance
has a ``hint``: what to do next. Default hints fit every reader; a front end replaces them where it knows a command.
Compare codes, not messages.
"""

from __future__ import annotations

from typing import ClassVar, Self

__all__ = [
    "EXIT_CODES",
    "AgentNoLoadSupport",
    "AgentUnavailable",
    "Conflict",
    "Damaged",
    "Fenced",
    "FidelityNotMet",
    "InvalidInput",
    "InvalidPolicy",
    "InvalidSessionId",
    "InvalidSnapshot",
    "InvalidSnapshotVersion",
    "KeyMissing",
    "KeyProblem",
    "LimitExceeded",
    "MemoryReadOnly",
    "MissingExtra",
    "NotFound",
    "SessionLocked",
    "SnapshotCorrupted",
    "SnapshotError",
    "SnapshotNotFound",
    "SnapshotTampered",
    "StoreForbidden",
    "StoreNotFound",
    "StoreUnavailable",
    "Unsupported",
    "WrongKey",
]


class SnapshotError(Exception):
    """The root of all errors this package raises on purpose."""

    code: ClassVar[str] = "failure"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str] = ""

    def __init__(
        self, message: str, *, session_id: str | None = None, hint: str | None = None, run: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.session_id = session_id
        self.hint = self.default_hint if hint is None else hint
        self.run = run  # the command a user of the command line should run next, where only the raiser knows it

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(SnapshotError, ValueError):
    """What the caller passed cannot be stored. Nothing was written."""

    code = "invalid_input"


class InvalidSessionId(InvalidInput):
    """A session id that cannot name a session in every store."""

    code = "invalid_session_id"


class InvalidSnapshot(InvalidInput):
    """A snapshot holds a value that JSON cannot represent. The message names the path to it."""

    code = "invalid_snapshot"


class InvalidPolicy(InvalidInput):
    """A retention policy that would keep nothing, or that contradicts itself."""

    code = "invalid_policy"


class NotFound(SnapshotError, LookupError):
    """The thing asked for does not exist."""

    code = "not_found"


class SnapshotNotFound(NotFound):
    """No such session, or the session has no snapshot at that sequence number."""

    code = "snapshot_not_found"
    default_hint = "list the sessions, or the history of this one, to see what exists"


class StoreNotFound(NotFound):
    """There is no store at that place."""

    code = "store_not_found"
    default_hint = "check the path or URL; the first recorded session creates a store"

    is_place_there = False
    """True if the database or bucket was reached and holds no store yet."""

    @classmethod
    def empty(cls, place: str, *, check: str) -> Self:
        """The error for a database or bucket that was reached and holds no store yet."""
        error = cls(
            f"there is no store at {place} yet", hint=f"the first recorded session creates it; check {check}"
        )
        error.is_place_there = True
        return error


class Damaged(SnapshotError):
    """Stored bytes cannot be trusted. Nothing was changed on disk."""

    code = "damaged"
    default_hint = "check the store to see what is damaged; older snapshots of the session may still load"


class SnapshotCorrupted(Damaged):
    """The bytes are not the bytes that were written."""

    code = "corrupted"


class SnapshotTampered(Damaged):
    """The bytes are well-formed, but were not written with this store's key for this place."""

    code = "tampered"


class InvalidSnapshotVersion(SnapshotError):
    """A newer release wrote the data. It is refused, never read in part."""

    code = "version_unsupported"
    default_hint = "upgrade snapshot-plugin to the release that wrote it, or newer"


class KeyProblem(SnapshotError):
    """The store's keys cannot be used."""

    code = "key_problem"


class KeyMissing(KeyProblem):
    """The store is encrypted and no key was given."""

    code = "key_missing"
    default_hint = "open the store with its key or passphrase"


class WrongKey(KeyProblem):
    """A key was given and it opens none of the store's slots."""

    code = "wrong_key"
    default_hint = "the data is intact; use the key or passphrase this store was created with"


class Conflict(SnapshotError):
    """Another writer saved this session since this writer loaded it. Nothing was written."""

    code = "conflict"
    default_hint = "load the session again and re-apply your change, or fork it"


class SessionLocked(SnapshotError):
    """Another live process owns the session."""

    code = "locked"
    retryable = True
    default_hint = "wait until the other process has ended, or fork the session"


class Fenced(SessionLocked):
    """Another process took over or deleted a session that was live here. Nothing was written."""

    code = "fenced"
    retryable = False
    default_hint = "open the session again to continue from what its new owner saved"


class StoreUnavailable(SnapshotError, OSError):
    """The disk or service behind the store refused. What was acknowledged before is safe."""

    code = "store_unavailable"
    retryable = True
    default_hint = "free space or fix permissions, then try again"


class StoreForbidden(StoreUnavailable):
    """The service behind the store refuses these credentials. A retry does not help."""

    code = "store_forbidden"
    retryable = False
    default_hint = "check the credentials in the environment and what they are allowed to do"


class LimitExceeded(SnapshotError):
    """The value is too large, or there is no room left for it. Nothing was written."""

    code = "limit_exceeded"


class MemoryReadOnly(SnapshotError):
    """Another process writes this project's memory; this one can only read it. Nothing was written."""

    code = "read_only"
    retryable = True
    default_hint = "try again when the other process has ended"


class AgentNoLoadSupport(SnapshotError):
    """The agent cannot load sessions, and the caller requires it."""

    code = "agent_no_load_support"
    default_hint = "allow the fallback, or use an agent that advertises loadSession"


class AgentUnavailable(SnapshotError):
    """The agent cannot be started, or keeps dying."""

    code = "agent_unavailable"


class FidelityNotMet(SnapshotError):
    """The session can be restored, but only below the required grade. Nothing is lost."""

    code = "fidelity_not_met"
    default_hint = "accept a lower grade, or use an agent that can load sessions"


class Unsupported(SnapshotError):
    """A feature needs what this operating system does not have."""

    code = "unsupported"
    default_hint = "use Linux or macOS; on Windows, the Windows Subsystem for Linux"


class MissingExtra(SnapshotError, ImportError):
    """A feature needs an optional dependency that is not installed."""

    code = "missing_extra"


EXIT_CODES: dict[str, int] = {
    SnapshotNotFound.code: 4,
    NotFound.code: 4,
    Damaged.code: 5,
    SnapshotCorrupted.code: 5,
    SnapshotTampered.code: 5,
    SessionLocked.code: 6,
    Fenced.code: 6,
    Conflict.code: 6,
    MemoryReadOnly.code: 6,
    KeyProblem.code: 7,
    KeyMissing.code: 7,
    WrongKey.code: 7,
    InvalidSnapshotVersion.code: 8,
    AgentNoLoadSupport.code: 9,
    AgentUnavailable.code: 9,
    FidelityNotMet.code: 9,
    StoreNotFound.code: 10,
    InvalidInput.code: 2,
    InvalidSessionId.code: 2,
    InvalidSnapshot.code: 2,
    InvalidPolicy.code: 2,
}
"""Process exit status by error code; a code that is not listed exits with 1."""
