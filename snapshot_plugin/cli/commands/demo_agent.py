"""The agent of ``asnap demo``: it speaks ACP, keeps nothing, cannot load a session, and needs no key or network.

It streams an answer word by word. Asked to continue, it continues after the last words in its context; without
context, it starts the answer again. Run as a module, with the pause between words.
"""

from __future__ import annotations

import json
import secrets
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
_BY_CHANCE = 2
"""So many of our words in a row may be somebody else's."""
NO_MORE = "That was all I know. Try a real agent: asnap chat -- opencode acp "


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _told(prompt: list[dict[str, Any]]) -> int:
    """Return how many of our words the prompt repeats, maybe in several messages."""
    text = " ".join(str(block.get("text", "")) for block in prompt)
    told = 0
    for _ in WORDS:
        ends = range(len(WORDS), told + _BY_CHANCE, -1)
        runs = ((end, "".join(WORDS[told:end]).strip()) for end in ends)
        end, run = next(((end, run) for end, run in runs if run in text), (told, ""))
        if not run:
            break
        told, text = end, text.partition(run)[2]
    return told


def _speak(session_id: str, prompt: list[dict[str, Any]], pause: float) -> None:
    for word in WORDS[_told(prompt) :] or [NO_MORE]:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": word}}
        _send({"method": "session/update", "params": {"sessionId": session_id, "update": update}})
        time.sleep(pause)


def main(pause: float) -> None:
    """Answer requests until the client hangs up."""
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
            result = {"sessionId": f"demo-{secrets.token_hex(4)}"}
        elif method == "session/prompt":
            _speak(params["sessionId"], params["prompt"], pause)
            result = {"stopReason": "end_turn"}
        _send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main(float(sys.argv[1]))
