"""An agent that counts its sessions from 0 in each process, as the SDK's example does, behind the proxy."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.acp.proxied import history, proxied, words

COUNTING = (sys.executable, "-m", "tests.acp_sdk.agents.counting")


def test_new_session_never_replaces_a_stored_one(tmp_path: Path) -> None:
    with proxied(tmp_path, agent=COUNTING) as client:
        client.initialize()
        old = client.new_session()
        client.prompt(old, "first")
    with proxied(tmp_path, agent=COUNTING) as client:
        client.initialize()
        new = client.new_session()
        assert (old, new == old) == ("0", False)
        assert client.prompt(new, "second") == "in 0"
        assert words(history(client, old)[1]) == [("user", "first"), ("agent", "in 0")]
        assert client.prompt(old, "third") == "in 1"
        assert client.prompt(new, "fourth") == "in 0"
        assert {info["sessionId"] for info in client.request("session/list", {})["sessions"]} == {old, new}
