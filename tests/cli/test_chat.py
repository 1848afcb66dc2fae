from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import anyio
import pyte
import pytest
from prompt_toolkit.application import create_app_session, get_app, in_terminal
from prompt_toolkit.input import create_input, create_pipe_input
from prompt_toolkit.output import DummyOutput

from snapshot_plugin.cli.chat.asking import prompt_session
from snapshot_plugin.cli.chat.keys import TurnKeys
from snapshot_plugin.cli.chat.streaming import MarkdownStream, WordWrap
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.live.lease import lease_of
from snapshot_plugin.testing import make_snapshot
from snapshot_plugin.testing.acp_client import AGENT
from tests.cli.conftest import Asnap, saved
from tests.cli.stored import loaded, session_ids
from tests.cli.terminal import PATIENCE, Terminal

ENTER, CTRL_C, CTRL_D, ESC, UP, DOWN = "\r", "\x03", "\x04", "\x1b", "\x1b[A", "\x1b[B"
ANSWERABLE = "then Enter"
"""Shown at a question once keys can answer it."""
PASSPHRASE = "correct horse battery staple"
COLOUR = re.compile(rb"\x1b\[3\dm")
BOLD, OFF = "\x1b[1m", "\x1b[0m"


@pytest.fixture
def agent(home: Path) -> tuple[str, ...]:
    return (*AGENT, "--state", str(home / "agent.json"))


def said(terminal: Terminal, text: str, wanted: str) -> None:
    """Type a prompt once there is one, and wait for what it leads to, which is more than the typed words."""
    terminal.wait_for(lambda: any(line.startswith(">") for line in terminal.lines))  # now it reads keys
    terminal.send(text + ENTER)
    typed = text.splitlines()
    terminal.wait_for(lambda: any(wanted in line for line in terminal.lines[1:] if line.lstrip("> ") not in typed))


def test_a_turn_streams_asks_shows_tools_and_is_saved(agent: tuple[str, ...], place: Path) -> None:
    with Terminal("chat", "--", *agent, lines=40) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say hello **bold** and `code`", "hello bold and code")
        said(terminal, "think about it\nplan", "Leap")
        terminal.send("ask" + ENTER)
        terminal.wait_for("The agent asks: Edit notes.txt")
        terminal.wait_for('"text": "new"')  # what it would do is shown before the user decides
        terminal.wait_for(ANSWERABLE)
        terminal.send("1" + ENTER)
        terminal.wait_for("✓ [1] Edit notes.txt  +1 -1")
        said(terminal, "/open 1", "+new")
        terminal.wait_for("Scripted agent · small · mode ask")
        said(terminal, "/rename my talk", "is called 'my talk'")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert b"asnap resume" in terminal.received
    assert COLOUR.search(terminal.received)
    (name,) = session_ids(place)
    session = loaded(place, name)
    assert session.title == "my talk"
    assert "hello **bold** and `code`" in session.messages[1].text


def test_ctrl_c_cancels_the_turn_and_the_chat_continues(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        terminal.send("stream 1000 30" + ENTER)
        terminal.wait_for("part-003")
        terminal.send(CTRL_C)
        terminal.wait_for("(cancelled)")
        said(terminal, "say still here", "still here")
        terminal.send("/quit" + ENTER)
        assert terminal.end() == 0


def test_killed_chat_is_offered_for_resume_with_every_word(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say remember the zebra", "remember the zebra")
        terminal.send("stream 400 20" + ENTER)
        terminal.wait_for("part-010")
        kill_all(terminal)
    with Terminal("chat", "--", *agent, columns=100, lines=60) as terminal:
        terminal.wait_for("“say remember the zebra” was interrupted just now, after 2 turns.")
        terminal.wait_for("Resume it?")
        terminal.wait_for(ANSWERABLE)
        terminal.send(ENTER)
        terminal.wait_for("starting the agent")
        terminal.wait_for("restored: native-load, 4 messages, from the agent's own memory")
        terminal.wait_for("remember the zebra")
        terminal.wait_for("part-010")
        said(terminal, "remember", "earlier turns")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        assert "Resume it" not in terminal.text
        terminal.wait_for(lambda: any(line.startswith(">") for line in terminal.lines))  # now it reads keys
        terminal.send(CTRL_D)
        terminal.end()


def environment_of(command: tuple[str, ...]) -> str:
    """The environment of the process with this command line."""
    line = "\0".join(command).encode() + b"\0"
    (found,) = (each for each in Path("/proc").glob("[0-9]*") if _command_line(each) == line)
    return (found / "environ").read_text()


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def descendants(terminal: Terminal) -> list[int]:
    """The process in the terminal and those below it, in the order in which they were started."""
    found = [terminal._child.pid]
    listed = subprocess.check_output(["ps", "-eo", "pid,ppid"], text=True).split("\n")[1:]
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed if line.strip())}
    for _ in range(4):
        found += [child for child, parent in parents.items() if parent in found and child not in found]
    return found


