"""``python -m tests.acp_agent``."""

from __future__ import annotations

import os
import signal
import sys

from tests.acp_agent.agent import Agent
from tests.acp_agent.options import parse
from tests.acp_agent.stdio import Peer


def main() -> None:
    """Serve the client on stdin and stdout."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Agent(Peer(sys.stdin.buffer, sys.stdout.fileno()), parse(sys.argv[1:])).run()
    os._exit(0)  # turns under way end with the connection


if __name__ == "__main__":
    main()
