"""The store contract: what `snapshot_plugin/store/base.py` promises of every store, and what the model adds."""

from __future__ import annotations

from tests.requirement_lists.requirement import done, section

__all__ = ["STORE"]

_PAGE = "snapshot_plugin/store/base.py: "

_CONTRACT = section(
    _PAGE + "the store contract",
    done("STORE-DURABLE-KILL", "When save returned, the snapshot survives kill -9."),
    done("STORE-DURABLE-POWER", "When save returned, the snapshot survives a power cut."),
    done("STORE-DURABLE-WHOLE", "When save raised, the snapshot is not there, or it is there whole."),
    done("STORE-ORDER-GROWS", "Sequence numbers only grow and are never used twice."),
    done("STORE-ORDER-CLOCK", "A clock that runs backwards changes no order."),
    done("STORE-ORDER-CALLS", "Saves through one store object happen in the order of the calls."),
    done("STORE-CONFLICT-STALE", "A save based on a snapshot that is no longer the head is refused."),
    done("STORE-CONFLICT-BASE", "A save with another base than the head is refused; base 0 means must not exist."),
    done("STORE-CONFLICT-NOTHING", "A refused save writes nothing."),
    done("STORE-CONFLICT-SEEN-NOTHING", "A value that was never loaded is refused where the session exists."),
    done("STORE-CONFLICT-REWRITTEN", "A stalled writer is refused after another one saved, forgot and rewrote."),
    done("STORE-CONFLICT-PROCESSES", "Two processes that save at once never lose an acknowledged snapshot."),
    done("STORE-UNCHANGED", "Saving what is already the head writes nothing and says so."),
    done("STORE-UNCHANGED-TAGS", "With tags even an unchanged session is saved."),
    done("STORE-NOT-FOUND-SESSION", "A session never saved, or deleted, is not found."),
    done("STORE-NOT-FOUND-SEQ", "A number never used, forgotten, or after the head is not found."),
    done("STORE-EMPTY-LIST", "The list of an empty store is empty."),
    done(
        "STORE-CORRUPT-FALLBACK", "Loading the newest falls back to the newest whole one and names what it skipped."
    ),
    done("STORE-CORRUPT-STRICT", "With strict, damage of the newest raises."),
    done("STORE-CORRUPT-AT", "Damage of a snapshot asked for by number raises."),
    done("STORE-CORRUPT-ALL", "If nothing is whole, loading raises."),
    done("STORE-CORRUPT-TAMPERED", "Bytes that are well-formed and that the key disowns are tampering."),
    done("STORE-CORRUPT-TOO-NEW", "A snapshot of a newer release is refused as such, never half-read."),
    done("STORE-READ-ONLY", "Reading never changes anything on disk."),
    done("STORE-CANCEL", "A cancelled save happened whole or not at all, and the store stays usable."),
    done("STORE-ERRORS", "What the disk refuses is StoreUnavailable; everything raised is a SnapshotError."),
    done("STORE-SHARED", "Several store objects and processes work on one place."),
    done("STORE-CLOSE-BOUNDED", "Closing takes about a second at most, however much is left to compress."),
)

_VERBS = section(
    _PAGE + "SnapshotStore",
    done("STORE-SAVE-REF", "save returns session, number, root, size."),
    done("STORE-SAVE-DELTA", "The cost of a save follows what changed, not how long the session is."),
    done("STORE-SAVE-SECTIONS", "A state section that did not change is not written again."),
    done(
        "STORE-SAVE-SPLICE",
        "Append, edit in the middle, truncation and a summary in place of a prefix are splices.",
    ),
    done("STORE-SAVE-TRIGGER", "The trigger of a save is shown in history."),
    done("STORE-LOAD-AT", "Every snapshot that was kept loads by its number, exactly as saved."),
    done("STORE-READ-WHERE", "read says where the snapshot was and what was skipped."),
    done("STORE-LIST-NEWEST", "list gives the newest of every session, last changed first."),
    done("STORE-LIST-DAMAGED", "A damaged session is listed as damaged, never left out."),
    done("STORE-HISTORY", "history gives every snapshot of a session, newest first."),
    done("STORE-DELETE-TRASH", "delete moves to a trash that can be listed."),
    done(
        "STORE-ANY-ORDER", "Whatever happens to sessions, in any order: nothing acknowledged is lost or comes back."
    ),
    done("STORE-LIVE-FORK", "A forked child never waits for its parent's locks, nor writes to its live sessions."),
    done("STORE-UNDELETE", "undelete brings the session back; a conflict if a new one has its place."),
    done("STORE-PURGE", "purge removes for ever what is older than the grace period, and says what."),
    done("STORE-FORGET", "forget drops what a policy does not keep; the rest keeps number, content and root."),
    done("STORE-FORGET-REASONS", "forget gives a reason for each snapshot that stays."),
    done("STORE-FORGET-DRY-RUN", "A dry run says what would go and changes nothing."),
    done("STORE-CHECK", "check verifies everything, down to every root, and changes nothing."),
    done("STORE-CHECK-FINDINGS", "check says where, what, and which snapshots it costs."),
    done("STORE-REPAIR", "repair puts damage aside and keeps the snapshots that are whole."),
    done("STORE-CLOSE", "Saving after close is refused."),
    done("STORE-URL", "open_store picks the backend by scheme and can be extended by entry point."),
    done("STORE-TOO-LARGE-NOTICE", "A message over 1 MB or a session over 100 MB is saved whole with a notice."),
    done("STORE-BACKENDS", "Both built-in stores pass the same suite, on asyncio and on trio."),
    done("STORE-KIT", "A third party runs the suite on a backend of its own with a few lines."),
    done("STORE-KIT-FAULTY", "The kit's faulty store fails exactly the calls it is told to."),
    done("STORE-MODEL", "Random edits, forgets, rewrites and reopenings agree with a plain list."),
)