def kill_all(terminal: Terminal) -> None:
    """Kill the chat, the recorder and the agent, as a power cut would."""
    for each in descendants(terminal):
        with suppress(ProcessLookupError):  # an agent may end as soon as its proxy is gone
            os.kill(each, signal.SIGKILL)


def test_resume_continues_in_the_terminal_and_print_shows_the_command(agent: tuple[str, ...], place: Path) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say the first words", "the first words")
        said(terminal, "/fork other way", "restored: ")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert {loaded(place, name).title for name in session_ids(place)} == {None, "other way"}
    with Terminal("resume", "other way", columns=100, lines=50) as terminal:
        terminal.wait_for("the first words")
        terminal.wait_for("restored: ")
        said(terminal, "say the last words", "the last words")
        terminal.send("/sessions" + ENTER)
        terminal.wait_for("Enter resume")
        terminal.send(ESC)
        terminal.wait_for(lambda: b"\x1b[?1049l" in terminal.received)
        said(terminal, "say after the picker", "after the picker")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert b"asnap run" not in terminal.received
    with Terminal("resume", "other way", "--print", columns=200) as terminal:
        terminal.end()
    assert b"asnap run --session" in terminal.received


def test_narrow_terminal_without_colour_handles_resize_and_a_huge_paste(
    agent: tuple[str, ...], place: Path
) -> None:
    pasted = "\n".join(f"line {n}" for n in range(10_000))
    with Terminal("chat", "--", *agent, columns=40, env={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for("/help")
        terminal.send(f"\x1b[200~{pasted}\x1b[201~")
        terminal.wait_for("[pasted text 1: 10000 lines]")
        terminal.resize(60, 20)
        terminal.send(ENTER)
        terminal.wait_for("line 9999")
        terminal.send(CTRL_D)
        terminal.end()
    (name,) = session_ids(place)
    assert loaded(place, name).messages[0].text == pasted
    assert not COLOUR.search(terminal.received)
    with Terminal("resume", name, columns=100, lines=60) as terminal:
        terminal.wait_for("restored: ")
        terminal.send(CTRL_D)
        terminal.end()
    assert b"line 9999" in terminal.received
    assert b"line 5000" not in terminal.received


def test_killed_agent_is_restarted_and_the_chat_continues(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent, columns=200, lines=50) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say remember the zebra", "remember the zebra")
        terminal.send("crash" + ENTER)
        terminal.wait_for("The prompt was not finished, and nothing was re-run: send it again if you want it.")
        said(terminal, "say still here", "still here")
        said(terminal, "remember", "earlier turns")
        terminal.wait_for("Scripted agent · small · mode ask · restored: native-load")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert "".join(terminal.lines).count("The prompt was not finished") == 1


def agent_process(terminal: Terminal, agent: tuple[str, ...]) -> int:
    line = "\0".join(agent).encode() + b"\0"
    (found,) = (each for each in descendants(terminal) if _command_line(Path(f"/proc/{each}")) == line)
    return found


def test_keys_work_again_after_the_agent_died_with_a_question_open(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent, columns=200, lines=50) as terminal:
        terminal.wait_for("/help for commands")
        terminal.send("ask" + ENTER)
        terminal.wait_for("none of them")
        os.kill(agent_process(terminal, agent), signal.SIGKILL)
        terminal.wait_for("mode ask · restored: ")
        terminal.send("stream 60 20" + ENTER)
        terminal.wait_for("part-003")
        terminal.send("say typed ahead" + ENTER + CTRL_D)
        assert terminal.end() == 0
    assert "typed ahead" in terminal.lines


def test_agent_killed_between_turns_is_back_before_the_next_prompt(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent, lines=50) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say remember the zebra", "remember the zebra")
        os.kill(agent_process(terminal, agent), signal.SIGKILL)
        terminal.wait_for("mode ask · restored: ")
        terminal.send(CTRL_D)
        assert terminal.end() == 0


def test_second_ctrl_c_leaves_an_agent_that_does_not_cancel(agent: tuple[str, ...], place: Path) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        terminal.send("stream 1000 30" + ENTER)
        terminal.wait_for("part-003")
        os.kill(agent_process(terminal, agent), signal.SIGSTOP)
        terminal.send(CTRL_C)
        terminal.wait_for("Ctrl-C again ends the chat")
        terminal.send(CTRL_C)
        assert terminal.end() == 0
    (name,) = session_ids(place)
    assert "part-003" in loaded(place, name).messages[-1].text


def test_ctrl_c_at_the_prompt_clears_it_and_the_second_on_an_empty_one_leaves(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        terminal.send("never sent")
        terminal.wait_for("> never sent")
        terminal.send(CTRL_C)
        terminal.wait_for(lambda: ">" in terminal.lines)
        assert "ends the chat" not in terminal.text
        terminal.send(CTRL_C)
        terminal.wait_for("Ctrl-C again ends the chat")
        said(terminal, "say not yet", "not yet")
        terminal.wait_for(lambda: terminal.lines[-1] == " Scripted agent · small · mode ask")  # the turn is over
        terminal.send(CTRL_C)
        terminal.wait_for(lambda: terminal.text.count("Ctrl-C again ends the chat") == 2)
        terminal.send(CTRL_C)
        assert terminal.end() == 0


@pytest.mark.parametrize(("key", "wanted"), [(CTRL_C, "(cancelled)"), (ESC, "✗ [1] Edit notes.txt")])
def test_permission_question_can_be_left_unanswered(agent: tuple[str, ...], key: str, wanted: str) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        terminal.send("ask" + ENTER)
        terminal.wait_for("Esc  none of them")
        if key == ESC:
            terminal.wait_for(ANSWERABLE)
        terminal.send(key)
        terminal.wait_for(wanted)
        said(terminal, "say still here", "still here")
        terminal.send(CTRL_D)
        assert terminal.end() == 0


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_ctrl_c_and_ctrl_d_leave_instead_of_resuming(agent: tuple[str, ...], place: Path, key: str) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say remember the zebra", "remember the zebra")
        kill_all(terminal)
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("Resume it?")
        terminal.wait_for("Esc  leave")
        terminal.send(key)
        assert terminal.end() == 130
    assert len(session_ids(place)) == 1


def test_ctrl_c_ends_the_start_of_an_agent_that_does_not_answer(agent: tuple[str, ...], home: Path) -> None:
    hold = home / "hold"
    hold.touch()
    agent = (*agent, "--hold", str(hold))
    with Terminal("chat", "--", *agent) as terminal:
        line = "\0".join(agent).encode() + b"\0"
        terminal.wait_for(lambda: any(_command_line(Path(f"/proc/{pid}")) == line for pid in descendants(terminal)))
        terminal.send(CTRL_C)
        assert terminal.end() == 130


@pytest.mark.parametrize("early", [True, False])
def test_keys_typed_before_the_first_prompt_are_shown_once(agent: tuple[str, ...], home: Path, early: bool) -> None:
    hold = home / "hold"
    hold.touch()
    with Terminal("chat", "--", *agent, "--hold", str(hold)) as terminal:
        if not early:
            terminal.wait_for("starting the agent")
        terminal.send("typed ahead")
        terminal.wait_for("starting the agent")
        assert not early or terminal.lines[0] == "starting the agent …"
        hold.unlink()
        terminal.wait_for("> typed ahead")
        assert terminal.text.count("typed ahead") == 1
        terminal.send(CTRL_C + CTRL_D)
        assert terminal.end() == 0


@pytest.mark.parametrize("early", [True, False])
def test_ctrl_d_typed_before_the_first_prompt_leaves(agent: tuple[str, ...], home: Path, early: bool) -> None:
    hold = home / "hold"
    hold.touch()
    with Terminal("chat", "--", *agent, "--hold", str(hold)) as terminal:
        if not early:
            terminal.wait_for("starting the agent")
        terminal.send(CTRL_D)
        terminal.wait_for("starting the agent")
        hold.unlink()
        assert terminal.end() == 0


def test_ctrl_d_typed_while_output_appears_above_the_prompt_leaves() -> None:
    keyboard, terminal = pty.openpty()

    async def typed_meanwhile() -> None:
        async with in_terminal():
            os.write(keyboard, CTRL_D.encode())
            await anyio.wait_readable(terminal)  # the kernel has taken it

    def begin() -> None:
        _ = get_app().create_background_task(typed_meanwhile())

    async def ask() -> None:
        prompt = prompt_session(lambda: "", colour=False)
        with anyio.fail_after(PATIENCE):
            await prompt.prompt_async(pre_run=begin)

    with os.fdopen(terminal) as source, create_app_session(input=create_input(source), output=DummyOutput()):
        TurnKeys()
        with pytest.raises(EOFError):
            anyio.run(ask)
    os.close(keyboard)


def test_a_line_break_typed_without_a_prompt_is_kept() -> None:
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        keys = TurnKeys()
        typed.send_text("one\ntwo")
        keys.take_typed()

    assert keys.ahead == "one\ntwo"


def test_keys_typed_before_a_question_do_not_answer_it(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say remember the zebra", "remember the zebra")
        kill_all(terminal)
    with Terminal("chat", "--", *agent, columns=100) as terminal:
        terminal.send("no more zebras")
        terminal.wait_for("Resume it?")
        terminal.wait_for("> no more zebras")
        terminal.wait_for(ANSWERABLE)
        terminal.send(DOWN + UP + ENTER)
        terminal.wait_for("restored: native-load")
        terminal.wait_for("> no more zebras")
        terminal.send(CTRL_C + CTRL_D)
        assert terminal.end() == 0


def test_sessions_switches_back_to_the_one_that_was_forked(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent, columns=100, lines=40) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say the first words", "the first words")
        said(terminal, "/rename", "error: give a name")
        said(terminal, "/rename trunk", "is called 'trunk'")
        said(terminal, "/fork latest", "error: 'latest' cannot be a name")
        said(terminal, "/fork second", "restored: ")
        said(terminal, "say only in the fork", "only in the fork")
        terminal.send("/sessions" + ENTER)
        terminal.wait_for("2 of 2")
        terminal.send("trunk")  # the fork's words do not match, whichever of the two was saved last
        terminal.wait_for(lambda: any(line.startswith("> ") and " trunk " in line for line in terminal.lines))
        terminal.send(ENTER)
        terminal.wait_for(lambda: any(line.startswith("trunk · 2 messages") for line in terminal.lines))
        terminal.wait_for(lambda: terminal.lines[-1] == " Scripted agent · small · mode ask")
        said(terminal, "remember", "earlier turns: 1; last prompt: say the first words")
        terminal.send(CTRL_D)
        assert terminal.end() == 0


def test_export_writes_below_the_home_directory_and_tags_no_snapshot(
    agent: tuple[str, ...], home: Path, place: Path, asnap: Asnap
) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say the first words", "the first words")
        said(terminal, "/export ~/talk.md", "wrote ~/talk.md")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert "the first words" in (home / "talk.md").read_text()
    [session_id] = session_ids(place)
    snapshots = asnap("show", session_id, "--history", "--json").json["history"]
    assert [each["tags"] for each in snapshots if each["tags"]] == []


@pytest.mark.parametrize(("flags", "grade"), [((), "native-load"), (("--no-fork",), "context")])
def test_fork_is_made_by_the_agent_if_it_can_fork(
    agent: tuple[str, ...], flags: tuple[str, ...], grade: str, place: Path, asnap: Asnap
) -> None:
    with Terminal("chat", "--", *agent, *flags, columns=100, lines=40) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say the first words", "the first words")
        said(terminal, "/rename trunk", "is called 'trunk'")
        said(terminal, "/fork", f"restored: {grade}, 2 messages")
        terminal.wait_for(f"mode ask · restored: {grade}")
        said(terminal, "remember", f"earlier turns: {int(grade == 'native-load')}; ")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert {loaded(place, name).title for name in session_ids(place)} == {"trunk", "trunk (fork)"}
    listed = asnap("undo", "--list", "--json").json["operations"]
    assert [each["operation"] for each in listed] == ["fork", "rename"]


def test_session_restored_in_the_background_is_reported_when_the_user_returns_to_it(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent, columns=100, lines=50) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say the first words", "the first words")
        said(terminal, "/rename trunk", "is called 'trunk'")
        said(terminal, "/fork branch", "restored: native-load, 2 messages")
        said(terminal, "say more", "more")
        os.kill(agent_process(terminal, agent), signal.SIGKILL)
        terminal.wait_for("restored: native-load, 4 messages")
        assert terminal.text.count("restored: native-load, 2 messages") == 1
        said(terminal, "say all is well", "all is well")
        assert terminal.text.count("restored: native-load, 2 messages") == 1
        terminal.send("/sessions" + ENTER)
        terminal.wait_for("2 of 2")
        terminal.send("trunk")
        terminal.wait_for(lambda: any(line.startswith("> ") and " trunk " in line for line in terminal.lines))
        terminal.send(ENTER)
        back = "trunk · 2 messages"
        terminal.wait_for(lambda: "restored: native-load, 2 messages" in terminal.text.partition(back)[2])
        terminal.send(CTRL_D)
        assert terminal.end() == 0


def test_restored_session_is_reported_once(agent: tuple[str, ...], place: Path) -> None:
    with Terminal("chat", "--", *agent, lines=40) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say the first words", "the first words")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    with Terminal("resume", *session_ids(place), lines=40) as terminal:
        terminal.wait_for("say the first words · 2 messages")  # it has no title
        terminal.wait_for("mode ask · restored: native-load")
        os.kill(agent_process(terminal, agent), signal.SIGKILL)
        terminal.wait_for(lambda: terminal.text.count("restored: native-load, 2 messages") == 2)
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert b"was restored" not in terminal.received


def test_session_switched_to_is_offered_after_a_kill(agent: tuple[str, ...], place: Path) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say the first words", "the first words")
        said(terminal, "/fork another way", "restored: ")
        os.kill(terminal._child.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    # the recorder notices, saves and ends
    while any(lease_of(each).owner for each in (place / "sessions").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("“another way” was interrupted")
        terminal.wait_for(ANSWERABLE)
        terminal.send("n" + ENTER)
        terminal.wait_for("/help for commands")


def test_passphrase_is_asked_once_and_hidden_from_the_agent(agent: tuple[str, ...], place: Path) -> None:
    saved(place, make_snapshot("hello", session_id="01a"), key=Passphrase(PASSPHRASE))
    with Terminal("chat", "--", *agent, lines=40) as terminal:
        terminal.wait_for("Passphrase:")
        terminal.send(PASSPHRASE + ENTER)
        terminal.wait_for("/help for commands")
        said(terminal, "say the agent is here", "the agent is here")
        assert PASSPHRASE not in environment_of(agent)
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    (name,) = set(session_ids(place, key=Passphrase(PASSPHRASE))) - {"01a"}
    with Terminal("resume", name, lines=40) as terminal:
        terminal.wait_for("Passphrase:")
        terminal.send(PASSPHRASE + ENTER)
        terminal.wait_for("restored: ")
        said(terminal, "say and on it goes", "and on it goes")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    assert terminal.received.count(b"Passphrase:") == 1


def test_chat_in_a_database_resumes(agent: tuple[str, ...], postgres_url: str) -> None:
    with Terminal("chat", "--store", postgres_url, "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "say remember the zebra", "remember the zebra")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    with Terminal("resume", "latest", "--store", postgres_url, columns=100, lines=50) as terminal:
        terminal.wait_for("restored: ")
        assert "remember the zebra" in terminal.text
        said(terminal, "say and on it goes", "and on it goes")
        terminal.send(CTRL_D)
        assert terminal.end() == 0


def test_chat_without_a_terminal_names_the_alternative(asnap_process: Asnap, agent: tuple[str, ...]) -> None:
    done = asnap_process("chat", "--", *agent)
    assert done.code == 2
    assert "asnap run" in done.err


@pytest.mark.parametrize("installed", [True, False])
def test_missing_agent_is_one_error_that_names_another_way(home: Path, installed: bool) -> None:
    if installed:
        (home / "opencode").touch(0o755)
    with Terminal("chat", "--", "no-such-agent", columns=120, env={"PATH": str(home)}) as terminal:
        assert terminal.end() == 9
    assert [line for line in terminal.lines if line] == [
        "error: there is no program 'no-such-agent': install the agent, or correct the command",
        "  next: asnap chat -- opencode acp" if installed else "  next: asnap demo",
    ]


def test_agent_that_ends_at_once_is_named_as_the_cause(place: Path) -> None:
    with Terminal("chat", "--", *AGENT, "--no-such-option") as terminal:
        assert terminal.end() == 9
    assert "error: the agent ended instead of answering" in terminal.text
    assert "send it again" not in terminal.text


def test_hostile_agent_output_cannot_control_the_terminal(agent: tuple[str, ...]) -> None:
    with Terminal("chat", "--", *agent) as terminal:
        terminal.wait_for("/help for commands")
        words = r'{"type":"text","text":"\u001b]0;pwned\u0007ok then"}'
        said(terminal, f'update {{"sessionUpdate":"agent_message_chunk","content":{words}}}', "ok then")
        terminal.send(CTRL_D)
        terminal.end()
    assert b"\x1b]0;pwned" not in terminal.received


# Markdown while it streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("plain words", "plain words"),
        ("a **bold** word", f"a {OFF}{BOLD}bold{OFF} word"),
        ("# Title\nbody", f"{BOLD}Title{OFF}\nbody"),
        ("- one\n* two\n", "• one\n• two\n"),
        ("2 * 3 = 6", "2 * 3 = 6"),
        ("```py\nx = '**'\n```\nend", "\x1b[2m```py\x1b[0m\n\x1b[36mx = '**'\x1b[0m\n\x1b[2m```\x1b[0m\nend"),
    ],
)
def test_markdown_renders_the_same_however_it_is_chunked(markdown: str, shown: str, step: int) -> None:
    stream = MarkdownStream(colour=True)
    parts = [markdown[at : at + step] for at in range(0, len(markdown), step)]
    assert "".join(stream.feed(part) for part in parts) + stream.end() == shown


def test_streamed_words_are_shown_immediately() -> None:
    stream = MarkdownStream(colour=True)
    assert stream.feed("Hello") == "Hello"
    assert stream.feed(" wor") == " wor"
    assert MarkdownStream(colour=False).feed("**as is**\x1b[31m") == "**as is**"


def screen_of(parts: Iterable[str], columns: int) -> list[str]:
    screen, wrap = pyte.Screen(columns, 12), WordWrap()
    stream = pyte.Stream(screen)
    for part in parts:
        stream.feed(wrap.feed(part, columns).replace("\n", "\r\n"))
    return "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n")


PROSE = "A **streamed** answer breaks its lines between the words, `in code` too, and never in the midst of any."


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("columns", [20, 31, 40])
def test_streamed_lines_break_between_words(columns: int, colour: bool, step: int) -> None:
    stream = MarkdownStream(colour=colour)
    parts = [stream.feed(PROSE[at : at + step]) for at in range(0, len(PROSE), step)]
    shown = screen_of([*parts, stream.end()], columns)
    text = PROSE.replace("**", "").replace("`", "") if colour else PROSE
    assert shown == textwrap.wrap(text, columns - 1, break_on_hyphens=False)


@pytest.mark.parametrize("step", [1, 4, 1000])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "```\nls some/directory and\n```\nand more words after",
            "```|ls some/directory an|d|```|and more words|after",
        ),
        ("see https://example.org/longer/than/a/line yes", "see|https://example.org/|longer/than/a/line|yes"),
        ("日本語日本語日本語日本語 ok", "日本語日本語日本語日|本語 ok"),
    ],
    ids=["code", "long word", "wide characters"],
)
def test_terminal_breaks_code_long_words_and_wide_characters(text: str, shown: str, step: int) -> None:
    assert screen_of((text[at : at + step] for at in range(0, len(text), step)), 20) == shown.split("|")


def test_word_that_is_moved_keeps_its_styles() -> None:
    wrap = WordWrap()
    wrap.feed(f"{BOLD}some words here ha{OFF}", 20)
    assert wrap.feed("lf", 20) == f"\b\b  \n{OFF}{BOLD}ha{OFF}lf"


def test_words_of_a_resumed_session_break_between_words(agent: tuple[str, ...], place: Path) -> None:
    with Terminal("chat", "--", *agent, columns=40) as terminal:
        terminal.wait_for("/help")
        said(terminal, "/help", "Other commands go to the agent.")
        assert "                 and continue it" in terminal.lines
        said(terminal, f"say {PROSE}", "in the midst")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    with Terminal("resume", *session_ids(place), columns=40, lines=60) as terminal:
        terminal.wait_for("restored: ")
        assert all(line in terminal.lines for line in textwrap.wrap(PROSE, 39))
        terminal.send(CTRL_D)
        assert terminal.end() == 0


def test_rendering_a_chunk_costs_far_less_than_a_frame() -> None:
    stream, wrap, start = MarkdownStream(colour=True), WordWrap(), time.process_time()
    for _ in range(10_000):
        wrap.feed(stream.feed("some **words** of a line "), 80)
    assert time.process_time() - start < 10.0


def test_resuming_an_imported_session_asks_for_confirmation(place: Path) -> None:
    saved(place, make_snapshot("hello", "there", session_id="01imported"))
    with Terminal("resume", "01imported") as terminal:
        assert terminal.end() == 2
    assert b"--with" in terminal.received
