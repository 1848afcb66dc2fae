"""Full-text search: an index in the user's cache directory, derived from the store.

Commands use `index`; `ready` answers without opening the store. `passages` says which text is searched, `content`
writes it, `query` turns a user's words into an FTS5 expression, and `find` runs it. `database` is the file: a
damaged one is deleted and rebuilt, and the index of an encrypted store is encrypted.
"""
