"""What people do to stored sessions, for every front end: `cli` and `web` are thin over it.

An operation is a function of a `Work` (settings, environment, time) and a store. It returns a `Document`, whose
JSON is what ``--json`` prints and what the browser's API answers. Every change is recorded for undo.

`references` finds the session a user means; `sessions` is the list and its filters, `showing` one session,
`conversation` its messages, `comparing` a difference, `searching` full text, `statistics` numbers. `organise`,
`forget`, `secrets` and `encrypting` change things; `undo` records how that is undone, and does it. `exporting`
makes files; `command_trust` knows which imported agent commands the user confirmed; `failures` says what went wrong
and what to do next.
"""
