"""``python -m integration.scale [--quick]``: nodes that die, stop and wake, a server that dies, writers that race.

Prints one line for each scenario. Exits with 1 if something acknowledged was lost, something wrong was stored, or a
mutation was not caught. Needs ``pip install '.[test]'``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from integration.scale.line import bad_line
from integration.scale.node import MUTATIONS, SESSION, opened, words_of
from integration.scale.server import Server, running
from snapshot_plugin.model.ids import new_id
from tests.object_servers import seaweedfs

PATIENCE = 120.0
LEASE = 1.0
HOMES = tempfile.TemporaryDirectory(prefix="asnap-homes-")
SKEW = 3600.0


class Count(NamedTuple):
    """What came of a scenario: promises made, promises broken, and things stored that must not be."""

    acknowledged: int = 0
    lost: int = 0
    wrong: int = 0

    def __add__(self, other: Count) -> Count:  # type: ignore[override] # counts are added, not joined
        return Count(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Node:
    """A process that records or saves, and what it said. It has a home of its own, and may have a wrong clock."""

    def __init__(self, url: str, mode: str, mutation: str = "", *, skew: float = 0.0) -> None:
        command = [sys.executable, "-m", "integration.scale.node", url, mode, mutation, str(skew)]
        env = {**os.environ, "HOME": tempfile.mkdtemp(prefix="home-", dir=HOMES.name)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        self.said: list[str] = []
        self.tools: list[float] = []
        """When each tool was asked for, by the clock that all processes of the machine share."""
        self.has: list[str] | None = None

    def hear(self, is_enough: Callable[[str], bool]) -> str:
        """Listen until a line is what is waited for; returns the line, or nothing at the end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):  # it was killed while it said this
                break
            kind, _, rest = line.strip().partition(" ")
            if kind in ("said", "acked"):
                self.said.append(rest)
            if kind == "tool":
                self.tools.append(float(rest))
            if kind == "has":
                self.has = json.loads(rest)
            if is_enough(kind):
                return kind
        return ""

    def hear_words(self, count: int) -> None:
        """Listen to so many words more, recorded or acknowledged."""
        target = len(self.said) + count
        self.hear(lambda _kind: len(self.said) >= target)

    def hear_lines(self, count: int, *, or_until: str) -> None:
        """Listen to so many lines, or until a line of this kind."""
        lines = iter(range(count - 1))
        self.hear(lambda kind: kind == or_until or next(lines, None) is None)

    def kill(self) -> None:
        """``kill -9``, and hear what it had said until then."""
        self.process.send_signal(signal.SIGKILL)
        self.hear(lambda _kind: False)
        self.process.wait(PATIENCE)


