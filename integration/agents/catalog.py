"""The published agents that take part: how each is installed, configured for a scripted model, and started."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["AGENTS", "INSPECTOR", "Agent", "cache", "inspector", "node_bin"]

NODE = "node@22"
INSPECTOR = "@modelcontextprotocol/inspector@0.15.0"


def cache() -> Path:
    """Where agents are installed: ``ASNAP_AGENTS``, or a directory in the user's cache."""
    chosen = os.environ.get("ASNAP_AGENTS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "asnap-agents"


def node_bin() -> Path:
    """The directory of the Node that newer agents need."""
    return cache() / "node22" / "node_modules" / ".bin"


def inspector() -> Path:
    """The MCP inspector's command."""
    return cache() / "inspector" / "node_modules" / ".bin" / "mcp-inspector"


@dataclass(frozen=True)
class Agent:
    """One agent. ``{HOME}`` and ``{PORT}`` in texts stand for the run's home and the model server's port."""

    name: str
    packages: tuple[str, ...]
    command: tuple[str, ...]
    kind: str = "npm"
    needs_node: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    shell: bool = True
    """Whether the model can run a shell command in it."""
    login: Mapping[str, Any] = field(default_factory=dict)
    """What ``authenticate`` is sent in each process, before it accepts a session."""
    mode: str = ""
    """The mode a new session is put into, where the first one asks nobody for permission."""
    escalates: bool = False
    """Whether a shell command asks the user only if the model says that it has to."""
    deletes: bool = False
    """Whether it can list and delete its own sessions."""
    new_minute: bool = False
    """Whether a load in the same UTC minute as ``session/new`` fails, by a fault of its own."""
    slash: str = ""
    """A slash command that is answered without the model."""
    compact: str = ""
    """The slash command that replaces the conversation by a summary."""

    @property
    def version(self) -> str:
        """The version that is installed, as its package names it."""
        return self.packages[0].rsplit("@" if self.kind == "npm" else "==", 1)[1].lstrip("=")

    @property
    def home(self) -> Path:
        """Where it is installed."""
        return cache() / self.name

    @property
    def start(self) -> tuple[str, ...]:
        """The command that starts it, from where it is installed."""
        folder = "node_modules/.bin" if self.kind == "npm" else "bin"
        return (str(self.home / folder / self.command[0]), *self.command[1:])

    @property
    def is_installed(self) -> bool:
        """Whether `install` has been here with this version."""
        stamp = self.home / "installed"
        is_wanted = stamp.exists() and stamp.read_text() == " ".join(self.packages)
        return is_wanted and Path(self.start[0]).exists()

    def directive(self, tag: str, command: str) -> str:
        """What tells the model to run *command*, or to write a file where there is no shell."""
        if not self.shell:
            return f"[[write {tag} /made.txt]]"
        if not self.escalates:
            return f"[[run {tag} {command}]]"
        arguments = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "Run it?"}
        return f"[[call {tag} exec_command {json.dumps(arguments)}]]"

    def prepare(self, home: Path, port: int) -> dict[str, str]:
        """Write its settings into a fresh *home* and return its whole environment."""
        for name, text in self.files.items():
            place = home / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(_filled(text, home, port))
        path = os.environ.get("PATH", "")
        base = {
            "HOME": str(home),
            "PATH": f"{node_bin()}{os.pathsep}{path}" if self.needs_node else path,
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TERM": "dumb",
            "NO_PROXY": "127.0.0.1,localhost",
            "NODE_COMPILE_CACHE": str(cache() / "compiled"),  # a third of what some agents need to start
        }
        return base | {name: _filled(value, home, port) for name, value in self.environment.items()}


def _filled(text: str, home: Path, port: int) -> str:
    return text.replace("{HOME}", str(home)).replace("{PORT}", str(port))


_OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "model": "fake/fake-model",
    "small_model": "fake/fake-model",
    "permission": {"bash": "ask", "edit": "ask", "read": "allow"},
    "provider": {
        "fake": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Fake",
            "options": {"baseURL": "http://127.0.0.1:{PORT}/v1", "apiKey": "sk-fake"},
            "models": {
                "fake-model": {
                    "name": "Fake Model",
                    "tool_call": True,
                    "limit": {"context": 128000, "output": 8000},
                }
            },
        }
    },
}

_OPENCODE_LOCK = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}

_CODEX = """\
model = "gpt-5"
model_provider = "fake"
approval_policy = "untrusted"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "http://127.0.0.1:{PORT}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 0
"""

_CODEX_ENVIRONMENT = {"CODEX_HOME": "{HOME}/.codex", "FAKE_KEY": "sk-fake", "OPENAI_API_KEY": "sk-fake"}

_GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {
        "disableAutoUpdate": True,
        "enableAutoUpdate": False,
        "sessionRetention": {"enabled": False},
    },
    "telemetry": {"enabled": False},
}

