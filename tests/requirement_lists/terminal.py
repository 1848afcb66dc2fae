"""openagent-terminal: history that people list, load, export and search."""

from __future__ import annotations

from tests.requirement_lists.requirement import done, section, to_do

__all__ = ["TERMINAL"]

_PAGE = "openagent-terminal-session-persistence.md: "

_OVERVIEW = section(
    _PAGE + "Overview",
    done("TERMINAL-USE-CONTINUE", "A previous conversation can be continued."),
    done("TERMINAL-USE-REVIEW", "Past interactions can be reviewed."),
    done("TERMINAL-USE-EXPORT", "Conversations can be exported to Markdown."),
    done("TERMINAL-USE-TOKENS", "Token usage over time can be analysed."),
    done("TERMINAL-USE-CONTEXT", "Context builds up over sessions."),
)

_COMPONENTS = section(
    _PAGE + "Architecture: Components",
    done("TERMINAL-UI-LIST", "The interface shows the list of sessions."),
    done("TERMINAL-UI-RESTORED", "The interface says that a session was restored."),
    done("TERMINAL-UI-SWITCH", "The interface switches between sessions."),
    done("TERMINAL-UI-METADATA", "A front end knows the current session and its metadata."),
)

_MODEL = section(
    _PAGE + "Session Model (Python)",
    done("TERMINAL-ROLE-USER", "A message can be the user's."),
    done("TERMINAL-ROLE-ASSISTANT", "A message can be the assistant's."),
    done("TERMINAL-ROLE-SYSTEM", "A message can be the system's."),
    done("TERMINAL-ROLE-TOOL", "A message can be a tool's."),
    done("TERMINAL-ROLE-UNKNOWN", "An unknown role is refused."),
    done("TERMINAL-MESSAGE-CONTENT", "A message has content; plain text is enough."),
    done("TERMINAL-MESSAGE-TIME", "A message has a timestamp, written in ISO form."),
    done("TERMINAL-MESSAGE-TOKENS", "A message may have a token count."),
    done("TERMINAL-MESSAGE-TOOL-CALLS", "A message may have tool calls."),
    done("TERMINAL-MESSAGE-METADATA", "A message has metadata, empty unless given."),
    done("TERMINAL-MESSAGE-ROUND-TRIP", "A message survives to-dict and from-dict."),
    done("TERMINAL-META-ID", "Session metadata has the id."),
    done("TERMINAL-META-CREATED", "Session metadata has the time of creation."),
    done("TERMINAL-META-UPDATED", "Session metadata has the time of the last change."),
    done("TERMINAL-META-COUNT", "Session metadata has the number of messages."),
    done("TERMINAL-META-TOKENS", "Session metadata has the total of tokens."),
    done("TERMINAL-META-TITLE", "Session metadata may have a title."),
    done("TERMINAL-META-TAGS", "Session metadata has tags, none unless given."),
    done("TERMINAL-META-ROUND-TRIP", "Session metadata survives to-dict and from-dict."),
    done("TERMINAL-SESSION-ADD", "Adding a message updates count and time of change."),
    done("TERMINAL-SESSION-ADD-TOKENS", "Adding a message adds its tokens to the total."),
    done("TERMINAL-SESSION-ROUND-TRIP", "A session survives to-dict and from-dict."),
)

_MANAGER = section(
    _PAGE + "Session Manager (Python)",
    done("TERMINAL-MANAGER-PLACE", "Sessions live in the user's own directory unless another one is given."),
    done("TERMINAL-MANAGER-MKDIR", "The directory is made when it is missing."),
    done("TERMINAL-MANAGER-INDEX", "A missing index is no problem; it is made again."),
    done("TERMINAL-MANAGER-CREATE", "A session can be created, with a title or without."),
    done("TERMINAL-MANAGER-UNIQUE", "A session that brings no id gets a unique one."),
    done("TERMINAL-MANAGER-LISTED", "A new session is in the list once it was saved."),
    done("TERMINAL-MANAGER-CURRENT", "There is a current session, which save and export take when none is named."),
    done("TERMINAL-MANAGER-SAVE", "Saving says whether it worked."),
    done("TERMINAL-MANAGER-SAVE-NONE", "Saving when there is no session is a refusal, not a crash."),
    done("TERMINAL-MANAGER-SAVE-INDEX", "Saving updates what the list shows."),
    done("TERMINAL-MANAGER-LOAD", "A session is loaded by id and becomes the current one."),
    done("TERMINAL-MANAGER-LOAD-MISSING", "Loading an unknown id says so."),
    done("TERMINAL-MANAGER-LOAD-BAD", "Loading a damaged session says so and does not crash."),
    done("TERMINAL-MANAGER-LIST", "The list is sorted by last change, newest first."),
    done("TERMINAL-MANAGER-LIMIT", "The list can be limited."),
    done("TERMINAL-MANAGER-DELETE", "Deleting removes a session from disk and from the list."),
)

