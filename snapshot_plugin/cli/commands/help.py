"""``asnap help``: what holds for every command."""

from __future__ import annotations

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import EXITS
from snapshot_plugin.cli.command import command as declare

__all__ = ["TOPICS", "command"]

_REFS = """\
How to name a session, wherever a command says REF:

  01jd7a        the beginning of its id, if no other id begins so
  fix-auth      its name (asnap rename)
  latest        the session that changed last; latest~2 is two before it
  tag:deploy    the session that has this tag
  fix-auth@12   its snapshot 12; works with all of the above
  id:latest     the session with exactly this id, whatever else it may mean

What fits several sessions is refused, with their ids. A session whose id reads like latest, tag:x or name@12 does
not take over what these mean: lists and hints name it with id: before its id."""
_POLICIES = """\
What asnap forget keeps. Rules add up, and each kept snapshot shows its reasons:

  --keep-last N      the newest N snapshots
  --keep-within 7d   everything younger than that
  --keep-hourly N    the last of each hour, for N hours that have any; also -daily, -weekly, -monthly
  --keep-tag TAG     snapshots with the tag; without this rule, every tagged snapshot
  --keep-sessions N  the N sessions that changed last, whole

The newest snapshot, pinned sessions and live sessions are always kept. A policy that keeps nothing is refused.
Forgotten snapshots stay in the trash until asnap purge; asnap undo restores them."""
_FORMAT = """\
A session is a directory of gzip files, one member per snapshot:

  zcat STORE/sessions/*/*.snap.gz | jq .     read a plain store without us
  gzip -t STORE/sessions/*/*.snap.gz         scrub any store, also an encrypted one, without its key

Documented to the byte in docs/reference/format.md. Files of every released version always load."""
_PLACES = """\
  ASNAP_STORE              the store: a directory or a URL
  ASNAP_KEY_FILE           a file with the key of an encrypted store
  ASNAP_KEYRING            the name of an entry in the system's keyring
  ASNAP_KEY_COMMAND        a command that prints the key
  ASNAP_KEY                the key itself
  ASNAP_PASSPHRASE         the passphrase itself
  ASNAP_SNAPSHOT_INTERVAL  and so on: every setting of asnap config show, in capitals
  NO_COLOR, FORCE_COLOR    no colour, or colour without a terminal
  XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_STATE_HOME   see asnap paths"""

TOPICS = {
    "refs": _REFS,
    "policies": _POLICIES,
    "format": _FORMAT,
    "exit-codes": "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXITS.items()),
    "environment": _PLACES,
}
"""Topics that apply to every command."""


@declare(
    "help",
    examples=(
        ("asnap help refs", "how to name a session"),
        ("asnap help policies", "what asnap forget keeps"),
        ("asnap help exit-codes", "what exit statuses mean"),
    ),
    exits=(),
)
@click.argument("topic", metavar="[TOPIC|COMMAND]", required=False)
def command(call: Call, *, topic: str | None) -> None:
    """Explain a topic that applies to every command, or one command.

    Topics: refs, policies, format, exit-codes, environment. asnap COMMAND --help explains a command.
    """
    from snapshot_plugin.cli import COMMANDS, load

    if topic is None:
        call.out.line("Topics: " + ", ".join(TOPICS) + "\n\n  asnap help refs")
    elif topic in TOPICS:
        call.out.line(TOPICS[topic])
    elif topic in COMMANDS:
        found, above = load(topic), click.get_current_context().parent
        call.out.line(found.get_help(click.Context(found, info_name=topic, parent=above)))
    else:
        raise click.BadParameter(f"{topic!r} is neither a topic nor a command; topics: {', '.join(TOPICS)}")
