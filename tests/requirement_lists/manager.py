"""The manager: what it promises to authors of orchestrators."""

from __future__ import annotations

from tests.requirement_lists.requirement import done, section

__all__ = ["MANAGER"]

_AUTO = section(
    "snapshot_plugin/manager: auto-snapshot",
    done("MANAGER-AUTO-UNCHANGED", "An unchanged session writes nothing."),
    done("MANAGER-AUTO-DEBOUNCE", "Significant events are debounced, and a stream of them starves no save."),
    done("MANAGER-AUTO-COALESCE", "A save asked for while one is under way is coalesced."),
    done("MANAGER-AUTO-LOOP", "Saves never block the event loop."),
    done("MANAGER-AUTO-LOCKED", "A session whose save waits for a lock does not delay the saves of others."),
    done("MANAGER-AUTO-NEVER-RAISES", "A failed save never raises into the agent."),
    done("MANAGER-AUTO-BACKOFF", "A failed save is tried again with growing pauses."),
    done("MANAGER-AUTO-CATCH-UP", "After a full or read-only disk the next good save catches up."),
    done("MANAGER-AUTO-EXIT", "Closing saves every live session, in bounded time."),
    done("MANAGER-AUTO-SIGNAL", "SIGTERM saves every live session before the process ends, in bounded time."),
    done("MANAGER-AUTO-SIGNAL-REFUSES", "From the signal on, new sessions are refused, and all others are saved."),
    done("MANAGER-AUTO-EXIT-STATUS", "If SIGTERM ends a process with unsaved sessions, its exit status says so."),
    done("MANAGER-AUTO-EXIT-MANY", "The last saves of many sessions get more time, and more run at once."),
    done("MANAGER-AUTO-BACKENDS", "The manager works on asyncio and on trio."),
    done("MANAGER-AUTO-RETENTION", "History is trimmed to what the settings keep; tagged snapshots stay."),
)

_INPUT = section(
    "snapshot_plugin/manager: bad input and faults",
    done("MANAGER-FAULT-RAISES", "A session whose snapshot method raises fails alone."),
    done("MANAGER-FAULT-HANGS", "A session whose snapshot method hangs is given up after a bounded time."),
    done("MANAGER-FAULT-OTHER-ID", "A session that gives another session's snapshot is refused."),
    done("MANAGER-FAULT-INTERVAL", "An interval of zero or less is refused."),
    done("MANAGER-FAULT-STOP-UNKNOWN", "Stopping what was never started has a stated outcome."),
    done("MANAGER-FAULT-START-TWICE", "Starting twice has a stated outcome."),
    done("MANAGER-FAULT-CANCEL", "Cancellation during the last save leaves the old or the new snapshot."),
    done("MANAGER-FAULT-SIGNAL-SAVE", "SIGTERM during a save loses nothing."),
    done("MANAGER-FAULT-TWO-MANAGERS", "Two managers on one session: the second is told who has it."),
    done("MANAGER-FAULT-SUBSCRIBER", "A subscriber that raises or hangs harms nobody."),
    done("MANAGER-FAULT-CLOCK", "A clock that jumps disturbs no schedule."),
    done("MANAGER-FAULT-FLAKY", "A store that fails every other call ends with everything saved."),
)

_RESUME = section(
    "snapshot_plugin/manager: provider hooks and resume",
    done("MANAGER-RESUME-ATTACH", "A started session is attached, a stopped one saved if so configured."),
    done("MANAGER-RESUME-REPORT", "Create-or-resume reports what it did; a fallback is never silent."),
    done("MANAGER-RESUME-DEMAND", "AgentNoLoadSupport is raised only where the caller demanded a load."),
    done("MANAGER-RESUME-FRESH", "A missing snapshot starts fresh."),
    done("MANAGER-RESUME-CORRUPT", "A corrupt newest snapshot falls back and says what was skipped."),
    done("MANAGER-RESUME-MIGRATED", "A snapshot of an older version is migrated."),
    done("MANAGER-RESUME-CONTEXT", "A provider that can only be told the past is told it."),
    done("MANAGER-FORK", "A session can be forked at any message."),
    done("MANAGER-LIST", "The manager lists sessions."),
    done("MANAGER-ADAPT", "Any object takes part through at most one function."),
)

_CONFIG = section(
    "snapshot_plugin/manager/config.py: SnapshotConfig",
    done(
        "MANAGER-CONFIG-LAYERS",
        "Settings come from code, environment, project file, user file, defaults, in that order.",
    ),
    done("MANAGER-CONFIG-ORIGIN", "Where each value came from is known."),
    done("MANAGER-CONFIG-REFUSED", "A value that cannot be meant is refused with its name and origin."),
    done("MANAGER-CONFIG-UNKNOWN", "An unknown setting is said and not taken."),
)