_EXPORT = section(
    _PAGE + "Session Manager (Python): export_to_markdown",
    done("TERMINAL-EXPORT-TITLE", "The export begins with the title, or says that there is none."),
    done("TERMINAL-EXPORT-HEAD", "The export's head has id, times, message count and token total."),
    done("TERMINAL-EXPORT-MESSAGES", "Each message is exported under its role and time."),
    done("TERMINAL-EXPORT-TOOLS", "Tool calls are exported as JSON in a fence."),
    done("TERMINAL-EXPORT-NONE", "Exporting when there is no session gives nothing, not a crash."),
)

_STATE = section(
    _PAGE + "Rust Session State (src/session.rs)",
    done("TERMINAL-STATE-DEFAULT", "A front end's state starts with no session, not restored, no messages."),
    done("TERMINAL-STATE-START", "Starting a session sets its id and resets the rest."),
    done("TERMINAL-STATE-RESTORE", "Restoring sets id, restored flag and message count."),
    done("TERMINAL-STATE-INCREMENT", "Each message raises the count."),
    done("TERMINAL-STATE-CLEAR", "Clearing brings the state back to its start."),
)

_IPC = section(
    _PAGE + "IPC Messages",
    done(
        "TERMINAL-IPC-CREATE", "session_create with an optional title is answered by session_created with the id."
    ),
    done("TERMINAL-IPC-SAVE", "session_save is answered by session_saved with success."),
    done("TERMINAL-IPC-LOAD", "session_load is answered by session_loaded with id and message count."),
    done("TERMINAL-IPC-LIST", "session_list with an optional limit is answered by session_list_result."),
    done("TERMINAL-IPC-DELETE", "session_delete is answered by session_deleted with success."),
    done("TERMINAL-IPC-EXPORT", "session_export with id and format is answered by session_exported with content."),
    done("TERMINAL-IPC-TAGGED", "Messages are tagged by type in snake case."),
    done("TERMINAL-IPC-INFO", "A listed session has id, title, both times, message count and tokens."),
)

_FILES = section(
    _PAGE + "File Structure",
    done("TERMINAL-FILE-SESSION", "A session file of this format loads: metadata and messages."),
    done("TERMINAL-FILE-TOOL-CALL", "A tool call of this format (tool, args) loads."),
    done("TERMINAL-FILE-OPTIONAL", "A message of this format without tool calls loads."),
    done("TERMINAL-FILE-INDEX", "An index file of this format is told apart from a session."),
)

_INTEGRATION = section(
    _PAGE + "Integration Points",
    done("TERMINAL-BRIDGE-EXCHANGE", "After each exchange both messages are in the saved session."),
    done("TERMINAL-BRIDGE-TOKENS", "The answer's token count is recorded."),
    done("TERMINAL-BRIDGE-RESTORE-FLAG", "A session can be restored by an option at start-up."),
    done("TERMINAL-BRIDGE-RESTORE-SAID", "Restoring says how many messages came back."),
)

_FEATURES = section(
    _PAGE + "Core Features (Week 3)",
    done("TERMINAL-FEATURE-AUTO-CREATE", "A session begins by itself with the first message."),
    done("TERMINAL-FEATURE-AUTO-SAVE", "A save follows each exchange of messages."),
    done("TERMINAL-FEATURE-NON-BLOCKING", "Saving does not block."),
    done("TERMINAL-FEATURE-SAVE-ERRORS", "An error while saving is handled and told."),
    done("TERMINAL-FEATURE-FULL-HISTORY", "Loading restores the full history."),
    done("TERMINAL-FEATURE-SHOW", "A loaded session can be displayed."),
    done("TERMINAL-FEATURE-RECENT", "Recent sessions are listed with date, messages and tokens."),
)

