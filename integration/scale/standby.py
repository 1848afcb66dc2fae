"""``python -m integration.scale.standby``: failovers to a real standby that lagged behind, with live owners.

Prints one line for each scenario, and exits with 1 if a promise is broken. Needs the programs of a PostgreSQL
server; as root, also a user ``postgres`` to run it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.acp.proxied import history, proxied, words
from tests.acp_client import PATIENCE, Client

LEASE = 3


class Server:
    """A server in *directory*, on a port of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def start(self) -> None:
        """Start it."""
        options = f"-p {self.port} -k '' -h 127.0.0.1 -c fsync=off"
        log = self.directory.parent / f"{self.directory.name}.log"
        _run("pg_ctl", "-D", str(self.directory), "-l", str(log), "-w", "-o", options, "start")

    def stop(self) -> None:
        """Stop it as a power cut does."""
        _run("pg_ctl", "-D", str(self.directory), "-m", "immediate", "-w", "stop")

    def promote(self) -> None:
        """Make a standby the primary."""
        _run("pg_ctl", "-D", str(self.directory), "-w", "promote")

    def ask(self, statement: str) -> str:
        """The first value that a statement returns, as text."""
        where = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return str(cursor.fetchall()[0][0]) if cursor.description else ""

    def set(self, name: str, value: str) -> None:
        """Change a setting."""
        self.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self.ask("SELECT pg_reload_conf()")


def _bin() -> Path:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return installed[-1] if installed else Path(shutil.which("pg_ctl") or "pg_ctl").parent


def _run(program: str, *arguments: str) -> None:
    command = [str(_bin() / program), *arguments]
    if os.geteuid() == 0:  # a server never runs as root
        command = ["runuser", "-u", "postgres", "--", *command]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE, cwd="/")


@contextlib.contextmanager
def servers() -> Iterator[tuple[Server, Server]]:
    """A primary, and a standby that follows it."""
    place = Path(tempfile.mkdtemp(prefix="asnap-standby-"))
    if os.geteuid() == 0:
        shutil.chown(place, "postgres")
    primary, standby = Server(place / "primary"), Server(place / "standby")
    try:
        _run("initdb", "-D", str(primary.directory), "-A", "trust", "-E", "UTF8", "-U", "postgres", "-N")
        primary.start()
        source = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres", "-c", "fast", "-N")
        _run("pg_basebackup", *source, "-D", str(standby.directory), "-R", "-X", "stream")
        standby.start()
        yield primary, standby
    finally:
        for server in (standby, primary):
            if (server.directory / "postmaster.pid").exists():
                server.stop()
        shutil.rmtree(place, ignore_errors=True)


def until_equal(primary: Server, standby: Server) -> None:
    """Wait until the standby has everything."""
    end = primary.ask("SELECT pg_current_wal_flush_lsn()")
    deadline = time.monotonic() + PATIENCE
    while standby.ask(f"SELECT coalesce(pg_last_wal_replay_lsn() >= '{end}', false)") != "True":
        assert time.monotonic() < deadline, "the standby does not follow"
        time.sleep(0.05)


def node(url: str) -> Client:
    return proxied(url, "--no-load", "--no-resume")  # type: ignore[arg-type] # a URL in the place of a path


def said(client: Client, session_id: str) -> str:
    _, updates = history(client, session_id)
    return "".join(text for who, text in words(updates) if who == "agent")


def findings(url: str) -> dict[str, str]:
    """What ``asnap doctor`` says of the replication, by level."""
    command = [sys.executable, "-m", "snapshot_plugin", "doctor", "--json", "--store", url]
    told = json.loads(subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE).stdout)
    return {each["level"]: each["what"] for each in told["findings"] if "synchronous_standby" in each["what"]}


def failover(*, is_taken: bool) -> str:
    """An owner's take, prompts and saves never reach the standby; then that is promoted."""
    with servers() as (primary, standby):
        ports = f"{primary.port},{standby.port}"
        url = f"postgresql://postgres@/postgres?host=127.0.0.1,127.0.0.1&port={ports}&lease={LEASE}"
        url += "&target_session_attrs=read-write"
        with node(url) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say first.")
        until_equal(primary, standby)
        assert "warning" in findings(url), "the doctor did not warn of an asynchronous standby"
        primary.set("synchronous_standby_names", "*")
        assert "ok" in findings(url), "the doctor did not see the synchronous standby"
        primary.set("synchronous_standby_names", "")
        standby.set("primary_conninfo", "")  # it lags behind from now on
        with node(url) as owner, node(url) as other:
            owner.initialize()
            said(owner, session_id)
            for number in range(5):
                owner.prompt(session_id, f"say {number}.")
            if is_taken:  # otherwise it would have its session back before the other node comes
                os.kill(owner.process.pid, signal.SIGSTOP)
            primary.stop()
            standby.promote()
            if not is_taken:
                assert owner.prompt(session_id, "say last.") == "last."
                expected = "first.0.1.2.3.4.last."
            else:
                other.initialize()
                said(other, session_id)
                other.prompt(session_id, "say other.")
                os.kill(owner.process.pid, signal.SIGCONT)
                owner.begin_prompt(session_id, "say zombie.")
                assert owner.exit_status() == 6, "the old owner was not fenced"
                assert "zombie" not in owner.said(session_id)
                expected = "first.other."
        with node(url) as client:
            client.initialize()
            found = said(client, session_id)
        assert found == expected, (found, expected)
        return found


def main() -> int:
    """Run the scenarios."""
    for is_taken in (False, True):
        name = "and another node takes the session" if is_taken else "and nobody takes the session"
        try:
            print(f"ok      failover to a standby that lagged behind, {name}: {failover(is_taken=is_taken)}")
        except AssertionError as error:
            print(f"BROKEN  failover to a standby that lagged behind, {name}: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
