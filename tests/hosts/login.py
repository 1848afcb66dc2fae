"""An agent that requires a login: the client gets the error, logs in, and nothing is lost or left locked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acp_client import Client, RpcError
from tests.hosts.stage import HostStage, load, words

__all__ = ["Login", "log_in", "login_file"]

AUTH_REQUIRED = -32000


def login_file(place: Path, method: str = "key-1") -> Path:
    """The file that names the login the agent accepts."""
    path = place / "login"
    path.write_text(method)
    return path


def log_in(client: Client, method: str = "key-1") -> None:
    """Log in as the client."""
    client.request("authenticate", {"methodId": method})


class Login(HostStage):
    """The login error reaches the client, and the session works after the login."""

    def test_a_new_session_is_refused_until_the_client_logs_in(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--login", str(login_file(tmp_path))) as client:
            with pytest.raises(RpcError) as refused:
                client.new_session()
            assert refused.value.code == AUTH_REQUIRED
            log_in(client)
            assert client.prompt(client.new_session(), "say hello") == "hello"

    @pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
    def test_a_stored_session_is_back_after_the_login(self, tmp_path: Path, method: str) -> None:
        flags = (*self.remembering(tmp_path), "--login", str(login_file(tmp_path)))
        with self.start(tmp_path, *flags) as client:
            log_in(client)
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with self.start(tmp_path, *flags) as client:
            params = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
            for _ in range(2):
                with pytest.raises(RpcError) as refused:
                    client.request(method, params)
                assert refused.value.code == AUTH_REQUIRED
            log_in(client)
            result = client.request(method, params)
            assert client.prompt(result.get("sessionId", session_id), "say two").endswith("two")
        with self.start(tmp_path, *flags) as client:
            log_in(client)
            assert ("agent", "one") in words(load(client, session_id)[1])