def took_over(url: str, mutation: str = "", *, mode: str = "stream", skew: float = 0.0) -> Node:
    """A node that has the session: tried until the lease of the owner before is over."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        node = Node(url, mode, mutation, skew=skew)
        if node.hear(lambda kind: kind in ("has", "locked")) == "has":
            return node
        node.process.wait(PATIENCE)
    raise AssertionError("nobody could take the session over")


def place(server: Server) -> str:
    return f"{server.url}&schema=s_{new_id()}&lease={LEASE}"


def stored(url: str) -> list[str]:
    store = opened(url, background=False)
    try:
        assert store.sync.check().ok
        return words_of(store.sync.load(SESSION))
    finally:
        store.close()


def compared(said: list[str], has: list[str]) -> Count:
    """*said* must be in *has*, once and in order; what is twice or out of order is wrong."""
    lost = len(set(said) - set(has))
    positions = [has.index(word) for word in said if word in has]
    wrong = len(has) - len(set(has)) + sum(a > b for a, b in pairwise(positions))
    return Count(len(said), lost, wrong)


def killed_owner(server: Server, rounds: int) -> Count:
    """The owner is killed in mid-stream, another node takes over, and so on."""
    url, said = place(server), []
    for _ in range(rounds):
        node = took_over(url)
        node.hear_words(30)
        node.kill()
        said += node.said
    last = took_over(url)
    last.kill()
    return compared(said, last.has or [])


def stopped_owner(server: Server, rounds: int, mutation: str = "", *, words: int = 30) -> Count:
    """The owner is stopped, overtaken, and woken after the new owner was killed: it writes nothing, runs no tool.

    The new owner says *words* words. Without any, only the epoch tells the old owner that it was overtaken.
    """
    total = Count()
    for _ in range(rounds):
        url = place(server)
        first = took_over(url, mutation)
        first.hear_words(30)
        first.process.send_signal(signal.SIGSTOP)
        second = took_over(url, mode="stream" if words else "hold")
        fenced = time.monotonic()
        if words:
            second.hear_words(words)
        second.kill()
        before = [*(second.has or []), *second.said]
        first.process.send_signal(signal.SIGCONT)
        first.hear_lines(100, or_until="fenced")
        first.kill()
        third = took_over(url)
        third.kill()
        has = third.has or []
        tools = sum(asked > fenced for asked in first.tools)
        total += compared(before, has) + Count(wrong=tools + len(set(has) - set(before) - _unheard(second)))
    return total


def _unheard(node: Node) -> set[str]:
    """What a killed node may have recorded and not said any more."""
    number = int(node.said[-1].partition("-")[2]) + 1 if node.said else 0
    return {f"{node.process.pid}-{number}"}


def wrong_clocks(server: Server, rounds: int) -> Count:
    """As `killed_owner`, by nodes whose clocks are an hour ahead and an hour behind.

    While an owner streams, the other one, which believes that the lease ended long ago, must be refused.
    """
    url, said, intruders = place(server), list[str](), 0
    for number in range(rounds):
        skew = SKEW if number % 2 else -SKEW
        node = took_over(url, skew=skew)
        node.hear_words(10)
        other = Node(url, "stream", skew=-skew)
        intruders += other.hear(lambda kind: kind in ("has", "locked")) == "has"
        other.kill()
        node.hear_words(10)
        node.kill()
        said += node.said
    last = took_over(url)
    last.kill()
    return compared(said, last.has or []) + Count(wrong=intruders)


def bad_line_to_saves(server: Server, words: int) -> Count:
    """Two nodes save over a line that delays answers and loses them."""
    with bad_line(place(server)) as (line, url):
        nodes = [Node(url, "save") for _ in range(2)]
        nodes[0].hear_words(words)
        for node in nodes:
            node.kill()
        assert line.dropped
    has = stored(url_without_line(server, url))
    return compared(nodes[0].said, has) + compared(nodes[1].said, has)


def bad_line_to_stream(server: Server, rounds: int) -> Count:
    """Owners stream over such a line, and are killed."""
    with bad_line(place(server)) as (line, url):
        said: list[str] = []
        for _ in range(rounds):
            node = took_over(url)
            node.hear_words(80)
            node.kill()
            said += node.said
        last = took_over(url_without_line(server, url))
        last.kill()
        assert line.dropped
    return compared(said, last.has or [])


def url_without_line(server: Server, url: str) -> str:
    return f"{server.url}&schema={url.partition('schema=')[2].partition('&')[0]}&lease={LEASE}"


def racing_writers(url: str, words: int, mutation: str = "") -> Count:
    """Eight writers of one session."""
    nodes = [Node(url, "save", mutation) for _ in range(8)]
    nodes[0].hear_words(words)
    for node in nodes:
        node.kill()
    has = stored(url)
    total = sum((compared(node.said, has)._replace(wrong=0) for node in nodes), Count())
    return total._replace(wrong=len(has) - len(set(has)))


def bucket_writers(words: int, mutation: str = "") -> Count:
    """Eight writers of one session in a bucket on SeaweedFS."""
    with tempfile.TemporaryDirectory(prefix="asnap-weed-") as directory, seaweedfs(Path(directory)) as server:
        os.environ.update(server.environment)
        return racing_writers(f"{server.url}/{new_id()}", words, mutation)


def killed_server(server: Server, rounds: int) -> Count:
    """The server is killed again and again while nodes save."""
    url = place(server)
    nodes = [Node(url, "save") for _ in range(2)]
    for _ in range(rounds):
        nodes[0].hear_words(25)
        server.kill()
        server.start()
    for node in nodes:
        node.hear_words(5)
        node.kill()
    has = stored(url)
    return compared(nodes[0].said, has) + compared(nodes[1].said, has)


def killed_server_in_mid_stream(server: Server, rounds: int) -> Count:
    """The server is killed while a node streams, and in the end the node."""
    url = place(server)
    node = took_over(url)
    for _ in range(rounds):
        node.hear_words(40)
        server.kill()
        server.start()
    node.hear_words(40)
    node.kill()
    last = took_over(url)
    last.kill()
    return compared(node.said, last.has or [])


def resumed_at_once(server: Server, rounds: int) -> Count:
    """Two nodes resume one session at once: one of them has it, the other is told."""
    total = Count()
    for _ in range(rounds):
        url = place(server)
        took_over(url).kill()
        time.sleep(LEASE)  # of the node that was killed
        nodes = [Node(url, "stream") for _ in range(2)]
        answers = [node.hear(lambda kind: kind in ("has", "locked")) for node in nodes]
        for node in nodes:
            node.kill()
        total += Count(1, 0, answers.count("has") != 1)
    return total


@contextlib.contextmanager
def timed(name: str) -> Iterator[list[Count]]:
    began, counts = time.monotonic(), list[Count]()
    yield counts
    count = counts[0]
    print(
        f"{name:44} acknowledged {count.acknowledged:6}  lost {count.lost:3}  wrong {count.wrong:3}"
        f"  {time.monotonic() - began:6.1f} s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few rounds of each, under a minute")
    parser.add_argument("--rounds", type=int, default=25, help="how many takeovers of each kind")
    parser.add_argument("--only", default="", help="the scenarios and mutations whose name contains this")
    given = parser.parse_args()
    rounds = 1 if given.quick else given.rounds
    failed = False
    with running() as server:
        scenarios: dict[str, Callable[[], Count]] = {
            "owner killed in mid-stream": lambda: killed_owner(server, 2 * rounds),
            "owner stopped, overtaken and woken": lambda: stopped_owner(server, max(1, rounds // 2)),
            "the same, by an owner that says nothing": lambda: stopped_owner(server, max(1, rounds // 2), words=0),
            "server killed while nodes save": lambda: killed_server(server, rounds),
            "server killed while a node streams": lambda: killed_server_in_mid_stream(server, rounds),
            "two nodes resume at once": lambda: resumed_at_once(server, max(1, rounds // 2)),
            "eight writers of one session": lambda: racing_writers(place(server), 8 * rounds),
            "clocks an hour ahead and behind": lambda: wrong_clocks(server, max(2, rounds // 2)),
            "saves over a line that loses answers": lambda: bad_line_to_saves(server, 40 * rounds),
            "streams over a line that loses answers": lambda: bad_line_to_stream(server, rounds),
            "eight writers of one session in a bucket": lambda: bucket_writers(4 * rounds),
        }
        for name, run in scenarios.items():
            if given.only not in name:
                continue
            with timed(name) as counts:
                counts.append(run())
            failed |= bool(counts[0].lost or counts[0].wrong)
        for mutation in MUTATIONS:
            if given.only not in f"mutation {mutation}":
                continue
            with timed(f"mutation {mutation} (must be caught)") as counts:
                if mutation == "no-conditional-writes":
                    counts.append(bucket_writers(20, mutation))
                else:
                    counts.append(stopped_owner(server, 1, mutation, words=0 if "appends" in mutation else 30))
            failed |= not (counts[0].lost or counts[0].wrong)
    return int(failed)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
