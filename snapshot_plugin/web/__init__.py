"""``asnap ui``: serves the sessions of one store to one person, on 127.0.0.1.

`site` is the store with what requests share; `reading`, `changing` and `events` are the routes of ``/api/v1``, thin
over `operations`; `guard` refuses every request that is not from our own page; `server` listens. The page itself is
in ``static``: hand-written ES modules and CSS, no build step, nothing loaded from elsewhere.

The server never starts an agent, never purges, and never handles keys: the passphrase is asked for in the terminal.
Every change is an operation that ``asnap undo`` takes back.
"""