_SPOOL = section(
    "docs/reference/spool.md: The spool file",
    done("MANAGER-SPOOL-KILL", "An appended record survives kill -9 of every process."),
    done(
        "MANAGER-SPOOL-STALL", "A database that does not answer stops no event loop, and nothing is acknowledged."
    ),
    done("MANAGER-SPOOL-ORDER", "Records are spooled in the order of the calls."),
    done("MANAGER-SPOOL-POWER", "A flush makes records safe from a power cut."),
    done("MANAGER-SPOOL-FULL", "A full disk refuses a record, says so, and harms none before or after."),
    done("MANAGER-SPOOL-TORN", "A torn last record, which was never acknowledged, is dropped."),
    done("MANAGER-SPOOL-DAMAGE", "What precedes damage is kept; nothing behind it is believed."),
    done("MANAGER-SPOOL-SEALED", "In an encrypted store records are sealed, and a plain spool is refused."),
    done("MANAGER-SPOOL-BOUND", "A record opens in its own session and under its own number only."),
    done("MANAGER-SPOOL-NUMBERS", "Numbers never go back."),
    done("MANAGER-SPOOL-TRUNCATE", "Dropping records leaves the old or the new content, whatever kills it."),
    done("MANAGER-SPOOL-VERSION", "A spool of a newer version is refused and left alone."),
    done("MANAGER-SPOOL-ASIDE", "What could not be recovered is put aside, never thrown away."),
)

_RECOVERY = section(
    "snapshot_plugin/manager: recovery, lease, control socket",
    done("MANAGER-RECOVER-SPOOL", "recover turns a spool beyond the head into a recovered snapshot."),
    done("MANAGER-RECOVER-IDEMPOTENT", "Recovering twice, or being killed in between, gives the same result."),
    done("MANAGER-RECOVER-REST", "A session that cannot be recovered is reported and the rest goes on."),
    done("MANAGER-RECOVER-LIVE", "A session with a live owner is left alone."),
    done("MANAGER-RECOVER-NO-STOP", "A session that ended without a proper stop is reported."),
    done("MANAGER-LEASE-ONE", "A live session has one owner; a second one is told who and since when."),
    done("MANAGER-LEASE-KILL", "kill -9 frees the lease."),
    done(
        "MANAGER-LEASE-EXPIRES",
        "A node without its database pauses its agent, and shows nothing more, before another node can take over.",
    ),
    done("MANAGER-LEASE-ROLLBACK", "After a rollback of the database a session has one owner, who saves it again."),
    done("MANAGER-LEASE-FROZEN", "An owner that freezes in mid-save loses the session when its lease ends."),
    done("MANAGER-RECOVER-LOCKED", "Recovery names the sessions that it could not lock."),
    done("MANAGER-CONTROL-ASK", "A session owned by another process is saved by asking its owner."),
    done("MANAGER-CONTROL-SILENT", "An owner that does not answer is reported as not reachable, in bounded time."),
)

_DEPLOY = section(
    "snapshot_plugin/manager/manager.py: snapshot_all",
    done("MANAGER-ALL-EACH", "snapshot_all reports each live session, with the tag on its snapshot."),
    done("MANAGER-ALL-TIMEOUT", "snapshot_all ends within its timeout and names what was not saved."),
    done("MANAGER-ALL-KILLED", "A process that is killed while it asks other nodes does not block the next one."),
    done("MANAGER-ALL-MANY", "Hundreds of sessions on other nodes are asked for at once."),
)

_EVENTS = section(
    "snapshot_plugin/manager/events.py, telemetry.py",
    done("MANAGER-EVENT-SKIPPED", "A save that was not needed is an event."),
    done("MANAGER-EVENT-RECOVERED", "A recovery is an event."),
    done("MANAGER-EVENT-ASYNC", "Subscribers may be plain or async; async ones get events in order."),
    done("MANAGER-METRIC-PYTHON", "Counters and distributions can be read from Python."),
    done("MANAGER-METRIC-OTEL", "OpenTelemetry gets the same numbers when it is installed."),
)

_ONE_LINE = section(
    "snapshot_plugin/manager: persistent_session",
    done("MANAGER-PERSIST-PLUGIN", "A plugin that fails to restore is reported and the rest goes on."),
    done("MANAGER-PERSIST-LAZY", "A memory entry can be read alone."),
    done("MANAGER-PERSIST-ENTRY", "A memory entry that did not change is not written again."),
    done("MANAGER-PERSIST-OLD-MEMORY", "Memory that 0.2 stored in a session of its own moves with the next save."),
)

_PAGES = section(
    "docs/how-to: pages",
    done("MANAGER-PAGE-ORCHESTRATOR", "The page on orchestrators runs."),
    done("MANAGER-PAGE-DEPLOY", "The page on snapshots before a deploy runs."),
    done("MANAGER-PAGE-RECOVER", "The page on recovery after a crash runs."),
    done("MANAGER-EXAMPLE", "Three scripted sessions are killed and all resume with nothing lost."),
)

MANAGER = (
    *_AUTO,
    *_INPUT,
    *_RESUME,
    *_CONFIG,
    *_SPOOL,
    *_RECOVERY,
    *_DEPLOY,
    *_EVENTS,
    *_ONE_LINE,
    *_PAGES,
)
