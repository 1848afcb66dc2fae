"""The agent of ``asnap demo``: it speaks ACP, keeps nothing, cannot load a session, and needs no key or network.

It streams an answer word by word. Asked to continue, it continues after the last words in its context; without
context, it starts the answer again. Run as a module, with the pause between words.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

QUESTION = "Why do sessions die?"
GO_ON = "Go on."
ANSWER = (
    "Because an agent keeps what it is saying in memory until the turn is over. "
    "Kill it in mid-sentence and the words you have just read exist nowhere: not in its history, "
    "not in what the model is told next. So every word is written down before you see it, "
    "and every finished turn is on disk before it is called finished. "
    "That is all there is to it, and it is enough: nothing you have seen is ever lost."
)
WORDS = [f"{word} " for word in ANSWER.split()]


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _told(prompt: list[dict[str, Any]]) -> int:
    """Return how many of our words the prompt repeats."""
    text = " ".join(str(block.get("text", "")) for block in prompt)
    return next((n for n in range(len(WORDS), 0, -1) if "".join(WORDS[:n]).strip() in text), 0)


def _speak(session_id: str, prompt: list[dict[str, Any]], pause: float) -> None:
    for word in WORDS[_told(prompt) :]:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": word}}
        _send({"method": "session/update", "params": {"sessionId": session_id, "update": update}})
        time.sleep(pause)


def main(pause: float) -> None:
    """Answer requests until the client hangs up."""
    numbers = itertools.count(1)
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            continue
        result: dict[str, Any] = {}
        if method == "initialize":
            info = {"name": "asnap-demo-agent", "version": "1"}
            result = {"protocolVersion": 1, "agentCapabilities": {"loadSession": False}, "agentInfo": info}
        elif method == "session/new":
            result = {"sessionId": f"demo-{next(numbers)}"}
        elif method == "session/prompt":
            _speak(params["sessionId"], params["prompt"], pause)
            result = {"stopReason": "end_turn"}
        _send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main(float(sys.argv[1]))
