"""``asnap export``: sessions in a file, to keep, to carry elsewhere, or to show."""

from __future__ import annotations

from typing import Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.command import yes_option
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.passphrase import passphrase, passphrase_options
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.operations.exporting import FORMS, Exported, Form, export
from snapshot_plugin.operations.text import plain, several, size

__all__ = ["command", "form_of"]

_ENDINGS: dict[str, Form] = {
    "md": "markdown",
    "markdown": "markdown",
    "html": "html",
    "htm": "html",
    "json": "json",
}


def show_export(answer: Exported, out: Output) -> None:
    """Print what was written."""
    number = len(answer.sessions)
    what = f"{several(number, 'session')}, {several(sum(s.snapshots for s in answer.sessions), 'snapshot')}"
    out.note(f"wrote {plain(answer.file or 'standard output')}: {answer.format}, {what}, {size(answer.size_bytes)}")
    if answer.redacted:
        kinds = ", ".join(f"{count} {kind}" for kind, count in answer.redacted.items())
        out.note(f"removed: {kinds} (--no-redact keeps them)")
    for session in answer.sessions:
        if session.problem:
            out.warn(
                f"{plain(session.session_id)} is damaged: {plain(session.problem)}; the intact part was written"
            )
    if answer.warning:
        out.warn(answer.warning, fg="yellow")


@declare(
    "export",
    answer=Exported,
    show=show_export,
    examples=(
        ("asnap export latest -o session.asnap", "everything, with its history, in one file"),
        ("asnap export fix-auth -o fix-auth.html", "a page to read and to show, without secrets"),
        ("asnap export latest --format markdown | less", "the conversation as Markdown"),
        ("asnap export latest -o x.asnap --passphrase", "a bundle that only a passphrase opens"),
        ("asnap export 01jd 01je -o - | ssh there asnap import -", "two sessions to another machine"),
    ),
    exits=(3, 4, 5, 7, 10),
)
@click.argument("references", metavar="REF...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Where to; - is standard output, which is also the default.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="bundle, markdown, html or json; by the ending of FILE, else a bundle.",
)
@click.option("--redact/--no-redact", default=None, help="Remove secrets; the default for markdown and html.")
@click.option(
    "--tools/--no-tools", default=True, help="With tool calls (default), or without, in markdown and html."
)
@click.option("--at", metavar="N", type=click.IntRange(min=1), help="As it was at this snapshot.")
@passphrase_options
@yes_option
async def command(
    call: Call,
    *,
    references: tuple[str, ...],
    output: str | None,
    form: Form | None,
    redact: bool | None,
    tools: bool,
    at: int | None,
    **secret: Any,
) -> Exported:
    """Write sessions to a file: a bundle with their whole history, or a readable text.

    A bundle is exact; asnap import restores it. Markdown and HTML are for sharing: secrets are removed, and markup
    in messages is made inert.
    """
    chosen = form or form_of(output)
    clean = chosen in ("markdown", "html") if redact is None else redact
    _check_output(call, output, chosen)
    source = passphrase(call, secret, new=True)
    async with call.store() as store:
        made = await export(
            call.work,
            store,
            references,
            form=chosen,
            clean=clean,
            tools=tools,
            at=at,
            output=None if output in (None, "-") else output,
            source=source,
        )
    await _write(call, output, made.data)
    return made.about


def form_of(output: str | None) -> Form:
    """Return the format for a file name's suffix; a bundle if it is unknown."""
    name = (output or "").rsplit("/", 1)[-1]
    return _ENDINGS.get(name.rpartition(".")[2].lower(), "bundle") if "." in name else "bundle"


def _check_output(call: Call, output: str | None, form: Form) -> None:
    to_stdout = output in (None, "-")
    if to_stdout and not call.out.is_text:
        raise InvalidInput("--json describes the export, and the export itself goes to stdout", hint="give -o FILE")
    if to_stdout and form == "bundle" and call.out.is_terminal:
        raise InvalidInput("a bundle is not for a terminal", hint="give -o FILE, or --format markdown")


async def _write(call: Call, output: str | None, data: bytes) -> None:
    if output in (None, "-"):
        call.out.raw(data)
        return
    from pathlib import Path

    import anyio
    import anyio.to_thread

    from snapshot_plugin.system.files import disk_errors, replace_file

    path = anyio.Path(str(output))
    if await path.is_dir():
        raise InvalidInput(f"{output} is a directory", hint="name a file in it")
    if await path.exists():
        call.confirm(f"{output} exists. Overwrite it?")

    def write() -> None:
        with disk_errors(f"writing {output}"):
            replace_file(Path(str(output)), data)

    await anyio.to_thread.run_sync(write)
