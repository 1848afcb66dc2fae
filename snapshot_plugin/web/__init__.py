"""``asnap ui``: serves the sessions of one store to one person, on 127.0.0.1.

`site` holds the store and the state that requests share; `reading`, `changing` and `events` are the routes of
``/api/v1``, thin over `operations`; `guard` refuses every request that is not from our own page; `server` listens.
The page is in ``static``: hand-written ES modules and CSS, no build step, nothing loaded from other hosts.

The server never starts an agent, never purges, and never handles keys: the terminal asks for the passphrase. Every
change is an operation that ``asnap undo`` can undo.
"""
