"""gasoline, product specification: why a project needs a memory, and what it remembers."""

from __future__ import annotations

from tests.requirement_lists.requirement import done, section

__all__ = ["GASOLINE_PRODUCT"]

_PAGE = "gasoline-session-store-product-spec.md: "

_PROBLEM = section(
    _PAGE + "Justification",
    done("GASOLINE-P-KEEP-NETWORK", "What was learned of the network outlives a restart."),
    done("GASOLINE-P-KEEP-NOISE", "Noise rules outlive a restart."),
    done("GASOLINE-P-KEEP-BASELINES", "Baselines outlive a restart."),
    done("GASOLINE-P-KEEP-SCHEMA", "Inferred API schemas outlive a restart."),
    done("GASOLINE-P-KEEP-ERRORS", "Errors and how they were resolved outlive a restart."),
)

_TOOLS = section(
    _PAGE + "MCP Tool Interface",
    done("GASOLINE-P-TOOL-ACTIONS", "session_store knows save, load, list, delete and stats."),
    done("GASOLINE-P-TOOL-KEY", "A key is required for save, load and delete."),
    done("GASOLINE-P-TOOL-DATA", "Data is required for save."),
    done("GASOLINE-P-TOOL-NAMESPACE", 'Keys are grouped by namespace; "default" is used where none is given.'),
    done("GASOLINE-P-TOOL-CONTEXT", "load_session_context gives everything in one call, without parameters."),
    done("GASOLINE-P-CONTEXT-PROJECT", "The context names the project."),
    done("GASOLINE-P-CONTEXT-LAST", "The context says when the last session was."),
    done("GASOLINE-P-CONTEXT-COUNT", "The context counts sessions."),
    done("GASOLINE-P-CONTEXT-BASELINES", "The context has baselines: count, names, last validated."),
    done("GASOLINE-P-CONTEXT-SCHEMA", "The context has the schema: endpoints known, last update, coverage."),
    done("GASOLINE-P-CONTEXT-NOISE", "The context has noise: rules, automatic, manual, entries filtered ever."),
    done("GASOLINE-P-CONTEXT-ERRORS", "The context has unresolved and recently resolved errors."),
    done("GASOLINE-P-CONTEXT-PERFORMANCE", "The context has endpoints tracked and degraded."),
)

_STORAGE = section(
    _PAGE + "Implementation",
    done("GASOLINE-P-PLACE-PROJECT", "Each project's memory is apart from every other's."),
    done("GASOLINE-P-PLACE-GLOBAL", "There is a place for settings that hold for all projects."),
    done("GASOLINE-P-PLACE-IDENTITY", "A project is known by its directory."),
    done("GASOLINE-P-DATA-BASELINES", "Baselines are updated per feature."),
    done("GASOLINE-P-DATA-NOISE", "Noise rules are updated per session."),
    done("GASOLINE-P-DATA-SCHEMA", "The schema is updated per new endpoint."),
    done("GASOLINE-P-DATA-ERRORS", "Error history is updated per occurrence."),
    done("GASOLINE-P-DATA-PERFORMANCE", "Performance averages are updated per session."),
    done("GASOLINE-P-DATA-META", "Session count, times and project info are updated per session."),
    done("GASOLINE-P-WRITE-THROUGH", "Baselines are written at once."),
    done("GASOLINE-P-WRITE-NOISE", "Changed noise rules are written at once."),
    done("GASOLINE-P-WRITE-BUFFERED", "Errors and performance are buffered and flushed every 30 seconds."),
    done("GASOLINE-P-WRITE-SCHEMA", "Schema updates go with the 30 second flush."),
    done("GASOLINE-P-WRITE-SHUTDOWN", "Shutdown and SIGTERM flush everything that is dirty."),
    done("GASOLINE-P-BOOT-PROJECT", "At the start the project is found."),
    done("GASOLINE-P-BOOT-NOISE", "At the start noise rules hold at once."),
    done("GASOLINE-P-BOOT-SCHEMA", "At the start the schema is there at once."),
    done("GASOLINE-P-BOOT-BASELINES", "At the start baselines can be compared with at once."),
    done("GASOLINE-P-BOOT-ERRORS", "At the start error history can be matched against."),
    done("GASOLINE-P-BOOT-LOG", "At the start it says what was loaded."),
)

