"""gasoline, technical specification: a memory of the project that the agent asks through MCP."""

from __future__ import annotations

from tests.requirement_lists.requirement import done, section

__all__ = ["GASOLINE"]

_PAGE = "gasoline-session-store-tech-spec.md: "

_STORAGE = section(
    _PAGE + "Project-Local Storage, Storage Layout",
    done("GASOLINE-PLACE-PROJECT", "The memory lives in the project's own directory, which is its identity."),
    done("GASOLINE-PLACE-GITIGNORE", "The directory is put into .gitignore on first use, if it is not there."),
    done("GASOLINE-PLACE-BY-HAND", "People can inspect, delete and back up the memory with common tools."),
    done("GASOLINE-PLACE-META", "Session metadata has a file of its own."),
    done("GASOLINE-PLACE-NAMESPACE", "Each namespace is a directory."),
    done("GASOLINE-PLACE-KEY", "Each key is one JSON file."),
    done("GASOLINE-SPACE-BASELINES", "There is a namespace for baselines."),
    done("GASOLINE-SPACE-NOISE", "There is a namespace for noise rules."),
    done("GASOLINE-SPACE-SCHEMA", "There is a namespace for API schemas."),
    done("GASOLINE-SPACE-ERRORS", "There is a namespace for error history."),
    done("GASOLINE-SPACE-PERFORMANCE", "There is a namespace for performance baselines."),
)

_LIFE = section(
    _PAGE + "Session Lifecycle, Background Flush, Server Integration",
    done("GASOLINE-LIFE-START", "At the start the metadata is read or made, and the session count goes up."),
    done("GASOLINE-LIFE-CONTEXT", "load_session_context reads all namespaces and applies what was configured."),
    done("GASOLINE-LIFE-SAVE", "A save during the session is on disk at once."),
    done("GASOLINE-LIFE-SHUTDOWN", "Shutdown writes what was not yet saved, and the final metadata."),
    done("GASOLINE-LIFE-SHUTDOWN-NOISE", "Shutdown writes the noise rules that hold."),
    done("GASOLINE-LIFE-SHUTDOWN-BASELINES", "Shutdown writes the baselines in memory."),
    done("GASOLINE-FLUSH-30S", "Buffered changes are flushed every 30 seconds."),
    done("GASOLINE-FLUSH-DIRTY", "Only namespaces with changes are flushed."),
    done("GASOLINE-FLUSH-EXIT", "The flush task ends cleanly at shutdown."),
)

_DATA = section(
    _PAGE + "Data Model",
    done("GASOLINE-META-PATH", "The metadata has the project path."),
    done("GASOLINE-META-CREATED", "The metadata knows when persistence began."),
    done("GASOLINE-META-LAST", "The metadata knows when the last session was."),
    done("GASOLINE-META-COUNT", "The metadata counts sessions."),
    done("GASOLINE-CONTEXT-PROJECT", "The context has project path and session count."),
    done("GASOLINE-CONTEXT-BASELINES", "The context has count and names of baselines."),
    done("GASOLINE-CONTEXT-SCHEMA", "The context has the number of known endpoints and the last update."),
    done("GASOLINE-CONTEXT-NOISE", "The context has noise rules: all, automatic, manual, entries filtered ever."),
    done("GASOLINE-CONTEXT-ERRORS", "The context has unresolved errors with fingerprint, times and occurrences."),
    done("GASOLINE-CONTEXT-RESOLVED", "The context has errors resolved within the last 7 days."),
    done("GASOLINE-CONTEXT-PERFORMANCE", "The context has tracked endpoints and those degraded since last time."),
    done("GASOLINE-ERROR-FINGERPRINT", "An error is known by its fingerprint."),
    done("GASOLINE-ERROR-SEEN", "An error knows when it was first and last seen."),
    done("GASOLINE-ERROR-COUNT", "An error counts its occurrences over sessions."),
    done("GASOLINE-ERROR-RESOLVED", "An error knows whether and when it was resolved."),
    done("GASOLINE-ERROR-CAP", "Error history holds at most 500 entries."),
    done("GASOLINE-ERROR-AGE", "Error entries older than 30 days go."),
)

