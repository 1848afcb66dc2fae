"""Live sessions: one class records a session for every host. Start with `session`.

============  =======================================================================================
`ports`       what a place for live sessions promises (`LivePlace`, `Hold`), and what a `Reducer` does
`lease`       the exclusive right to own a session, with its epoch (fencing number); `Owner`
`owners`      which sessions are live, and which lost their owner: without what a lease needs
`spool`       the records since the last snapshot, in one file (`spool_format`: its bytes)
`place`       leases and spools of a store on a local disk
`session`     `LiveSession`: leased, spooled, reduced, saved; says what happens in every kind of trouble
              (`storing`: never a gap in the spool, foreign writes)
`sessions`    `LiveSessions`: those of one process: begin, resume, finish, list, delete
`schedule`    when a session is saved
`recovery`    what a dead owner left becomes a snapshot, exactly once, and by which function
`label`       title, tags, pin and note, as part of a snapshot
`exclusive`   holding a session for a moment, to change something else about it than its conversation
`steps`       work that threads and event loops run alike
============  =======================================================================================

Promises: a record is spooled before it is passed on; what was recorded survives ``kill -9``; a snapshot is durable
before its records are dropped; one living owner per session.
"""
