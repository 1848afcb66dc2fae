# ruff: noqa: N802 - the kit writes its ids in capitals
"""More of the compatibility kit's requirements: settings, what each side is told of the other, extensions, errors.

Not applicable as the kit means them: the scripted agent has no boolean option (CONFIG-003 is that the proxy adds
none), does not advertise additional directories (ADDDIRS-001 is that they reach it), and calls the client's files,
terminals and forms only when the prompt says so (CLIENTCAP-… is that the proxy never does, and that the agent is
told exactly what the client can do).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acp.proxied import UNABLE, history, proxied
from tests.acp_client import Client, RpcError

Json = dict[str, Any]


class TestSettings:
    def test_MODES_001_the_mode_is_one_of_the_modes(self, client: Client) -> None:
        modes = client.request("session/new", {"cwd": "/", "mcpServers": []})["modes"]
        assert modes["currentModeId"] in [mode["id"] for mode in modes["availableModes"]]

    def test_MODES_002_mode_can_be_set_and_is_restored(self, client: Client, session_id: str) -> None:
        params = {"sessionId": session_id, "modeId": "code"}
        assert client.request("session/set_mode", params) == {}
        client.prompt(session_id, "say one")
        client.request("session/close", {"sessionId": session_id})
        assert history(client, session_id)[0]["modes"]["currentModeId"] == "code"

    def test_CONFIG_001_values_are_among_the_options(self, client: Client) -> None:
        for option in client.request("session/new", {"cwd": "/", "mcpServers": []})["configOptions"]:
            assert option["currentValue"] in [choice["value"] for choice in option["options"]]

    def test_CONFIG_002_all_options_are_returned_and_the_value_is_restored(
        self, client: Client, session_id: str
    ) -> None:
        params = {"sessionId": session_id, "configId": "model", "value": "large"}
        options = client.request("session/set_config_option", params)["configOptions"]
        assert [(option["id"], option["currentValue"]) for option in options] == [("model", "large")]
        client.prompt(session_id, "say one")
        client.request("session/close", {"sessionId": session_id})
        assert history(client, session_id)[0]["configOptions"] == options

    def test_CONFIG_003_options_are_not_boolean_unless_requested(self, client: Client) -> None:
        options = client.request("session/new", {"cwd": "/", "mcpServers": []})["configOptions"]
        assert {option["type"] for option in options} == {"select"}


EAVESDROPPER = """
import sys
from types import SimpleNamespace
from tests.acp_agent.__main__ import main

def overheard(lines, log):
    for line in lines:
        log.write(line)
        log.flush()
        yield line

sys.stdin = SimpleNamespace(buffer=overheard(sys.stdin.buffer, open(sys.argv.pop(1), "ab")))
main()
"""


def overheard(place: Path, *flags: str) -> tuple[Client, Path]:
    """A client whose agent writes down what it hears."""
    heard = place / "heard"
    return proxied(place / "store", *flags, agent=(sys.executable, "-c", EAVESDROPPER, str(heard))), heard


def requests_in(heard: Path, method: str) -> list[Json]:
    messages = [json.loads(line) for line in heard.read_bytes().splitlines()]
    return [message["params"] for message in messages if message.get("method") == method]


class TestBothSidesKnowEachOther:
    @pytest.mark.parametrize(
        "able",
        [
            pytest.param({"fs": {"readTextFile": True, "writeTextFile": False}}, id="CLIENTCAP-001"),
            pytest.param({"terminal": True}, id="CLIENTCAP-002"),
            pytest.param({"elicitation": {"form": {}}}, id="CLIENTCAP-003"),
        ],
    )
    def test_agent_gets_the_clients_capabilities_and_the_proxy_uses_none_of_them(
        self, tmp_path: Path, able: Json
    ) -> None:
        client, heard = overheard(tmp_path, *UNABLE)
        with client:
            client.initialize()
            client.initialize(**able)
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.request("session/close", {"sessionId": session_id})
            history(client, session_id)
            assert [told["clientCapabilities"] for told in requests_in(heard, "initialize")] == [{}, able]
            assert client.asked == []

    @pytest.mark.parametrize("flags", [(), UNABLE], ids=["able", "unable"])
    def test_ADDDIRS_001_directories_and_servers_reach_the_agent_after_a_restart_too(
        self, tmp_path: Path, flags: tuple[str, ...]
    ) -> None:
        server = {"name": "db", "command": "x", "args": [], "env": [{"name": "K", "value": "V"}]}
        setup = {"cwd": "/", "mcpServers": [server], "additionalDirectories": ["/usr"]}
        client, heard = overheard(tmp_path, "--state", str(tmp_path / "state.json"), *flags)
        with client:
            client.initialize()
            session_id = client.request("session/new", setup)["sessionId"]
            client.prompt(session_id, "say one")
            client.answer_to(client.begin_prompt(session_id, "crash"))
            client.prompt(session_id, "say back")
            again = requests_in(heard, "session/new")[1:] if flags else requests_in(heard, "session/load")
            assert requests_in(heard, "session/new")[0] == setup
            assert [{key: told[key] for key in setup} for told in again] == [setup]

    def test_EXT_001_an_unknown_extension_is_answered(self, client: Client) -> None:
        with pytest.raises(RpcError) as refused:
            client.request("_vendor/thing", {"sessionId": "never-was"})
        assert refused.value.code == -32601

    def test_ERROR_001_error_messages_are_one_line(self, client: Client, session_id: str) -> None:
        mark = len(client.received)
        setup: Json = {"cwd": "/", "mcpServers": []}
        for method in ("session/load", "session/resume", "session/fork", "session/close", "session/list"):
            wrong = {**setup, "sessionId": "two\nlines", "cursor": "two\nlines"}
            client.answer_to(client.begin(method, wrong))
        client.answer_to(client.begin_prompt(session_id, "crash"))
        errors = [m["error"] for _, m in client.received[mark:] if m and "error" in m]
        assert len(errors) >= 5
        assert all(error["message"] and "\n" not in error["message"] for error in errors)
