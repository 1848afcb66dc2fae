"""``asnap keys``: encrypt a store, and manage its keys."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.command import yes_option
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.progress import progress
from snapshot_plugin.cli.secret_options import NEW_SECRETS, new_secret, new_secret_options
from snapshot_plugin.errors import InvalidInput, StoreNotFound
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.text import clock_time, plain, several

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource
    from snapshot_plugin.store.keychain import Keychain, SlotInfo
    from snapshot_plugin.store.keyed import KeyedStore

__all__ = ["Keys", "keys_command"]

_EXITS = (4, 6, 7, 10)
_NO_KEY = "none; set ASNAP_KEY_FILE, ASNAP_KEYRING, ASNAP_KEY_COMMAND or ASNAP_PASSPHRASE"
_SHUT_OUT = (
    "the store has a new master key: a copy of the slot does not open what is saved from now on\n"
    "  re-encrypt the old snapshots too: asnap keys rotate --reencrypt"
)
_NOT_SHUT_OUT = (
    "the master key is the same, because other slots need it: a copy of the slot still opens this store\n"
    "  to shut it out, remove all slots but your own and add the others again"
)


class Slot(Part):
    """One way to open the store."""

    id: str
    kind: str
    label: str
    created: datetime | None
    problem: str | None


class Keys(Document):
    """Whether a store is encrypted, and by which slots it opens. Never a secret."""

    kind: ClassVar[str] = "keys"
    rows: ClassVar[str] = "slots"
    store: str
    encrypted: bool
    key_at_hand: str | None
    """The source of the key; null if none is set."""
    slots: tuple[Slot, ...]
    done: str | None = None


def show_keys(answer: Keys, out: Output) -> None:
    """Print whether a store is encrypted, and by which slots it opens. Never a secret."""
    if answer.done:
        out.note(answer.done, fg="green")
    if not answer.encrypted:
        out.line(f"{answer.store} is not encrypted")
        out.note("  to encrypt it: asnap keys init --encrypt-existing")
        return
    columns = (Column("SLOT"), Column("OPENED BY"), Column("LABEL", flexible=True), Column("SINCE"))
    out.table(columns, [_row(slot) for slot in answer.slots])
    out.note(f"key in use: {answer.key_at_hand or _NO_KEY}")


def _row(slot: Slot) -> tuple[str, str, str, str]:
    since = clock_time(slot.created) if slot.created else ""
    return slot.id, slot.problem or slot.kind, plain(slot.label), since


def _store(call: Call, key: KeySource | None = None, *, create: bool = False) -> KeyedStore:
    """Return the store, a directory or a URL, without opening it: that would need the key."""
    from snapshot_plugin.store import open_store
    from snapshot_plugin.store.keyed import KeyedStore

    where = call.config.storage_path
    store = open_store(where, key=key, create=create, background=False, environ={})
    if not isinstance(store, KeyedStore):
        raise InvalidInput(f"the store {where} cannot be encrypted", hint="name another place with --store")
    return store


def _chain(call: Call) -> Keychain:
    try:
        return _store(call).locked_keychain()
    except (StoreNotFound, InvalidInput) as error:
        error.run = "asnap keys init" if isinstance(error, StoreNotFound) else "asnap keys init --encrypt-existing"
        raise


def _status(call: Call, done: str | None = None) -> Keys:
    from snapshot_plugin.codec.sources import source_from_environment

    source = source_from_environment(call.environ)
    encrypted = _is_encrypted(call)
    return Keys(
        store=call.config.storage_path,
        encrypted=encrypted,
        key_at_hand=source.kind if source else None,
        slots=tuple(map(_slot, _chain(call).slots())) if encrypted else (),
        done=done,
    )


def _is_encrypted(call: Call) -> bool:
    try:
        return bool(_store(call).about()["encrypted"])
    except StoreNotFound as error:
        error.run = "asnap keys init"
        raise


def _slot(info: SlotInfo) -> Slot:
    return Slot.from_fields(info, problem=info.problem.message if info.problem else None)


@click.group("keys")
def keys_command() -> None:
    """Encrypt a store, and manage what opens it.

    A store is encrypted as a whole or not at all. Every secret has a slot of its own.
    """


def _part(name: str, examples: tuple[tuple[str, str], ...]) -> Callable[[Any], click.Command]:
    def declared(body: Any) -> click.Command:
        made = declare(f"keys {name}", answer=Keys, show=show_keys, examples=examples, exits=_EXITS)(body)
        made.name = name
        keys_command.add_command(made, name)
        return made

    return declared


@_part(
    "status",
    (
        ("asnap keys status", "what opens the store; needs no key"),
        ("asnap keys status --json", "the same for a script"),
        ("asnap keys status --store ./sessions", "of another store"),
    ),
)
async def status(call: Call) -> Keys:
    """Show whether the store is encrypted and which slots open it.

    Needs no key and shows no secret.
    """
    return _status(call)


@_part(
    "init",
    (
        ("asnap keys init", "make an encrypted store; asks for a passphrase"),
        ("asnap keys init --generate ~/.asnap.key", "with a generated key in a file"),
        ("asnap keys init --encrypt-existing --generate ~/.asnap.key", "encrypt the existing store"),
        ("asnap keys init --keyring work", "with a generated key in the system's keyring"),
        ("asnap keys init --store ./sessions --new-variable TEAM_KEY", "with a key from the environment"),
    ),
)
@new_secret_options
@click.option("--encrypt-existing", is_flag=True, help="Encrypt the existing store, trash included.")
@click.option(
    "--discard-set-aside", is_flag=True, help="With --encrypt-existing: leave out damaged files in quarantine."
)
async def init(call: Call, *, encrypt_existing: bool, discard_set_aside: bool, **new: Any) -> Keys:
    """Create an encrypted store, or encrypt the existing one.

    --encrypt-existing writes an encrypted copy and compares it before the plain store is removed. Stop the programs
    that use the store first. After an interruption, run the same command again to continue.
    """
    if encrypt_existing:
        return await _encrypt(call, new, discard_set_aside=discard_set_aside)
    where = call.config.storage_path
    with contextlib.suppress(StoreNotFound):
        _store(call).about()
        raise InvalidInput(
            f"there is a store at {where} already",
            hint="name another place with --store, or encrypt this one with --encrypt-existing",
        )
    source = new_secret(call, new)
    store = _store(call, source, create=True)
    store.key_label = new["label"]
    async with store:
        await store.list()
    return _status(call, f"made an encrypted store; {_how_to_open(new)}")


async def _encrypt(call: Call, new: dict[str, Any], *, discard_set_aside: bool) -> Keys:
    from snapshot_plugin.operations.encrypting import begin, encrypt_existing, is_begun
    from snapshot_plugin.store.filesystem import FilesystemStore

    store = _store(call)
    if not isinstance(store, FilesystemStore):
        raise InvalidInput(
            f"only a store in a directory can be encrypted in place, and {call.config.storage_path} is none",
            hint="make an encrypted store elsewhere with asnap keys init, then asnap export and asnap import",
        )
    place = store.path
    begun = is_begun(place)
    if not begun and _is_encrypted(call):
        raise InvalidInput(f"the store {place} is encrypted already", run="asnap keys status")
    begin(place)  # before a key is generated, so that a repeated command uses the same key
    is_named = any(new[name] for name in NEW_SECRETS) or not begun
    source = (None if is_named else call.key()) or new_secret(call, new, again=begun)

    async def seal(encrypted: FilesystemStore) -> None:
        _forget_indexes(call)
        await call.work.operations(encrypted).seal()

    with progress(call.out, "encrypting", 0) as step:
        done = await encrypt_existing(
            place, source, label=new["label"], discard_set_aside=discard_set_aside, seal=seal, step=step
        )
    what = f"encrypted {several(done.sessions, 'session')} and {done.trashed} in the trash"
    return _status(call, f"{what}; {_how_to_open(new)}")


def _forget_indexes(call: Call) -> None:
    """Remove the search indexes: those of plain stores hold conversations. The next search rebuilds them."""
    from snapshot_plugin.manager.places import user_cache_dir

    for path in user_cache_dir(call.environ).glob("search-*"):
        path.unlink(missing_ok=True)


def _how_to_open(new: dict[str, Any]) -> str:
    file, variable = new["generate"] or new["new_key_file"], new["new_variable"]
    if file:
        return f"open it with ASNAP_KEY_FILE={file}, and keep a copy of that file: without it nothing opens"
    if new["keyring"]:
        return f"open it with ASNAP_KEYRING={plain(new['keyring'])}"
    if variable:
        return f"open it with ASNAP_KEY=${variable}"
    return "asnap asks for the passphrase, or takes it from ASNAP_PASSPHRASE"


@_part(
    "add",
    (
        ("asnap keys add --label laptop", "a second passphrase"),
        ("asnap keys add --generate backup.key --label backup", "a key in a file, for the safe"),
        ("asnap keys add --new-variable CI_KEY", "one for a machine"),
    ),
)
@new_secret_options
async def add(call: Call, **new: Any) -> Keys:
    """Let another secret open the store too.

    Writes one small file; no data is touched.
    """
    made = _chain(call).add(call.key(), new_secret(call, new), new["label"], now=call.now)
    return _status(call, f"added slot {made.id}")


@_part(
    "remove",
    (
        ("asnap keys remove 01jd7a…", "remove one way to open the store"),
        ("asnap keys status", "list the slots"),
        ("asnap keys rotate --reencrypt", "afterwards: re-encrypt the old snapshots with a new key"),
    ),
)
@click.argument("slot")
@yes_option
async def remove(call: Call, *, slot: str) -> Keys:
    """Remove a slot; the last readable one cannot be removed.

    A copy of the slot's file and its secret still open snapshots copied with it. If only the slot of your own key
    is left, the store gets a new master key, and later snapshots do not open with the old one.
    """
    chain = _chain(call)
    found = _find(chain, slot)
    call.confirm(f"Remove slot {found}?")
    rekeyed = chain.remove(call.key(), found, now=call.now)
    return _status(call, f"removed slot {found}; {_SHUT_OUT if rekeyed else _NOT_SHUT_OUT}")


@_part(
    "change",
    (
        ("asnap keys change 01jd7a…", "a new passphrase in place of an old one"),
        ("asnap keys change 01jd7a… --generate new.key", "a key file in its place"),
        ("asnap keys status", "the slots' ids"),
    ),
)
@click.argument("slot")
@new_secret_options
async def change(call: Call, *, slot: str, **new: Any) -> Keys:
    """Replace the secret of a slot.

    The old one stops working once the new one is on disk.
    """
    chain = _chain(call)
    made = chain.change(call.key(), _find(chain, slot), new_secret(call, new), now=call.now)
    return _status(call, f"changed; the slot is {made.id} now")


def _find(chain: Keychain, text: str) -> str:
    found = [info.id for info in chain.slots() if info.id.startswith(text.lower())]
    if len(found) != 1:
        problem = f"could be {len(found)} slots" if found else "is not a slot of this store"
        raise InvalidInput(f"{text!r} {problem}", run="asnap keys status")
    return found[0]


@_part(
    "rotate",
    (
        ("asnap keys rotate", "a new data key for everything saved from now on"),
        ("asnap keys rotate --reencrypt", "and re-encrypt all old snapshots with it"),
        ("asnap keys rotate --reencrypt --json", "in a script"),
    ),
)
@click.option("--reencrypt", is_flag=True, help="Write every session again under the new key.")
async def rotate(call: Call, *, reencrypt: bool) -> Keys:
    """Use a new data key from now on.

    Slots and passphrases do not change. Old snapshots stay readable.
    """
    _chain(call)
    async with _store(call, call.key()) as store:
        await store.rotate_key()
        names = [meta.session_id for meta in await store.list()] if reencrypt else []
        with progress(call.out, "re-encrypting", len(names)) as step:
            for name in names:
                step(name)
                await store.compact(name)
    return _status(call, f"new data key; {several(len(names), 'session')} re-encrypted")
