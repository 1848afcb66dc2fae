"""The tables of a store, created and migrated by whichever process needs them first.

`MIGRATIONS` is a list of scripts; the table ``meta`` says how many were run. A script is never changed after a
release: a new one is appended. All that are missing are run in one transaction, under a lock.
"""

from __future__ import annotations

from snapshot_plugin.errors import InvalidSnapshotVersion
from snapshot_plugin.store.marker import without_marker
from snapshot_plugin.store.postgres.database import Database

__all__ = ["MIGRATIONS", "create_tables", "read_marker"]

_TABLES = """
CREATE TABLE {sessions} (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sid text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL DEFAULT '',
    deleted_at timestamptz,
    labels text[],
    UNIQUE (sid, token)
);
CREATE INDEX ON {sessions} (token) WHERE token <> '';
CREATE INDEX ON {sessions} USING gin (labels) WHERE labels IS NOT NULL;
CREATE TABLE {segments} (
    segment bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    place bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    rewritten boolean NOT NULL,
    frames integer NOT NULL,
    size bigint NOT NULL
);
CREATE INDEX ON {segments} (place, first, segment);
CREATE TABLE {frames} (
    segment bigint NOT NULL,
    n integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (segment, n)
);
ALTER TABLE {frames} ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE {quarantine} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sid text COLLATE "C" NOT NULL,
    first bigint NOT NULL,
    data bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON {quarantine} (sid);
CREATE TABLE {keys} (name text COLLATE "C" PRIMARY KEY, data bytea NOT NULL);
CREATE TABLE {operations} (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, line bytea NOT NULL);
CREATE TABLE {live} (
    sid text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL,
    taken bigint NOT NULL DEFAULT 0,
    owner text,
    until timestamptz NOT NULL,
    base bigint NOT NULL DEFAULT 0,
    last bigint NOT NULL DEFAULT 0
);
CREATE INDEX ON {live} (sid) WHERE owner IS NOT NULL;
CREATE TABLE {spool} (
    sid text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL DEFAULT '',
    n bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (sid, token, n)
);
"""

_REQUESTS = """
ALTER TABLE {live} ADD COLUMN asked text, ADD COLUMN answer text;
"""

_EXTEND = """
CREATE FUNCTION {extend}(
    lock bigint, session text, owned bigint, covered bigint,
    newest bigint, present integer, frame bytea, relabels boolean, marks text[]
) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '30s' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    IF owned IS NOT NULL THEN
        PERFORM FROM {live} l WHERE l.sid = session AND l.epoch = owned FOR KEY SHARE;
        IF NOT FOUND THEN RETURN false; END IF;
    END IF;
    UPDATE {segments} g SET frames = g.frames + 1, size = g.size + octet_length(frame)
    FROM {sessions} s
    WHERE g.segment = newest AND g.frames = present
      AND s.place = g.place AND s.sid = session AND s.token = ''
      AND NOT EXISTS (
          SELECT FROM {segments} n WHERE n.place = g.place AND (n.first, n.segment) > (g.first, g.segment));
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO {frames} VALUES (newest, present + 1, frame);
    IF relabels THEN
        UPDATE {sessions} s SET labels = marks WHERE s.sid = session AND s.token = '';
    END IF;
    IF owned IS NOT NULL THEN
        DELETE FROM {spool} r WHERE r.sid = session AND r.token = '' AND r.n <= covered;
    END IF;
    RETURN true;
END $$
"""
"""A save in one statement, for a writer that knows the newest segment. Its plans are kept by the connection."""

_ASKED_UNTIL = """
ALTER TABLE {live} ADD COLUMN asked_until timestamptz NOT NULL DEFAULT '-infinity';
"""
"""A request counts until then. A process that waits for an answer prolongs it; one that was killed does not."""

MIGRATIONS = (_TABLES, _REQUESTS, _EXTEND, _ASKED_UNTIL)


def read_marker(database: Database) -> bytes | None:
    """The store's marker, once its tables are up to date; None if there are no tables.

    Raises:
        InvalidSnapshotVersion: a newer release made or migrated the tables.
    """
    version = _version(database)
    if version is None:
        return None
    if version < len(MIGRATIONS):
        _migrate(database)
    elif version > len(MIGRATIONS):
        raise _newer(database, version)
    found = database.rows("SELECT value FROM {meta} WHERE name = 'marker'")
    if not found:
        raise without_marker(database.address.name)
    return bytes(found[0][0])


def create_tables(database: Database, marker: bytes) -> bool:
    """Create the tables with this *marker*, in one transaction; False if there are tables.

    Raises:
        StoreForbidden: the user may not create them.
    """
    with database.transaction("schema"):
        if _version(database) is not None:  # of several processes that try at once, one does it
            return False
        schema = database.address.schema
        if not database.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema):
            database.rows(f'CREATE SCHEMA "{schema}"')
        database.rows("CREATE TABLE {meta} (name text PRIMARY KEY, value bytea NOT NULL)")
        database.rows("INSERT INTO {meta} VALUES ('marker', %s)", marker)
        _migrate(database)
    return True


def _version(database: Database) -> int | None:
    """How many migrations were run; None if there are no tables."""
    address = database.address
    # A query of the catalogue sees what others have just committed; to_regclass may answer from a cache.
    query = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = %s"
    if not database.rows(query, address.schema, f"{address.prefix}meta"):
        return None
    found = database.rows("SELECT value FROM {meta} WHERE name = 'version'")
    return int(found[0][0]) if found else 0


def _migrate(database: Database) -> None:
    with database.transaction("schema"):
        version = _version(database) or 0
        if version > len(MIGRATIONS):
            raise _newer(database, version)
        for script in MIGRATIONS[version:]:
            database.script(script)
        database.rows(
            "INSERT INTO {meta} VALUES ('version', %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            str(len(MIGRATIONS)).encode(),
        )


def _newer(database: Database, version: int) -> InvalidSnapshotVersion:
    return InvalidSnapshotVersion(
        f"the tables of {database.address.name} have version {version}; this release knows {len(MIGRATIONS)}"
    )
