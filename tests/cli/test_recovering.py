"""Sessions whose process was killed are there, whatever command looks first."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.acp.proxied import proxied
from tests.cli.conftest import Asnap


@pytest.fixture
def killed(place: Path) -> str:
    """A session of the proxy that was killed in its first turn, before any snapshot was made of it."""
    with proxied(place) as client:
        client.initialize()
        session_id = client.new_session()
        prompt = [{"type": "text", "text": "say unforgettable\nslow-tool 60"}]
        client.begin("session/prompt", {"sessionId": session_id, "prompt": prompt})
        client.wait_for(lambda m: "unforgettable" in str(m.get("params", {}).get("update")))
        os.kill(client.process.pid, signal.SIGKILL)
    assert not list((place / "sessions" / session_id).glob("*.snap.gz"))
    return session_id


def test_list_shows_an_unrecovered_session_without_changing_it(asnap: Asnap, killed: str, place: Path) -> None:
    before = sorted(place.rglob("*"))

    (row,) = asnap("list", "--json").json["sessions"]

    assert (row["session_id"], row["ended_unexpectedly"], row["seq"]) == (killed, True, 0)
    assert "ended" in asnap("list").out
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [("show", "latest"), ("search", "unforgettable"), ("export", "latest", "-o", "-", "--format", "markdown")],
)
def test_show_includes_unrecovered_output(asnap: Asnap, killed: str, words: tuple[str, ...]) -> None:
    ran = asnap(*words)

    assert ran.code == 0
    assert "unforgettable" in ran.out
    assert "recovered" in ran.err
    assert asnap("list", "--all", "--json").json["sessions"][0]["recovered"]


def test_unrecovered_session_can_be_resumed_immediately(asnap: Asnap, killed: str) -> None:
    ran = asnap("resume", killed, "--print")

    assert ran.code == 0
    assert killed in ran.out


def test_check_does_not_recover_first(asnap: Asnap, killed: str, place: Path) -> None:
    before = sorted(place.rglob("*"))

    assert asnap("check").code == 0

    assert sorted(place.rglob("*")) == before
