"""gasoline, technical specification: a memory of the project that the agent asks through MCP."""

from __future__ import annotations

from tests.requirement_lists.requirement import section, to_do

__all__ = ["GASOLINE"]

_PAGE = "gasoline-session-store-tech-spec.md: "

_STORAGE = section(
    _PAGE + "Project-Local Storage, Storage Layout",
    to_do("GASOLINE-PLACE-PROJECT", "The memory lives in the project's own directory, which is its identity."),
    to_do("GASOLINE-PLACE-GITIGNORE", "The directory is put into .gitignore on first use, if it is not there."),
    to_do("GASOLINE-PLACE-BY-HAND", "People can inspect, delete and back up the memory with common tools."),
    to_do("GASOLINE-PLACE-META", "Session metadata has a file of its own."),
    to_do("GASOLINE-PLACE-NAMESPACE", "Each namespace is a directory."),
    to_do("GASOLINE-PLACE-KEY", "Each key is one JSON file."),
    to_do("GASOLINE-SPACE-BASELINES", "There is a namespace for baselines."),
    to_do("GASOLINE-SPACE-NOISE", "There is a namespace for noise rules."),
    to_do("GASOLINE-SPACE-SCHEMA", "There is a namespace for API schemas."),
    to_do("GASOLINE-SPACE-ERRORS", "There is a namespace for error history."),
    to_do("GASOLINE-SPACE-PERFORMANCE", "There is a namespace for performance baselines."),
)

_LIFE = section(
    _PAGE + "Session Lifecycle, Background Flush, Server Integration",
    to_do("GASOLINE-LIFE-START", "At the start the metadata is read or made, and the session count goes up."),
    to_do("GASOLINE-LIFE-CONTEXT", "load_session_context reads all namespaces and applies what was configured."),
    to_do("GASOLINE-LIFE-SAVE", "A save during the session is on disk at once."),
    to_do("GASOLINE-LIFE-SHUTDOWN", "Shutdown writes what was not yet saved, and the final metadata."),
    to_do("GASOLINE-LIFE-SHUTDOWN-NOISE", "Shutdown writes the noise rules that hold."),
    to_do("GASOLINE-LIFE-SHUTDOWN-BASELINES", "Shutdown writes the baselines in memory."),
    to_do("GASOLINE-FLUSH-30S", "Buffered changes are flushed every 30 seconds."),
    to_do("GASOLINE-FLUSH-DIRTY", "Only namespaces with changes are flushed."),
    to_do("GASOLINE-FLUSH-EXIT", "The flush task ends cleanly at shutdown."),
)

_DATA = section(
    _PAGE + "Data Model",
    to_do("GASOLINE-META-PATH", "The metadata has the project path."),
    to_do("GASOLINE-META-CREATED", "The metadata knows when persistence began."),
    to_do("GASOLINE-META-LAST", "The metadata knows when the last session was."),
    to_do("GASOLINE-META-COUNT", "The metadata counts sessions."),
    to_do("GASOLINE-CONTEXT-PROJECT", "The context has project path and session count."),
    to_do("GASOLINE-CONTEXT-BASELINES", "The context has count and names of baselines."),
    to_do("GASOLINE-CONTEXT-SCHEMA", "The context has the number of known endpoints and the last update."),
    to_do("GASOLINE-CONTEXT-NOISE", "The context has noise rules: all, automatic, manual, entries filtered ever."),
    to_do("GASOLINE-CONTEXT-ERRORS", "The context has unresolved errors with fingerprint, times and occurrences."),
    to_do("GASOLINE-CONTEXT-RESOLVED", "The context has errors resolved within the last 7 days."),
    to_do("GASOLINE-CONTEXT-PERFORMANCE", "The context has tracked endpoints and those degraded since last time."),
    to_do("GASOLINE-ERROR-FINGERPRINT", "An error is known by its fingerprint."),
    to_do("GASOLINE-ERROR-SEEN", "An error knows when it was first and last seen."),
    to_do("GASOLINE-ERROR-COUNT", "An error counts its occurrences over sessions."),
    to_do("GASOLINE-ERROR-RESOLVED", "An error knows whether and when it was resolved."),
    to_do("GASOLINE-ERROR-CAP", "Error history holds at most 500 entries."),
    to_do("GASOLINE-ERROR-AGE", "Error entries older than 30 days go."),
)

