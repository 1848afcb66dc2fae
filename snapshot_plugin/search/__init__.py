"""Full-text search: an index in the user's cache, derived from the store, which always wins.

`index` is what commands use; `query` turns a user's words into what SQLite understands; `facts` is what statistics
need of each session; `database` is the file, and what becomes of it when it is damaged or sealed.
"""
