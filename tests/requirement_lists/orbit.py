"""orbitmesh: sessions of ACP agents that outlive restarts and crashes."""

from __future__ import annotations

from tests.requirement_lists.requirement import done, section, to_do

__all__ = ["ORBIT"]

_PAGE = "orbitmesh-acp-session-persistence.md: "

_USE = section(
    _PAGE + "Use Cases",
    done("ORBIT-USE-LONG", "A project that takes days keeps its conversation over any number of restarts."),
    done("ORBIT-USE-RESTART", "Sessions come back after the orchestrator was restarted."),
    done("ORBIT-USE-CRASH", "Sessions come back after the orchestrator was killed."),
    done("ORBIT-USE-AGENT-CRASH", "Sessions come back after the agent was killed."),
    done("ORBIT-USE-LITTLE-LOST", "A crash costs as little work as possible: nothing that was seen."),
    done("ORBIT-USE-DEPLOY", "All sessions can be saved before a deployment, and each is reported."),
    done("ORBIT-USE-UPDATE", "Sessions saved by an older release resume after the update."),
    done("ORBIT-USE-NO-LOSS", "A planned restart loses no session."),
)

_MODEL = section(
    _PAGE + "Data Model",
    done("ORBIT-MODEL-ID", "A snapshot carries the session's own id."),
    done("ORBIT-MODEL-PROVIDER", "A snapshot says which kind of provider ran it."),
    done("ORBIT-MODEL-CREATED", "A snapshot knows when its session began."),
    done("ORBIT-MODEL-UPDATED", "A snapshot knows when its session last changed."),
    done("ORBIT-MODEL-VERSION", "A snapshot carries its schema version."),
    done("ORBIT-MODEL-CONFIG", "A snapshot carries the configuration of the session."),
    done("ORBIT-MODEL-AGENT-ID", "A snapshot carries the id the agent itself gave the session."),
    done("ORBIT-MODEL-MESSAGES", "A snapshot carries the whole conversation, in order."),
    done("ORBIT-MODEL-TASK", "A snapshot carries the current task."),
    done("ORBIT-MODEL-METRICS", "A snapshot carries the metrics of the session."),
    done("ORBIT-MODEL-METADATA", "A snapshot carries free metadata: tool state, files touched, anything."),
    done("ORBIT-MODEL-ROLE", "A message says who spoke."),
    done("ORBIT-MODEL-BLOCKS", "A message is a list of typed content blocks."),
    done("ORBIT-MODEL-TIME", "A message carries its time."),
)

_STORE = section(
    _PAGE + "Phase 1: Snapshot Storage",
    done("ORBIT-STORE-SAVE", "A store saves a snapshot."),
    done("ORBIT-STORE-LOAD", "A store loads a snapshot by session id."),
    done("ORBIT-STORE-DELETE", "A store deletes a session."),
    done("ORBIT-STORE-LIST", "A store lists what it has."),
    done("ORBIT-STORE-FILES", "There is a store that keeps plain files under a directory of the caller's choice."),
    done("ORBIT-STORE-SWAP", "The store is an interface: another backend can take its place."),
    done("ORBIT-STORE-INDEX", "Listing does not read whole conversations."),
    done("ORBIT-STORE-READABLE", "What is on disk is JSON that a person can read with common tools."),
    done("ORBIT-STORE-GZIP", "Snapshots are compressed with gzip."),
    done("ORBIT-STORE-VERSIONED", "Stored data says its schema version, so that it can be migrated."),
)

_MANAGER = section(
    _PAGE + "Phase 2: Snapshot Manager",
    done("ORBIT-MANAGER-SNAPSHOT", "The manager saves a session on request."),
    done("ORBIT-MANAGER-START", "The manager saves a session by itself at an interval, in the background."),
    done("ORBIT-MANAGER-STOP", "Saving by itself can be stopped for one session by its id."),
    done("ORBIT-MANAGER-RESTORE", "The manager gives back the snapshot of a session."),
    done("ORBIT-MANAGER-CONCURRENT", "The manager may be used for many sessions at once."),
)

_PROVIDER = section(
    _PAGE + "Phase 3: ACP Provider Integration",
    done("ORBIT-ACP-SNAPSHOTTABLE", "A session takes part by giving its own snapshot, and by nothing else."),
    done("ORBIT-ACP-USER-MESSAGE", "What the user sends is tracked as a user message with its time."),
    done("ORBIT-ACP-ANSWER", "What the agent answers is tracked as an assistant message with its time."),
    done("ORBIT-ACP-EVENT", "A significant event leads to a snapshot without waiting for the interval."),
    done("ORBIT-ACP-BACKGROUND", "Taking a snapshot never holds up what the user sent."),
    done("ORBIT-ACP-LOAD", "A session is rebuilt from its snapshot: configuration, history, task, metrics."),
    done("ORBIT-ACP-LOAD-ERROR", "Rebuilding a session that has no snapshot is an error for who asked."),
    done("ORBIT-ACP-RESUME", "On resume the agent is asked to load the session by the agent's own id."),
)

_FACTORY = section(
    _PAGE + "Phase 4: Provider Factory Integration",
    done("ORBIT-FACTORY-RESUMABLE", "A provider that can load sessions says so by its interface."),
    done("ORBIT-FACTORY-RESUME", "Create-or-resume resumes when there is a snapshot and the provider can."),
    done("ORBIT-FACTORY-CREATE", "Create-or-resume creates a session when there is no snapshot."),
    done("ORBIT-FACTORY-FALLBACK", "Create-or-resume creates a session when the provider cannot resume."),
)

