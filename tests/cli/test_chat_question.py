"""Questions in ``asnap chat``: only a deliberate answer answers them, and text that is typed is never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin.cli.chat.question import QUIET, Attention
from tests.acp_client import AGENT
from tests.cli.stored import loaded, session_ids
from tests.cli.terminal import Terminal

ENTER, CTRL_C, CTRL_D, ESC, ALT_ENTER = "\r", "\x03", "\x04", "\x1b", "\x1b\r"
UP, DOWN, LEFT = "\x1b[A", "\x1b[B", "\x1b[D"
ASKED, ANSWERABLE = "The agent asks: Edit notes.txt", "then Enter"
ALLOWED, REFUSED = "✓ [1] Edit notes.txt  +1 -1", "✗ [1] Edit notes.txt"


@pytest.fixture
def agent(home: Path) -> tuple[str, ...]:
    return (*AGENT, "--state", str(home / "agent.json"))


def ask(terminal: Terminal, keys: str = "ask" + ENTER) -> None:
    terminal.wait_for(lambda: any(line.startswith(">") for line in terminal.lines))
    terminal.send(keys)
    terminal.wait_for(ASKED)


def leave(terminal: Terminal, *, sent: str) -> None:
    """Wait for the answer to the prompt *sent*, and end the chat."""
    terminal.wait_for(f"You said: {sent}")
    terminal.wait_for(lambda: any(line == ">" for line in terminal.lines))
    terminal.send(CTRL_D)
    assert terminal.end() == 0


def prompts(place: Path) -> list[str]:
    (name,) = session_ids(place)
    return [message.text for message in loaded(place, name).messages if message.role == "user"]


@pytest.mark.parametrize("when", ["at once", "after a pause"])
def test_text_typed_at_a_question_is_the_next_prompt_and_no_answer(
    agent: tuple[str, ...], place: Path, when: str
) -> None:
    text = "refactor the 1st file too"
    with Terminal("chat", "--", *agent, lines=40) as terminal:
        ask(terminal)
        if when == "after a pause":
            terminal.wait_for(ANSWERABLE)
        for key in text + ENTER:
            terminal.send(key)
        terminal.wait_for(f"next: {text}")
        terminal.wait_for(ANSWERABLE)
        assert ALLOWED not in terminal.text
        terminal.send(DOWN + DOWN + ENTER)
        terminal.wait_for("→ Reject")
        leave(terminal, sent=text)
    assert REFUSED in terminal.text
    assert prompts(place) == ["ask", text]


def test_text_typed_before_and_during_a_question_is_one_editable_prompt(
    agent: tuple[str, ...], place: Path
) -> None:
    with Terminal("chat", "--", *agent, lines=40) as terminal:
        ask(terminal, "slow-tool 1" + ALT_ENTER + "ask" + ENTER + "and then ")
        terminal.send("make 22")
        terminal.wait_for("> and then make 22")
        terminal.send(LEFT + "\x7f")
        terminal.wait_for("> and then make 2")
        terminal.wait_for(ANSWERABLE)
        terminal.send("1")  # in text it is text, also after a pause
        terminal.wait_for("> and then make 12")
        terminal.wait_for(ANSWERABLE)
        terminal.send(DOWN)
        terminal.send(ENTER)
        terminal.wait_for("→ Allow")
        terminal.wait_for("> and then make 12")
        terminal.send(" tests" + ENTER)
        leave(terminal, sent="and then make 12 tests")
    assert prompts(place) == ["slow-tool 1\nask", "and then make 12 tests"]


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ("1\r", ALLOWED),
        ("2\r", REFUSED),
        (DOWN + ENTER, ALLOWED),
        (UP + ENTER, REFUSED),
        ("1" + DOWN + ENTER, REFUSED),
    ],
)
def test_digit_or_arrows_and_enter_answer(agent: tuple[str, ...], place: Path, keys: str, outcome: str) -> None:
    with Terminal("chat", "--", *agent, lines=40) as terminal:
        ask(terminal)
        terminal.wait_for(ANSWERABLE)
        terminal.send(keys)
        terminal.wait_for(outcome)
        terminal.wait_for(lambda: any(line == ">" for line in terminal.lines))  # the digit is no text
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert prompts(place) == ["ask"]


def test_paste_does_not_answer(agent: tuple[str, ...], place: Path) -> None:
    with Terminal("chat", "--", *agent, lines=40) as terminal:
        ask(terminal)
        terminal.wait_for(ANSWERABLE)
        terminal.send("\x1b[200~1\r\x1b[201~")
        terminal.wait_for("> 1")
        terminal.wait_for(ANSWERABLE)
        assert ALLOWED not in terminal.text
        terminal.send(ESC)
        terminal.wait_for(REFUSED)
        terminal.wait_for("> 1")
        terminal.send("more" + ENTER)
        leave(terminal, sent="more")
    assert prompts(place) == ["ask", "1\nmore"]


# When keys count -------------------------------------------------------------------------------------------------


class Keys:
    """Attention to a question with two options, at a time that the test sets."""

    def __init__(self, picked: int | None = None) -> None:
        self.now = 100.0
        self.attention = Attention(2, picked=picked, clock=lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_no_key_counts_right_after_the_question_appeared() -> None:
    keys = Keys(picked=0)
    keys.wait(QUIET - 0.01)
    assert not keys.attention.is_open
    assert keys.attention.confirm() is None
    keys.wait(QUIET - 0.01)  # since that key
    assert keys.attention.confirm() is None
    keys.wait(QUIET)
    assert keys.attention.confirm() == 0


def test_arrow_counts_only_after_silence_and_then_all_keys_of_the_answer_count() -> None:
    keys = Keys()
    keys.attention.move(1)
    assert keys.attention.picked is None
    keys.wait(QUIET)
    keys.attention.move(1)
    keys.attention.move(1)
    keys.attention.move(1)
    assert keys.attention.confirm() == 0


def test_text_within_an_answer_ends_it() -> None:
    keys = Keys(picked=1)
    keys.wait(QUIET)
    keys.attention.move(1)
    keys.attention.type()
    assert keys.attention.confirm() is None
    keys.wait(QUIET)
    assert keys.attention.confirm() is None  # nothing is picked any more
    keys.wait(QUIET)
    keys.attention.move(-1)
    assert keys.attention.confirm() == 1


def test_question_without_options_has_nothing_to_pick() -> None:
    now = [0.0]
    attention = Attention(0, clock=lambda: now[0])
    now[0] += QUIET
    attention.move(1)
    assert attention.picked is None