_SIZE = section(
    _PAGE + "Size Management",
    done("GASOLINE-P-LIMIT-PROJECT", "At most 10 MB per project."),
    done("GASOLINE-P-LIMIT-BASELINES", "At most 50 baselines per project."),
    done("GASOLINE-P-LIMIT-ERRORS", "At most 500 error entries."),
    done("GASOLINE-P-LIMIT-ENDPOINTS", "At most 200 endpoints in the schema."),
    done("GASOLINE-P-LIMIT-GLOBAL", "At most 100 MB over all projects."),
    done("GASOLINE-P-EVICT-BASELINES", "The least recently compared baseline goes first."),
    done("GASOLINE-P-EVICT-ERRORS", "The oldest error goes first."),
    done("GASOLINE-P-EVICT-SCHEMA", "Endpoints seen rarely are merged."),
    done("GASOLINE-P-EVICT-PERFORMANCE", "Performance data is kept for 30 days."),
    done("GASOLINE-P-STATS-TOTAL", "stats has the project and its total size."),
    done("GASOLINE-P-STATS-SPACES", "stats has size and entries of each namespace."),
    done("GASOLINE-P-STATS-OLDEST", "stats has the age of the oldest data and the number of sessions."),
)

_PROOF = section(
    _PAGE + "Proving Improvements",
    done("GASOLINE-P-PROOF-BOOT", "A session has its context in under 5 seconds."),
    done("GASOLINE-P-PROOF-NOISE", "From the second session on, known noise is filtered beforehand."),
    done("GASOLINE-P-PROOF-BASELINES", "Baselines are available when a session starts."),
    done("GASOLINE-P-PROOF-SCHEMA", "Known endpoints are available when a session starts."),
    done("GASOLINE-P-PROOF-GROWS", "What is stored grows with each session."),
    done("GASOLINE-P-PROOF-BOOTSTRAP", "Sessions after the first need 80 % less to get started."),
    done("GASOLINE-P-PROOF-REGRESSION", "A regression of what an earlier session built is found in the next."),
)

_PRIVACY = section(
    _PAGE + "Privacy & Security",
    done("GASOLINE-P-PRIVACY-SHAPES", "Baselines hold the shapes of responses, not their values."),
    done("GASOLINE-P-PRIVACY-LOCAL", "Nothing leaves the machine."),
    done("GASOLINE-P-PRIVACY-USERS", "Other users of the machine cannot read it."),
    done("GASOLINE-P-PRIVACY-PROJECTS", "Nothing leaks from one project into another."),
    done("GASOLINE-P-PRIVACY-CLEAR", "All data of a project can be deleted at once."),
)

_EDGES = section(
    _PAGE + "Edge Cases",
    done("GASOLINE-P-EDGE-MOVED", "A project that was moved: its data is not mixed with another's."),
    done("GASOLINE-P-EDGE-SEVERAL", "Several projects on one machine are independent."),
    done("GASOLINE-P-EDGE-FULL", "On a full disk failures are logged and it goes on in memory."),
    done("GASOLINE-P-EDGE-CORRUPTED", "A corrupted file is skipped with a warning; the rest is used."),
    done("GASOLINE-P-EDGE-SCHEMA", "A very large schema is cut to the 200 endpoints seen most."),
    done("GASOLINE-P-EDGE-CRASH", "A crash costs at most 30 seconds of buffered data."),
    done(
        "GASOLINE-P-EDGE-LOCK",
        "With two instances a file lock lets one write at a time; one that cannot get it says read-only.",
    ),
)

GASOLINE_PRODUCT = (*_PROBLEM, *_TOOLS, *_STORAGE, *_SIZE, *_PROOF, *_PRIVACY, *_EDGES)
