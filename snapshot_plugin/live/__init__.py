"""Live sessions: one class records a session for every host. Start with `session`.

============  =======================================================================================
`ports`       what a place for live sessions promises (`LivePlace`, `Hold`), and what a `Reducer` does
`lease`       the exclusive right to own a session, with its epoch (fencing number); `Owner`; `FilePlace`:
              leases and spools of a store on a local disk
`rows`        leases and spools in a database
`place`       which of the two a store has; holds a session briefly, to change more than its conversation
`owners`      which sessions are live, and whose owner died, without importing `lease`
`spool`       the records since the last snapshot, in two files that take turns
`session`     `LiveSession`: leased, spooled, reduced, saved; lists how each failure is handled
`storing`     its lease and spool; saving after another process wrote, deleted or damaged the session
`blocking`    a store that has only asynchronous methods, as plain calls
`events`      what happens to sessions; `Reporter` emits it, from any thread
`sessions`    `LiveSessions`: begin, resume, finish, list and delete the sessions of one process
`schedule`    when they are saved and flushed
`recovery`    turns a dead owner's records into a snapshot, exactly once
`label`       title, tags, pin and note, as part of a snapshot
============  =======================================================================================

Guarantees: a record is spooled before it is passed on; recorded events survive ``kill -9``; a snapshot is durable
before its records are dropped; a session has at most one living owner.
"""
