"""Ask the person at the terminal for a line. Ctrl-C ends every question at once.

`input` and `getpass` lose a Ctrl-C that arrives after the question is shown and before they read: Python handles it
only when the read returns, that is after the next line. Here `select` also waits for the pipe to which the signal
handler writes.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from snapshot_plugin.system.terminal import silent

__all__ = ["ask_secret", "ask_yes_or_no"]


def ask_yes_or_no(question: str) -> bool:
    """Ask on stderr; Enter alone means no.

    Raises:
        click.Abort: Ctrl-C or Ctrl-D.
    """
    answers = {"y": True, "yes": True, "n": False, "no": False, "": False}
    while (typed := _line(f"{question} [y/N]: ").strip().lower()) not in answers:
        click.echo("answer y or n", err=True)
    return answers[typed]


def ask_secret(question: str, *, twice: bool = False) -> str:
    """Ask on stderr, without echo, until something is typed; with *twice*, until the same was typed two times.

    Raises:
        click.Abort: Ctrl-C or Ctrl-D.
    """
    while True:
        while not (words := _line(f"{question}: ", echo=False)):
            pass
        if not twice or _line("Repeat for confirmation: ", echo=False) == words:
            return words
        click.echo("they are not the same; once more", err=True)


def _line(question: str, *, echo: bool = True) -> str:
    try:
        with _interruptible() as woken, _terminal(echo=echo):
            click.echo(question, nl=False, err=True)
            while sys.stdin not in select.select([sys.stdin, woken], [], [])[0]:
                os.read(woken, 4096)  # another signal, such as a resize: Ctrl-C has raised
            typed = sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)  # the next output starts on a new line
        raise click.Abort from None
    if not typed or not echo:
        click.echo(err=True)
    if not typed:
        raise click.Abort
    return typed.rstrip("\r\n")


@contextmanager
def _interruptible() -> Iterator[int]:
    """Raise KeyboardInterrupt at Ctrl-C, even in an event loop. What is yielded can be read after each signal."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    handler_before = signal.signal(signal.SIGINT, signal.default_int_handler)
    wake_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(wake_before)
        signal.signal(signal.SIGINT, handler_before)
        os.close(wake)
        os.close(woken)


@contextmanager
def _terminal(*, echo: bool) -> Iterator[None]:
    if echo:
        yield
        return
    with silent(sys.stdin.fileno()):
        yield