_KIMI = """\
default_model = "fake/fake-model"
default_permission_mode = "manual"
telemetry = false
[providers.fake]
type = "openai"
base_url = "http://127.0.0.1:{PORT}/v1"
api_key = "sk-fake"
[models."fake/fake-model"]
provider = "fake"
model = "fake-model"
max_context_size = 128000
capabilities = ["tool_use"]
"""

_QWEN_EXTRA = [
    "agent",
    "ask_user_question",
    "enter_plan_mode",
    "exit_plan_mode",
    "get_goal",
    "list_agents",
    "skill",
    "tool_call",
    "tool_search",
    "update_goal",
]

_QWEN = {
    "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False, "preventSystemSleep": False},
    "memory": {"enableManagedAutoMemory": False},  # a second agent after each turn, which takes most of its time
    "model": {"name": "fake-model"},
    # its shell alone: for each request it compiles the schemas of all its tools, which takes over a second
    "tools": {"approvalMode": "default", "core": ["run_shell_command"], "exclude": _QWEN_EXTRA},
}

AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            name="opencode",
            slash="/help",
            compact="/compact",
            packages=("opencode-ai@1.18.33",),
            command=("opencode", "acp"),
            environment={
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            },
            files={
                ".config/opencode/opencode.json": json.dumps(_OPENCODE, indent=1),
                # it finds its plugin installed, and asks no registry for it at each start
                ".config/opencode/node_modules/.keep": "",
                ".config/opencode/package-lock.json": json.dumps(_OPENCODE_LOCK),
            },
        ),
        Agent(
            name="deepagents",
            packages=("deepagents-acp==0.0.13", "langchain-openai"),
            command=("python", "-m", "deepagents_acp"),
            kind="pip",
            shell=False,
            environment={
                "OPENAI_API_KEY": "sk-fake",
                "OPENAI_BASE_URL": "http://127.0.0.1:{PORT}/v1",
                "OPENAI_API_BASE": "http://127.0.0.1:{PORT}/v1",
                "LANGSMITH_TRACING": "false",
            },
        ),
        Agent(
            name="codex-acp-zed",
            compact="/compact",
            packages=("@zed-industries/codex-acp@0.16.0",),
            command=("codex-acp",),
            environment=_CODEX_ENVIRONMENT,
            files={".codex/config.toml": _CODEX},
        ),
        Agent(
            name="codex-acp",
            deletes=True,
            mode="workspace-write",
            escalates=True,
            slash="/status",
            compact="/compact",
            packages=("@agentclientprotocol/codex-acp@2.6.0",),
            command=("codex-acp",),
            needs_node=True,
            environment=_CODEX_ENVIRONMENT,
            files={".codex/config.toml": _CODEX.replace("untrusted", "on-request")},
        ),
        Agent(
            name="claude-agent-acp",
            deletes=True,
            slash="/usage",
            compact="/compact",
            packages=("@agentclientprotocol/claude-agent-acp@0.99.1",),
            command=("claude-agent-acp",),
            needs_node=True,
            environment={
                "ANTHROPIC_BASE_URL": "http://127.0.0.1:{PORT}",
                "ANTHROPIC_API_KEY": "sk-ant-fake",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                "IS_SANDBOX": "1",
            },
        ),
        Agent(
            name="gemini",
            packages=("@google/gemini-cli@0.61.0",),
            command=("gemini", "--acp", "-m", "gemini-2.5-flash"),
            needs_node=True,
            login={"methodId": "gemini-api-key", "_meta": {"api-key": "fake"}},
            slash="/about",
            new_minute=True,
            environment={
                "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:{PORT}",
                "GEMINI_TELEMETRY_ENABLED": "false",
                "GEMINI_CLI_NO_RELAUNCH": "true",
            },
            files={".gemini/settings.json": json.dumps(_GEMINI, indent=1)},
        ),
        Agent(
            name="kimi",
            deletes=True,
            slash="/status",
            compact="/compact",
            packages=("@moonshot-ai/kimi-code@2.1.0",),
            command=("kimi", "acp"),
            needs_node=True,
            environment={"KIMI_CODE_HOME": "{HOME}/.kimi-code", "KIMI_CODE_NO_AUTO_UPDATE": "1"},
            files={".kimi-code/config.toml": _KIMI},
        ),
        Agent(
            name="qwen",
            slash="/status",
            compact="/compress",
            packages=("@qwen-code/qwen-code@0.24.4",),
            command=("qwen", "--acp"),
            needs_node=True,
            environment={
                "OPENAI_API_KEY": "sk-fake",
                "OPENAI_BASE_URL": "http://127.0.0.1:{PORT}/v1",
                "OPENAI_MODEL": "fake-model",
                "QWEN_TELEMETRY_ENABLED": "false",
            },
            files={".qwen/settings.json": json.dumps(_QWEN, indent=1)},
        ),
    )
}