_CONFIG = section(
    _PAGE + "Phase 5: Auto-Snapshot Configuration",
    done("ORBIT-CONFIG-ENABLE", "enable_persistence: on with a store, a path or settings; off with none of them."),
    done("ORBIT-CONFIG-INTERVAL", "snapshot_interval: five minutes unless set."),
    done("ORBIT-CONFIG-EXIT", "snapshot_on_exit: on unless switched off."),
    done("ORBIT-CONFIG-PATH", "storage_path: a place of the user's own unless set."),
    done("ORBIT-CONFIG-MAX", "max_snapshots_per_session: the last ten are kept unless set."),
    done("ORBIT-CONFIG-STARTS", "A started session is saved by itself if persistence is on, else not."),
    done("ORBIT-CONFIG-STOPS", "A stopped session is saved once more, and no longer by itself."),
)

_PROTOCOL = section(
    _PAGE + "ACP Protocol Considerations",
    done("ORBIT-PROTOCOL-CAPABILITY", "Whether the agent can load is read from what it advertises at initialize."),
    done("ORBIT-PROTOCOL-FALLBACK", "An agent that cannot load gets a new session instead of an error."),
    done("ORBIT-PROTOCOL-WARNING", "It is said aloud when persistence was asked for and the agent cannot load."),
    to_do(
        "ORBIT-PROTOCOL-PEER",
        "It is tested against a published agent whose load support is unknown beforehand.",
        "only .ci/run installs a published agent; under the README's command the test is skipped",
    ),
)

_ERRORS = section(
    _PAGE + "Error Handling",
    done("ORBIT-ERROR-NOT-FOUND", "A snapshot that is not there has an error of its own."),
    done("ORBIT-ERROR-VERSION", "A snapshot of an incompatible version has an error of its own."),
    done("ORBIT-ERROR-NO-LOAD", "An agent that cannot load sessions has an error of its own."),
    done("ORBIT-ERROR-CORRUPTED", "A corrupted snapshot has an error of its own."),
)

_TESTING = section(
    _PAGE + "Testing",
    done("ORBIT-TEST-SERIAL", "What is serialized deserializes to the same value."),
    done("ORBIT-TEST-STORAGE", "Save, load and delete are tested together."),
    done("ORBIT-TEST-VERSIONS", "Each released version is tested to load."),
    done("ORBIT-TEST-ROUND-TRIP", "Create, snapshot, restore: the same session comes back."),
    done("ORBIT-TEST-INTERVAL", "Saving at an interval is tested."),
    done("ORBIT-TEST-CRASH", "Recovery after a crash is tested."),
    done("ORBIT-TEST-COMPATIBILITY", "Agents with and without load support are tested."),
)

_SECURITY = section(
    _PAGE + "Security & Privacy",
    done("ORBIT-SECURITY-0600", "Files can be read and written by their owner only."),
    done("ORBIT-SECURITY-ENVIRONMENT", "Values of environment variables never get into a snapshot."),
    done("ORBIT-SECURITY-ENCRYPT", "Snapshots can be encrypted at rest."),
    done("ORBIT-SECURITY-USER-KEY", "The key can be one the user provides."),
    done("ORBIT-SECURITY-KEYCHAIN", "The key can come from the system's keychain."),
    done("ORBIT-SECURITY-RETENTION", "Old snapshots go by themselves."),
    done("ORBIT-SECURITY-PERIOD", "How long snapshots are kept can be configured."),
)

_MIGRATION = section(
    _PAGE + "Migration & Compatibility",
    done("ORBIT-MIGRATE-OLD", "A document of an older version is migrated when it is read."),
    done("ORBIT-MIGRATE-CURRENT", "A document of the current version is read as it is."),
    done("ORBIT-MIGRATE-UNKNOWN", "A document of an unknown version is refused."),
)

_WATCH = section(
    _PAGE + "Monitoring & Observability",
    done("ORBIT-EVENT-CREATED", "snapshot_created tells the session and the size."),
    done("ORBIT-EVENT-RESTORED", "session_restored tells the session and how old the snapshot was."),
    done("ORBIT-EVENT-FAILED", "snapshot_failed tells that a save failed, with an error code."),
    done("ORBIT-METRIC-SAVES", "How many saves succeeded and failed is counted."),
    done("ORBIT-METRIC-SIZE", "The sizes of snapshots are kept as a distribution."),
    done("ORBIT-METRIC-RESTORES", "How many restores succeeded and failed is counted."),
    done("ORBIT-METRIC-SAVE-TIME", "How long saves take is kept as a distribution."),
    done("ORBIT-METRIC-RESTORE-TIME", "How long restores take is kept as a distribution."),
)

_FUTURE = section(
    _PAGE + "Success Criteria, Future Enhancements",
    done("ORBIT-SUCCESS-STATE", "Metrics and state are the same after a restore."),
    done("ORBIT-SUCCESS-SHUTDOWN", "A graceful shutdown leaves a snapshot of every session."),
    done("ORBIT-FUTURE-CLOUD", "Snapshots can be kept in an object store and used from several machines."),
    done("ORBIT-FUTURE-DELTA", "A save writes only what changed."),
    to_do(
        "ORBIT-FUTURE-BROWSER",
        "Snapshots are browsed and managed in a browser and on the command line.",
        "only .ci/run drives a browser (integration.ui); under the README's command the server, its API and the "
        "command line are tested",
    ),
    done("ORBIT-FUTURE-CROSS", "A session of one kind of provider can go on in another."),
)

ORBIT = (
    *_USE,
    *_MODEL,
    *_STORE,
    *_MANAGER,
    *_PROVIDER,
    *_FACTORY,
    *_CONFIG,
    *_PROTOCOL,
    *_ERRORS,
    *_TESTING,
    *_SECURITY,
    *_MIGRATION,
    *_WATCH,
    *_FUTURE,
)
