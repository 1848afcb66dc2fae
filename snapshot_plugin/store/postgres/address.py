"""What a ``postgresql://`` URL names: a database for libpq, and a schema and a prefix for the store."""

from __future__ import annotations

import re
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from snapshot_plugin.errors import InvalidInput

__all__ = ["LEASE_SECONDS", "Address"]

LEASE_SECONDS = 10.0
_SHORTEST_LEASE = 0.5
_SCHEMA = "asnap"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,30}")
_PREFIX = re.compile(r"[a-z0-9_]{0,20}")
_CONNECTIONS = 8
_DEFAULTS = {
    "application_name": "asnap",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""Options of libpq that a URL may override: a server that is gone is noticed within half a minute."""


class Address(NamedTuple):
    """Where a store is.

    `conninfo` is for libpq. `name` is for people and for errors: it never contains a password.
    """

    conninfo: str
    name: str
    schema: str = _SCHEMA
    prefix: str = ""
    lease: float = LEASE_SECONDS
    """Seconds after which an owner that gave no sign may be replaced."""
    connections: int = _CONNECTIONS
    """How many connections a process opens at most."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL. ``schema``, ``prefix``, ``lease`` and ``connections`` are ours; libpq gets the rest.

        Raises:
            InvalidInput: an option is not valid, or the URL contains a password: URLs end up in logs.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if ":" in parts.netloc.rpartition("@")[0] and not parts.netloc.partition("@")[0].endswith(":"):
            raise _bad("it contains a password", "put the password in PGPASSWORD or in ~/.pgpass")
        if "password" in options:
            raise _bad("it contains a password", "put the password in PGPASSWORD or in ~/.pgpass")
        schema, prefix = options.pop("schema", _SCHEMA), options.pop("prefix", "")
        if not _NAME.fullmatch(schema) or not _PREFIX.fullmatch(prefix):
            raise _bad("its schema or prefix is not a plain name", "use a-z, 0-9 and _ for schema= and prefix=")
        lease = _number(options.pop("lease", ""), LEASE_SECONDS, _SHORTEST_LEASE, "lease")
        connections = int(_number(options.pop("connections", ""), _CONNECTIONS, 1, "connections"))
        bare = parts._replace(scheme="postgresql", fragment="")
        conninfo = urlunsplit(bare._replace(query=urlencode({**_DEFAULTS, **options}, quote_via=quote)))
        if not parts.netloc:  # urlunsplit drops the empty authority, which libpq wants
            conninfo = conninfo.replace("postgresql:", "postgresql://", 1)
        where = parts.netloc.rpartition("@")[2] or options.get("host", "")
        name = f"postgresql://{where}{parts.path} (schema {schema}{f', prefix {prefix}' if prefix else ''})"
        return cls(conninfo, name, schema, prefix, lease, connections)

    def table(self, name: str) -> str:
        """The full name of a table, for SQL. Schema and prefix are plain names, so quoting is enough."""
        return f'"{self.schema}"."{self.prefix}{name}"'


def _number(text: str, default: float, least: float, name: str) -> float:
    try:
        number = float(text) if text else default
    except ValueError:
        number = 0.0
    if not least <= number <= 1e6:  # noqa: PLR2004 — more is a mistake
        raise _bad(f"{name}={text} is not a number of at least {least:g}", f"write {name}={default:g}")
    return number


def _bad(why: str, hint: str) -> InvalidInput:
    return InvalidInput(f"the URL does not name a store in PostgreSQL: {why}", hint=hint)
