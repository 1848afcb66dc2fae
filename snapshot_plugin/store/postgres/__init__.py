"""The store in a PostgreSQL database: frames, keys, leases and spools as rows of one schema.

Needs ``pip install 'snapshot-plugin[postgres]'``.

================  =====================================================================================
`address`         what a ``postgresql://`` URL says: the server, the schema, the prefix of the tables
`pool`            connections, shared by all stores of a process that name the same server
`database`        statements and transactions of one store; database errors become errors of this package
`schema`          the tables, created and migrated under a lock
`frames`          `FrameLog` as rows: segments and their frames
`areas`           deleted sessions, copies and quarantine
`small_rows`      small files: the marker, the keys, the operation log
`live_rows`       leases with epochs, and spools; `snapshot_plugin.live.rows` makes a `LivePlace` of them
`store`           `PostgresStore`
================  =====================================================================================

No statement relies on session state (prepared statements, session locks, ``SET`` outside a transaction), so the
store works behind pgbouncer in transaction mode. Only the clock of the server counts.
"""
