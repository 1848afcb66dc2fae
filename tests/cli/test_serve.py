"""``asnap serve``: the command around the bridge (tests/ipc has the bridge itself)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forkserver
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session

KEY = "correct horse battery staple"


def serve(*lines: str) -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-m", "snapshot_plugin", "serve", "--stdio"]
    text = "".join(f"{each}\n" for each in lines).encode()
    return forkserver.run(line, input=text, timeout=60)


def test_serve_names_the_transports_it_supports(asnap: Asnap, place: Path) -> None:
    ran = asnap("serve", "--json")

    assert (ran.code, ran.error["code"]) == (2, "invalid_input")
    assert not place.exists()


def test_requests_from_a_file_are_served(place: Path) -> None:
    saved(place, session("01aaaa", "hello", title="Fix auth"))
    served = serve('{"type": "session_list"}', '{"type": "session_load", "session_id": "01aaaa"}')
    listed, loaded = [json.loads(line) for line in served.stdout.splitlines()]

    assert (served.returncode, served.stderr) == (0, b"")
    assert [each["title"] for each in listed["sessions"]] == ["Fix auth"]
    assert loaded["message_count"] == 2


def test_session_made_by_a_front_end_is_an_ordinary_session(asnap: Asnap) -> None:
    served = serve('{"type":"session_message","messages":[{"role":"user","content":"from a front end"}]}')
    session_id = json.loads(served.stdout)["session_id"]

    assert "from a front end" in asnap("export", session_id, "--format", "markdown").out
    assert asnap("check").code == 0


def test_an_encrypted_store_needs_its_key(asnap: Asnap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "secret", session("01aaaa", "hello"), key=KEY)
    monkeypatch.setenv("ASNAP_STORE", str(tmp_path / "secret"))
    refused = serve('{"type": "session_list"}')
    assert (refused.returncode, refused.stdout) == (7, b"")

    monkeypatch.setenv("ASNAP_KEY", KEY)
    assert len(json.loads(serve('{"type": "session_list"}').stdout)["sessions"]) == 1