_TOOLS = section(
    _PAGE + "Tool Interface",
    done("GASOLINE-TOOL-CONTEXT", "load_session_context takes no parameters and returns the whole context."),
    done("GASOLINE-TOOL-FRESH", "On a project never seen it returns session count 1 and empty namespaces."),
    done("GASOLINE-TOOL-ACTION", "session_store requires an action of save, load, list, delete, stats."),
    done(
        "GASOLINE-TOOL-REQUIRED",
        "A key is required for save, load and delete (the namespace: see the product page).",
    ),
    done("GASOLINE-TOOL-SAVE", "save writes the data as JSON under namespace and key."),
    done("GASOLINE-TOOL-LOAD", "load returns it, or an error if it is not there."),
    done("GASOLINE-TOOL-LIST", "list returns the keys of a namespace without file endings."),
    done("GASOLINE-TOOL-DELETE", "delete removes the entry."),
    done("GASOLINE-TOOL-STATS", "stats returns total bytes, entries per namespace and session count."),
)

_LIMITS = section(
    _PAGE + "Size Limits",
    done("GASOLINE-LIMIT-ENTRY", "An entry over 1 MB is refused."),
    done("GASOLINE-LIMIT-PROJECT", "A project's memory is at most 10 MB."),
    done("GASOLINE-LIMIT-EVICT", "Stale errors go by themselves."),
)

_SECURITY = section(
    _PAGE + "Security and Privacy",
    done("GASOLINE-SECURITY-REDACT", "Auth headers and passwords never reach the disk."),
    done("GASOLINE-SECURITY-MODE", "Files and directories are for their owner (stricter here: 0600 and 0700)."),
    done("GASOLINE-SECURITY-VCS", "The memory never gets into version control by itself."),
    done(
        "GASOLINE-SECURITY-SECOND",
        "Several instances on one project write in turn, under a file lock; none is lost.",
    ),
)

_EDGES = section(
    _PAGE + "Edge Cases",
    done(
        "GASOLINE-EDGE-READ-ONLY", "On a read-only file system saves are errors and the server goes on in memory."
    ),
    done("GASOLINE-EDGE-CORRUPTED", "A file that is no JSON is skipped and the feature starts fresh."),
    done("GASOLINE-EDGE-MKDIR", "Missing directories are made on demand."),
    done("GASOLINE-EDGE-CONCURRENT", "Concurrent reads and writes do not disturb each other."),
    done("GASOLINE-EDGE-NOT-READY", "A context asked for before the store is ready is a specific error."),
)

_BUDGETS = section(
    _PAGE + "Performance Constraints",
    done("GASOLINE-PERF-OPEN", "Opening takes under 100 ms."),
    done("GASOLINE-PERF-CONTEXT", "Loading the context takes under 200 ms."),
    done("GASOLINE-PERF-SAVE", "One save takes under 50 ms."),
    done("GASOLINE-PERF-LOAD", "One load takes under 20 ms."),
    done("GASOLINE-PERF-SHUTDOWN", "Shutdown takes under 500 ms."),
    done("GASOLINE-PERF-FLUSH", "A periodic flush takes under 100 ms."),
    done("GASOLINE-PERF-MEMORY", "It costs under 1 MB of memory."),
)

_SCENARIOS = section(
    _PAGE + "Test Scenarios",
    done("GASOLINE-TEST-01", "The store appears in the working directory."),
    done("GASOLINE-TEST-02", "It is added to .gitignore unless it is there."),
    done("GASOLINE-TEST-03", "What was saved loads identically."),
    done("GASOLINE-TEST-04", "Loading a key that does not exist is an error."),
    done("GASOLINE-TEST-05", "list gives all keys without the file ending."),
    done("GASOLINE-TEST-06", "delete removes the file and a later load is an error."),
    done("GASOLINE-TEST-07", "stats gives the right sizes and counts."),
    done("GASOLINE-TEST-08", "Saving over 1 MB is an error."),
    done("GASOLINE-TEST-09", "After shutdown and restart the count is one higher and last_session newer."),
    done("GASOLINE-TEST-10", "A fresh store has session count 1 and no data."),
    done("GASOLINE-TEST-11", "With baselines, noise and errors stored, every summary is filled."),
    done("GASOLINE-TEST-12", "Loaded noise rules hold at once."),
    done("GASOLINE-TEST-13", "Concurrent reads and writes race for nothing and tear no file."),
    done("GASOLINE-TEST-14", "Shutdown flushes all that is dirty."),
    done("GASOLINE-TEST-15", "With a short flush interval data is on disk within it."),
    done("GASOLINE-TEST-16", "In a read-only directory saves are errors and the server goes on."),
    done("GASOLINE-TEST-17", "The 501st error evicts the oldest."),
    done("GASOLINE-TEST-18", "Errors older than 30 days go at cleanup."),
)

GASOLINE = (
    *_STORAGE,
    *_LIFE,
    *_DATA,
    *_TOOLS,
    *_LIMITS,
    *_SECURITY,
    *_EDGES,
    *_BUDGETS,
    *_SCENARIOS,
)
