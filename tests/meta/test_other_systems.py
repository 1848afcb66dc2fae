"""What only POSIX has stands in `snapshot_plugin.system`; everything else can be imported without it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_WITHOUT_POSIX = """
import importlib, json, os, pkgutil, signal, socket, sys

for name in ("fcntl", "termios", "tty", "pty", "pwd", "resource"):
    sys.modules[name] = None
for module, names in {
    os: "register_at_fork fork O_CLOEXEC O_NOFOLLOW O_DIRECTORY O_NONBLOCK O_NOCTTY killpg fchmod fdatasync",
    signal: "SIGKILL SIGHUP SIGSTOP SIGCONT SIGPIPE SIGWINCH SIGALRM pthread_sigmask",
    socket: "AF_UNIX SO_PEERCRED",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

import snapshot_plugin
from snapshot_plugin.errors import MissingExtra

wrong = {}
modules = pkgutil.walk_packages(snapshot_plugin.__path__, "snapshot_plugin.", onerror=lambda name: None)
for each in modules:
    if each.name.startswith(("snapshot_plugin.frameworks.", "snapshot_plugin.__main__")):
        continue
    try:
        importlib.import_module(each.name)
    except MissingExtra:
        pass
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        if "snapshot_plugin" in trace.tb_frame.f_code.co_filename:  # else a library needs POSIX here, not we
            wrong[each.name] = repr(error)
"""


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_POSIX + program], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_every_module_can_be_imported_without_posix() -> None:
    assert json.loads(_run("print(json.dumps(wrong))")) == {}


@pytest.mark.parametrize(
    "use",
    [
        "snapshot_plugin.FilesystemStore('store')",
        "__import__('snapshot_plugin.system.processes').system.processes.AgentProcess(['agent'])",
        "__import__('snapshot_plugin.system.sockets').system.sockets.require()",
        "__import__('snapshot_plugin.system.terminal').system.terminal.silent(0).__enter__()",
        "snapshot_plugin.memory.ProjectMemory('.')",
    ],
)
def test_what_needs_posix_says_so_when_it_is_used(use: str) -> None:
    program = f"""
import snapshot_plugin.memory
try:
    {use}
except snapshot_plugin.errors.Unsupported as error:
    print(error.code, error.hint)
"""
    assert _run(program).startswith("unsupported use Linux")
