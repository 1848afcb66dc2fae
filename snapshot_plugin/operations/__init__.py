"""What people do to stored sessions, for every front end: `cli` and `web` are thin over it.

An operation is a function of a `Work` (settings, environment, time) and a store. It returns a `Document`, whose
JSON is what ``--json`` prints and what the browser's API answers. Every change is recorded for undo.

`references` finds the session a user means, `scope` filters, `session_rows` and `listed` are the list, `showing`
and `transcript` one session, `messages` a page of it, `spooled` what is only in its spool, `comparing` a
difference, `searching` full text, `statistics` numbers. `labels`, `branches`, `forget`, `secrets`, `encrypting` and
`trash` change things; `log` records how that is undone, `undo` does it. `exporting` makes files; `command_trust`
knows which imported agent commands the user confirmed; `failures` says what went wrong and what to do next.
"""