_FAULTS = section(
    "snapshot_plugin/store/base.py: errors, and the faults a store lives with",
    done("STORE-FAULT-READ-ONLY", "A read-only directory is StoreUnavailable and nothing is lost."),
    done("STORE-FAULT-FULL-BYTES", "A disk full by bytes is StoreUnavailable and nothing is lost."),
    done("STORE-FAULT-FULL-INODES", "A disk full by inodes is StoreUnavailable and nothing is lost."),
    done("STORE-FAULT-FSYNC", "An error of fsync is never acknowledged, and that descriptor is not synced again."),
    done("STORE-FAULT-SHORT-WRITE", "Short writes are completed."),
    done("STORE-FAULT-SIGKILL", "SIGKILL at any instant leaves the old snapshot or the new one."),
    done("STORE-FAULT-SYMLINK", "A symlink where a directory should be is refused."),
    done("STORE-FAULT-JUNK", "Trailing junk is noticed and costs no acknowledged snapshot."),
    done("STORE-FAULT-SWAPPED", "Frames moved between sessions are noticed."),
    done("STORE-FAULT-20MB", "A tool output of 20 MB survives."),
    done("STORE-FAULT-100K", "100 000 messages survive."),
    done("STORE-FAULT-EMOJI", "Ids with emoji work."),
)

_VALUES = section(
    "snapshot_plugin/model: what a snapshot is",
    done("STORE-VALUE-FROZEN", "A snapshot cannot be changed, at any depth."),
    done("STORE-VALUE-UNKNOWN-FIELDS", "Unknown fields survive a round trip."),
    done("STORE-VALUE-UNKNOWN-BLOCKS", "Unknown block kinds survive a round trip."),
    done("STORE-VALUE-NAN", "NaN and infinities are refused with the path to them."),
    done("STORE-VALUE-SURROGATE", "Lone surrogates survive or are refused clearly."),
    done("STORE-VALUE-NAIVE", "A naive datetime has one stated outcome."),
    done("STORE-VALUE-MCP-SECRETS", "Environment and headers of MCP servers never get in."),
    done("STORE-VALUE-LINEAGE", "A session can be forked at any message and knows its parent."),
    done("STORE-VALUE-DIFF", "Two snapshots can be compared."),
    done("STORE-VALUE-REPAIR", "Orphaned tool calls are closed and torn tails dropped, each with a notice."),
    done("STORE-VALUE-REPAIR-PURE", "Repair never edits the snapshot it is given."),
    done("STORE-VALUE-REDACT", "Secret shapes are found, and reported by kind, never by value."),
    done(
        "STORE-VALUE-POLICY", "Retention keeps last, within, hourly, daily, weekly, monthly, tags, pins, the head."
    ),
    done("STORE-VALUE-POLICY-EMPTY", "An empty policy is refused."),
)

_MIGRATION = section(
    "docs/reference/migrations.md: Versions and migrations",
    done("STORE-MIGRATE-GAPS", "A chain with a gap, a double or a wrong order is refused."),
    done("STORE-MIGRATE-DRY-RUN", "A dry run names the steps and runs none."),
    done("STORE-MIGRATE-INPUT", "Migration never changes its input."),
    done("STORE-MIGRATE-GOLDEN", "Golden files of each version load for ever and are never edited."),
    done("STORE-MIGRATE-FOREIGN", "The published session files of two other tools load as version 0."),
    done("STORE-MIGRATE-NOTHING-LOST", "What a step does not know is kept, secrets excepted."),
)

_KEYS = section(
    "snapshot_plugin/codec/keys.py: keys",
    done("STORE-KEY-SOURCES", "A key comes from passphrase, key file, environment, command or keyring."),
    done("STORE-KEY-FIVE-ERRORS", "Wrong key, missing key, tampered, corrupt and too new are five errors."),
    done("STORE-KEY-CLOSED", "A key that cannot be had never turns encryption off."),
    done("STORE-KEY-REENCRYPT", "A store is re-encrypted under the new key on request."),
    done("STORE-KEY-FAST", "The fast compressor writes the same format."),
)

_PACKAGE = section(
    "snapshot_plugin/__init__.py, errors.py: the package",
    done("STORE-NAMES", "Every public name resolves, and its type checker twin agrees."),
    done("STORE-ERROR-TREE", "The error tree is the one drawn; each class has a code of its own."),
    done("STORE-EXIT-CODES", "Every exit code belongs to a known error code."),
    done("STORE-IMPORT-COST", "Importing the package costs under 0.2 s CPU and loads nothing heavy."),
    done("STORE-IMPORT-CORE", "Store and manager never import acp, mcp, textual or starlette."),
    done("STORE-PAGES-RUN", "The code of README, tutorial and how-to pages runs; framework pages run in CI."),
    done("STORE-SHARED-CHANGE", "A change of a session that others write, too, is made again on what they saved."),
    done("STORE-PAGES-LINKS", "Every relative link in the pages leads somewhere."),
)

STORE = (*_CONTRACT, *_VERBS, *_FAULTS, *_VALUES, *_MIGRATION, *_KEYS, *_PACKAGE)