_ADVANCED = section(
    _PAGE + "Advanced Features (Future)",
    done("TERMINAL-SEARCH-TEXT", "Full text is searched across sessions."),
    done("TERMINAL-SEARCH-FILTER", "A search can be narrowed by date and tags."),
    done("TERMINAL-SEARCH-WITHIN", "A search can be made within one conversation."),
    done("TERMINAL-TAGS-SET", "Sessions can be tagged."),
    done("TERMINAL-TAGS-FILTER", "Sessions can be filtered by tag."),
    done("TERMINAL-TAGS-AUTO", "Tags are suggested from the content."),
    done("TERMINAL-STATS-TOKENS", "Token usage is shown over time."),
    done("TERMINAL-STATS-HOURS", "The most active times are shown."),
    done("TERMINAL-STATS-TOPICS", "Common topics are shown."),
    done("TERMINAL-BRANCH-ANYWHERE", "A branch can be made from any point of a conversation."),
    done("TERMINAL-BRANCH-COMPARE", "Two branches can be compared."),
    done("TERMINAL-BRANCH-MERGE", "Two branches can be merged."),
)

_TESTS = section(
    _PAGE + "Testing Strategy",
    done("TERMINAL-TEST-TIMES", "Timestamps with and without a zone are handled."),
    done("TERMINAL-TEST-CORRUPTED", "Corrupted data is handled."),
    done("TERMINAL-TEST-PERMISSIONS", "File permissions are tested."),
    done("TERMINAL-TEST-CONCURRENT", "Concurrent access is tested."),
    done("TERMINAL-TEST-SPECIAL", "Special characters survive an export."),
    done("TERMINAL-TEST-LARGE", "Large sessions are exported."),
    done("TERMINAL-TEST-EMPTY", "Empty sessions are exported."),
    done("TERMINAL-TEST-FLOW", "Create, add messages, save, load: nothing is lost or changed."),
    done("TERMINAL-TEST-IPC", "Session commands are tested through IPC."),
)

_PERFORMANCE = section(
    _PAGE + "Performance Considerations, Success Metrics",
    done("TERMINAL-PERF-TOKENS", "Tokens that stream by are not each a save."),
    done("TERMINAL-PERF-COMPLETE", "A completed message is saved."),
    done("TERMINAL-PERF-BATCH", "Writes that come close together are batched."),
    done("TERMINAL-PERF-MEMORY", "Sessions that are not in use are not kept in memory."),
    done("TERMINAL-PERF-PAGES", "A large session can be read a page at a time."),
    done("TERMINAL-PERF-INDEX", "Listing is cached or as cheap."),
    done("TERMINAL-PERF-COMPRESS", "Old sessions are compressed."),
    done("TERMINAL-PERF-SAVE", "A save takes under 50 ms."),
    done("TERMINAL-PERF-LOAD", "A load takes under 100 ms."),
    to_do(
        "TERMINAL-QUALITY-COVERAGE",
        "Over 90 % of the lines are covered by tests.",
        "python -m integration.coverage counts it, and no test run does",
    ),
    done("TERMINAL-QUALITY-INTEGRITY", "What is loaded is what was saved, in every byte."),
    done("TERMINAL-QUALITY-TRANSPARENT", "Nobody has to do anything for sessions to be saved."),
    done("TERMINAL-QUALITY-STATUS", "The state of a session is shown clearly."),
)

_SECURITY = section(
    _PAGE + "Security Considerations",
    done("TERMINAL-SECURITY-DIR", "Directories have mode 0700."),
    done("TERMINAL-SECURITY-FILE", "Files have mode 0600."),
    done("TERMINAL-SECURITY-NAMES", "File names hold nothing sensitive: no titles, no content."),
    done("TERMINAL-SECURITY-ESCAPE", "Special characters are escaped."),
    done("TERMINAL-SECURITY-IDS", "Session ids are validated."),
    done("TERMINAL-SECURITY-TRAVERSAL", "No id leads outside the store."),
    done("TERMINAL-LIMIT-SESSION", "A session over 100 MB is reported, never cut."),
    done("TERMINAL-LIMIT-MESSAGE", "A message over 1 MB is reported, never cut."),
    done("TERMINAL-LIMIT-SESSIONS", "Over 1000 sessions can be cleaned up automatically."),
)

TERMINAL = (
    *_OVERVIEW,
    *_COMPONENTS,
    *_MODEL,
    *_MANAGER,
    *_EXPORT,
    *_STATE,
    *_IPC,
    *_FILES,
    *_INTEGRATION,
    *_FEATURES,
    *_ADVANCED,
    *_TESTS,
    *_PERFORMANCE,
    *_SECURITY,
)
