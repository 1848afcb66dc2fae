"""oneringai: a persistent session with one line."""

from __future__ import annotations

from tests.requirement_lists.requirement import differs, done, section

__all__ = ["ONERING"]

_PAGE = "oneringai-persistent-sessions.md: "

_GOALS = section(
    _PAGE + "Goals",
    done("ONERING-GOAL-FULL", "The whole context is kept: history, memory, plugins, tool state, permissions."),
    done("ONERING-GOAL-RECOVERY", "Where it is switched on, the last session is there again at the start."),
    done("ONERING-GOAL-BACKENDS", "Storage is an interface with room for other backends."),
    done("ONERING-GOAL-PLACE", "Everything of one agent is kept in one predictable place."),
    done("ONERING-GOAL-OPT-IN", "An agent that does not use it behaves as before."),
)

_PLACE = section(
    _PAGE + "Storage Location",
    done("ONERING-PLACE-PER-AGENT", "Each agent id has a place of its own."),
    done("ONERING-PLACE-SESSION", "The session's state is kept there."),
    done(
        "ONERING-PLACE-MEMORY",
        "Working-memory entries are a section of their own, apart from the session's other state.",
    ),
    done("ONERING-PLACE-PLUGINS", "Each plugin's state is kept by itself."),
    done("ONERING-PLACE-PLATFORM", "The default place follows the platform's own rules."),
)

_LAYERS = section(
    _PAGE + "Layer Diagram",
    done("ONERING-LAYER-ONE-WAY", "The domain knows nothing of files: layers depend in one direction."),
    done("ONERING-LAYER-ATOMIC", "A write happens whole or not at all."),
    done("ONERING-LAYER-LAZY", "A memory entry can be read alone when it is needed."),
    done("ONERING-LAYER-FLUSH", "Changed memory entries are written periodically."),
)

_STATE = section(
    _PAGE + "IAgentPersistenceStorage",
    done("ONERING-STATE-VERSION", "The state carries a format version."),
    done("ONERING-STATE-AGENT-ID", "The state names its agent."),
    done("ONERING-STATE-AGENT-TYPE", "The state names the type of agent, so that a load can be validated."),
    done("ONERING-STATE-CREATED", "The state knows when the session began."),
    done("ONERING-STATE-ACTIVE", "The state knows when the session was last active."),
    done("ONERING-STATE-CONTEXT", "The state holds the serialized context."),
    done("ONERING-STATE-MEMORY", "The state holds working memory where there is any, and does without."),
    done("ONERING-STATE-PLUGINS", "The state holds each plugin's state by name."),
    done("ONERING-STATE-METADATA", "The state holds the session's metadata."),
    done("ONERING-STATE-MEMORY-VERSION", "The memory document says its version."),
    done("ONERING-STATE-MEMORY-STATS", "How many memory entries there are, and how large, can be told."),
    done("ONERING-STORAGE-SAVE", "Storage saves the full state."),
    done("ONERING-STORAGE-LOAD", "Storage loads the full state, or says that there is none."),
    done("ONERING-STORAGE-EXISTS", "Storage tells whether there is a state, without loading it."),
    done("ONERING-STORAGE-DELETE", "Storage deletes all of an agent's state."),
    done("ONERING-STORAGE-PATH", "Storage tells where the state is, for people."),
    done("ONERING-STORAGE-MODIFIED", "Storage tells when the state last changed, or that there is none."),
)

_OPTIONS = section(
    _PAGE + "New Feature Flag, Configuration",
    done("ONERING-OPTION-OFF", "Persistence is off unless it is asked for."),
    done("ONERING-OPTION-STORE", "The store can be chosen; the default is files."),
    done("ONERING-OPTION-INTERVAL", "auto_save_interval: 30 seconds unless set."),
    done("ONERING-OPTION-INTERVAL-OFF", "auto_save_interval: zero (off) switches saving by itself off."),
    done("ONERING-OPTION-EXIT", "save_on_exit: on unless switched off."),
    done("ONERING-OPTION-ENTER", "load_on_enter: on unless switched off."),
    done("ONERING-OPTION-SHORT", "One word is enough to get everything with its defaults."),
    done("ONERING-OPTION-LONG", "Options can be given in place of that word."),
)

