"""Control sockets: Unix sockets of one user, on which a process answers requests about its live sessions."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys

from snapshot_plugin.errors import Unsupported

__all__ = ["ask", "is_dead", "is_hung_up", "is_same_user", "require"]


def require() -> None:
    """Raise `Unsupported` on a system without Unix sockets."""
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "geteuid"):
        raise Unsupported("control sockets need Unix sockets, which this system does not have")


def is_same_user(peer: socket.socket) -> bool:
    """Whether the process at the other end runs as this user, according to the kernel."""
    if sys.platform == "linux":
        _pid, uid, _gid = struct.unpack("iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:  # pragma: no cover — macOS: struct xucred, whose second word is the user
        _version, uid = struct.unpack_from("II", peer.getsockopt(0, 1, 76))
    return bool(uid == os.geteuid())


def is_hung_up(peer: socket.socket) -> bool:
    """Whether the other end has been closed."""
    poll = select.poll()
    poll.register(peer.fileno(), 0)
    return bool(poll.poll(0))


def is_dead(path: str) -> bool:
    """Whether the process that made the socket at *path* is gone."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def ask(path: str, line: bytes, *, timeout: float, longest: int) -> bytes:
    """Send one line to the socket at *path*, and return the line that is answered. May raise OSError."""
    require()
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(timeout)
        peer.connect(path)
        peer.sendall(line)
        with peer.makefile("rb") as answers:
            return answers.readline(longest)
