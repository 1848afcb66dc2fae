"""Full-text search: an index in the user's cache directory, derived from the store.

Commands use `index`. `query` turns a user's words into an FTS5 expression, `find` runs it, and `facts` holds
what statistics need of each session. `database` is the file: a damaged one is deleted and rebuilt, and the
index of an encrypted store is encrypted.
"""