_USAGE = section(
    _PAGE + "Usage Examples",
    done("ONERING-USAGE-FIRST", "The first run starts empty and is saved without any further call."),
    done("ONERING-USAGE-SECOND", "The second run with the same agent id has the full context of the first."),
    done("ONERING-USAGE-ADVANCED", "Another interval is respected."),
    done("ONERING-USAGE-BACKEND", "A custom backend is used when given."),
    done("ONERING-USAGE-MANUAL", "With all automatic things off, load and save happen when called and only then."),
)

_FILES = section(
    _PAGE + "File Formats",
    done("ONERING-FILE-SYSTEM-PROMPT", "The system prompt is kept."),
    done("ONERING-FILE-INSTRUCTIONS", "The instructions are kept."),
    done("ONERING-FILE-HISTORY", "The history is kept."),
    done("ONERING-FILE-TOOL-CALLS", "Tool calls are kept, in their place in the history."),
    done("ONERING-FILE-TOOLS-ENABLED", "Which tools are enabled is kept."),
    done("ONERING-FILE-TOOLS-NAMESPACES", "Namespaces of tools are kept."),
    done("ONERING-FILE-TOOLS-PRIORITIES", "Priorities of tools are kept."),
    done("ONERING-FILE-APPROVALS", "Approvals are kept."),
    done("ONERING-FILE-BLOCKLIST", "The block list is kept."),
    done("ONERING-FILE-ALLOWLIST", "The allow list is kept."),
    done("ONERING-FILE-CONTEXT-PLUGINS", "Plugin state inside the context is kept."),
    done("ONERING-FILE-MODEL", "The model is kept."),
    done("ONERING-FILE-MAX-TOKENS", "The context window size is kept."),
    done("ONERING-FILE-STRATEGY", "The context strategy is kept."),
    done("ONERING-FILE-TITLE", "The title is kept."),
    done("ONERING-FILE-TAGS", "The tags are kept."),
    done(
        "ONERING-FILE-MEMORY-ENTRY",
        "A memory entry keeps key, description, value, scope, size, priority, pin, times.",
    ),
)

_MIGRATION = section(
    _PAGE + "Migration Support",
    done("ONERING-MIGRATE-V0", "A state from before versions is migrated."),
    done("ONERING-MIGRATE-V1", "A state of version 1 loads."),
    done("ONERING-MIGRATE-UNKNOWN", "A state of an unknown version is an error that names the version."),
)

_ERRORS = section(
    _PAGE + "Error Handling",
    done("ONERING-ERROR-MISSING", "A missing session is no error: the agent starts fresh."),
    done("ONERING-ERROR-CORRUPTED", "A corrupted session is said aloud and does not bring the agent down."),
    differs(
        "ONERING-ERROR-VERSION",
        "A version mismatch is migrated; if that fails the agent starts fresh.",
        "a newer version is an error: starting fresh would overwrite what the newer release saved",
    ),
    done("ONERING-ERROR-STORAGE", "A storage error reaches the caller with a clear message."),
)

_CONSIDERATIONS = section(
    _PAGE + "Considerations",
    done("ONERING-CARE-LAZY", "Opening a session with 100 MB of memory entries is fast."),
    done("ONERING-CARE-DEBOUNCE", "Not every change is a save."),
    done("ONERING-CARE-LOOP", "The event loop is never blocked."),
    done("ONERING-CARE-AGENT-ID", "An agent id is made safe for the file system."),
    done("ONERING-CARE-CREDENTIALS", "Credentials are not stored in a session."),
    done("ONERING-CARE-AUTH-APART", "Connector authentication is kept apart from sessions."),
    done("ONERING-CARE-ONE-WRITER", "One agent per agent id at a time."),
    done("ONERING-CARE-PROCESSES", "A second process is kept out by a lock."),
)

ONERING = (
    *_GOALS,
    *_PLACE,
    *_LAYERS,
    *_STATE,
    *_OPTIONS,
    *_USAGE,
    *_FILES,
    *_MIGRATION,
    *_ERRORS,
    *_CONSIDERATIONS,
)