_TOOLS = section(
    _PAGE + "Tool Interface",
    to_do("GASOLINE-TOOL-CONTEXT", "load_session_context takes no parameters and returns the whole context."),
    to_do("GASOLINE-TOOL-FRESH", "On a project never seen it returns session count 1 and empty namespaces."),
    to_do("GASOLINE-TOOL-ACTION", "session_store requires an action of save, load, list, delete, stats."),
    to_do("GASOLINE-TOOL-REQUIRED", "Namespace and key are required for save, load and delete."),
    to_do("GASOLINE-TOOL-SAVE", "save writes the data as JSON under namespace and key."),
    to_do("GASOLINE-TOOL-LOAD", "load returns it, or an error if it is not there."),
    to_do("GASOLINE-TOOL-LIST", "list returns the keys of a namespace without file endings."),
    to_do("GASOLINE-TOOL-DELETE", "delete removes the entry."),
    to_do("GASOLINE-TOOL-STATS", "stats returns total bytes, entries per namespace and session count."),
)

_LIMITS = section(
    _PAGE + "Size Limits",
    to_do("GASOLINE-LIMIT-ENTRY", "An entry over 1 MB is refused."),
    to_do("GASOLINE-LIMIT-PROJECT", "A project's memory is at most 10 MB."),
    to_do("GASOLINE-LIMIT-EVICT", "Stale errors go by themselves."),
)

_SECURITY = section(
    _PAGE + "Security and Privacy",
    to_do("GASOLINE-SECURITY-REDACT", "Auth headers and passwords never reach the disk."),
    to_do("GASOLINE-SECURITY-MODE", "Files and directories are for their owner (stricter here: 0600 and 0700)."),
    to_do("GASOLINE-SECURITY-VCS", "The memory never gets into version control by itself."),
    to_do("GASOLINE-SECURITY-SECOND", "A second instance on one project reads and does not write."),
)

_EDGES = section(
    _PAGE + "Edge Cases",
    to_do(
        "GASOLINE-EDGE-READ-ONLY", "On a read-only file system saves are errors and the server goes on in memory."
    ),
    to_do("GASOLINE-EDGE-CORRUPTED", "A file that is no JSON is skipped and the feature starts fresh."),
    to_do("GASOLINE-EDGE-MKDIR", "Missing directories are made on demand."),
    to_do("GASOLINE-EDGE-CONCURRENT", "Concurrent reads and writes do not disturb each other."),
    to_do("GASOLINE-EDGE-NOT-READY", "A context asked for before the store is ready is a specific error."),
)

_BUDGETS = section(
    _PAGE + "Performance Constraints",
    to_do("GASOLINE-PERF-OPEN", "Opening takes under 100 ms."),
    to_do("GASOLINE-PERF-CONTEXT", "Loading the context takes under 200 ms."),
    to_do("GASOLINE-PERF-SAVE", "One save takes under 50 ms."),
    to_do("GASOLINE-PERF-LOAD", "One load takes under 20 ms."),
    to_do("GASOLINE-PERF-SHUTDOWN", "Shutdown takes under 500 ms."),
    to_do("GASOLINE-PERF-FLUSH", "A periodic flush takes under 100 ms."),
    to_do("GASOLINE-PERF-MEMORY", "It costs under 1 MB of memory."),
)

_SCENARIOS = section(
    _PAGE + "Test Scenarios",
    to_do("GASOLINE-TEST-01", "The store appears in the working directory."),
    to_do("GASOLINE-TEST-02", "It is added to .gitignore unless it is there."),
    to_do("GASOLINE-TEST-03", "What was saved loads identically."),
    to_do("GASOLINE-TEST-04", "Loading a key that does not exist is an error."),
    to_do("GASOLINE-TEST-05", "list gives all keys without the file ending."),
    to_do("GASOLINE-TEST-06", "delete removes the file and a later load is an error."),
    to_do("GASOLINE-TEST-07", "stats gives the right sizes and counts."),
    to_do("GASOLINE-TEST-08", "Saving over 1 MB is an error."),
    to_do("GASOLINE-TEST-09", "After shutdown and restart the count is one higher and last_session newer."),
    to_do("GASOLINE-TEST-10", "A fresh store has session count 1 and no data."),
    to_do("GASOLINE-TEST-11", "With baselines, noise and errors stored, every summary is filled."),
    to_do("GASOLINE-TEST-12", "Loaded noise rules hold at once."),
    to_do("GASOLINE-TEST-13", "Concurrent reads and writes race for nothing and tear no file."),
    to_do("GASOLINE-TEST-14", "Shutdown flushes all that is dirty."),
    to_do("GASOLINE-TEST-15", "With a short flush interval data is on disk within it."),
    to_do("GASOLINE-TEST-16", "In a read-only directory saves are errors and the server goes on."),
    to_do("GASOLINE-TEST-17", "The 501st error evicts the oldest."),
    to_do("GASOLINE-TEST-18", "Errors older than 30 days go at cleanup."),
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
