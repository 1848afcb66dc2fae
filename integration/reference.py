"""Generate the reference pages from the code: ``python -m integration.reference``.

`python.md` comes from the docstrings and signatures of the public modules, `configuration.md` from the settings,
`errors.md` from the error classes. Modules are parsed, not imported, so no framework has to be installed. A test
fails when a page is stale; that test is also how a change of the public API is noticed. The public API is written
down once: `PUBLIC_MODULES` and `_ONLY`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from unittest import mock

import griffe

from snapshot_plugin import errors
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.operations.failures import next_command

__all__ = ["NAMES", "PLACE", "PUBLIC_MODULES", "pages"]

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "docs" / "reference"
NAMES = ("python.md", "configuration.md", "errors.md")
_MADE = "Made from the code by `python -m integration.reference`; do not edit."

PUBLIC_MODULES = {
    "snapshot_plugin": "Stores, sessions, the manager",
    "snapshot_plugin.model": "What a snapshot holds",
    "snapshot_plugin.store.base": "The store contract",
    "snapshot_plugin.codec.sources": "Keys",
    "snapshot_plugin.manager.ports": "Your own sessions and providers",
    "snapshot_plugin.manager.resume": "Resuming",
    "snapshot_plugin.manager.persistent": "One persistent agent",
    "snapshot_plugin.manager.context": "What is kept of an agent",
    "snapshot_plugin.live.outcome": "Reports: saving",
    "snapshot_plugin.live.recovery": "Reports: recovery",
    "snapshot_plugin.live.lease": "Reports: owners",
    "snapshot_plugin.manager.events": "Events",
    "snapshot_plugin.manager.telemetry": "Metrics",
    "snapshot_plugin.live.ports": "Your own place for live sessions",
    "snapshot_plugin.live.session": "Live sessions",
    "snapshot_plugin.acp.hosts.sdk_client": "ACP clients in Python",
    "snapshot_plugin.acp.hosts.sdk_provider": "Resuming ACP agents, and agents as providers",
    "snapshot_plugin.acp.hosts.sdk_agent": "ACP agents in Python",
    "snapshot_plugin.frameworks.sessions": "Your own framework adapter",
    "snapshot_plugin.frameworks.langgraph": "LangGraph",
    "snapshot_plugin.frameworks.openai_agents": "OpenAI Agents",
    "snapshot_plugin.frameworks.claude_agent_sdk": "Claude Agent SDK",
    "snapshot_plugin.frameworks.pydantic_ai": "pydantic-ai",
    "snapshot_plugin.frameworks.google_adk": "Google ADK",
    "snapshot_plugin.frameworks.agent_framework": "Microsoft Agent Framework",
    "snapshot_plugin.memory": "Project memory",
    "snapshot_plugin.testing": "Testing kit",
    "snapshot_plugin.testing.hosts": "Testing kit: ACP hosts",
}
_ONLY = {
    "snapshot_plugin.live.outcome": {"Outcome", "SnapshotAllReport"},
    "snapshot_plugin.live.recovery": {"Recovered"},
    "snapshot_plugin.live.lease": {"Owner"},
    "snapshot_plugin.live.ports": {"Hold", "LivePlace", "Record", "Reducer"},
    "snapshot_plugin.live.session": {"LiveSession"},
    "snapshot_plugin.manager.context": {"AgentContext", "PersistentAgent", "Problem"},
    "snapshot_plugin.frameworks.sessions": {"LabelledSnapshot", "OpenSessions", "SharedSession", "new_session"},
}
"""Modules of which only some names are public."""
_METRICS = """\
With `snapshot-plugin[otel]` installed, a manager feeds these OpenTelemetry instruments (meter `snapshot_plugin`).
No attribute ever holds a session id.

| instrument | kind | attributes | counts |
|---|---|---|---|
"""
_DOCUMENTED_ELSEWHERE = set(errors.__all__)
_SECTION = re.compile(r"^(Args|Raises|Returns|Yields)( \([^)]*\))?:$")


def pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    package = griffe.load("snapshot_plugin", search_paths=[ROOT], resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    made = zip(NAMES, (_python(package), _configuration(package), _errors(package)), strict=True)
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in made}


# The Python API --------------------------------------------------------------------------------------------------


def _python(package: griffe.Module) -> Iterator[str]:
    yield f"# Python API\n\n{_MADE}\n"
    yield "Errors are on [their own page](errors.md), settings on [theirs](configuration.md). Names that are not"
    yield "here are not public: they may change with any release.\n"
    seen = set(_DOCUMENTED_ELSEWHERE)
    for path, title in PUBLIC_MODULES.items():
        module = _module(package, path)
        if module is None:
            continue
        public = _ONLY.get(path) or {str(name) for name in module.exports or ()}
        exports = sorted(public - seen)
        seen.update(exports)
        yield f"## {title}\n\n`{path}`\n"
        if title == "Metrics":
            yield _METRICS + "\n".join(_instruments(module)) + "\n"
        for name in exports:
            yield from _member(module[name])


def _instruments(module: griffe.Module) -> Iterator[str]:
    """One row for each instrument that the module creates."""
    source = module["_Instruments"].source
    created = re.compile(r'self\.(\w+) = meter\.create_(\w+)\(\s*"([\w.]+)", unit="[^"]*", description="([^"]*)"')
    for attribute, kind, name, about in created.findall(source):
        used = re.findall(rf"self\.{attribute}\.add\(1, {{(.*?)}}\)", source)
        keys = dict.fromkeys(key for each in used for key in re.findall(r'"([\w.]+)":', each))
        yield f"| `{name}` | {kind} | {', '.join(f'`{key}`' for key in keys)} | {about} |"


def _module(package: griffe.Module, path: str) -> griffe.Module | None:
    try:
        found = package[path.removeprefix("snapshot_plugin").lstrip(".")] if "." in path else package
    except KeyError:
        return None
    return found if isinstance(found, griffe.Module) else None


def _member(found: griffe.Object | griffe.Alias) -> Iterator[str]:
    thing = found.final_target if isinstance(found, griffe.Alias) else found
    yield f"### {thing.name}\n"
    if isinstance(thing, griffe.Class):
        yield from _class(thing)
    elif isinstance(thing, griffe.Function):
        yield from _code(_signature(thing))
        yield from _prose(thing)
    else:
        if isinstance(thing, griffe.Attribute) and thing.value is not None and len(str(thing.value)) < 200:
            yield from _code(f"{thing.name} = {thing.value}")
        yield from _prose(thing)


def _class(thing: griffe.Class) -> Iterator[str]:
    takes = [each for each in thing.parameters if each.name != "self"]
    is_opaque = [each.name for each in takes] == ["data"]  # a pydantic value: its fields are the table below
    if takes and not is_opaque and "Contract" not in thing.name:
        yield from _code(f"{thing.name}({', '.join(_parameters(takes))})")
    yield from _prose(thing)
    if thing.name.endswith("Store") and thing.bases and thing.name != "SnapshotStore":
        yield "It has every method of `SnapshotStore`.\n"
    if any(str(base) == "Event" for base in thing.bases):
        named = str(thing["name"].value).strip("'")
        yield f"Its `name` is `{named}`. Like every `Event` it has `session_id` and `at`.\n"
    rows = [
        f"| `{name}` | {_cell(str(attribute.annotation or ''))} | {_cell(_text(attribute))} |"
        for name, attribute in _public(thing, griffe.Attribute)
        if isinstance(attribute, griffe.Attribute)
    ]
    if rows:
        yield "\n".join(["| attribute | type | |", "|---|---|---|", *rows, ""])
    for name, function in _public(thing, griffe.Function):
        if isinstance(function, griffe.Function) and not name.startswith("test_"):
            yield from _code(_signature(function))
            yield from _prose(function)


def _public(thing: griffe.Class, kind: type[griffe.Object]) -> Iterator[tuple[str, griffe.Object]]:
    """What the class itself defines: fields with a type or a text, and methods that are not the contract's."""
    for name, member in thing.members.items():
        if isinstance(member, griffe.Alias) or not isinstance(member, kind) or name.startswith("_"):
            continue
        text = _text(member)
        is_field = isinstance(member, griffe.Attribute) and member.annotation is not None
        if (text or is_field) and not text.startswith("See `"):
            yield name, member


def _signature(function: griffe.Function) -> str:
    takes = ", ".join(_parameters([each for each in function.parameters if each.name not in {"self", "cls"}]))
    kind = "async " if "async" in function.labels else ""
    returns = f" -> {function.returns}" if function.returns is not None else ""
    return f"{kind}{function.name}({takes}){returns}"


def _parameters(takes: list[griffe.Parameter]) -> Iterator[str]:
    is_keyword = False
    for each in takes:
        if each.kind is griffe.ParameterKind.keyword_only and not is_keyword:
            is_keyword = True
            yield "*"
        star = {
            griffe.ParameterKind.var_positional: "*",
            griffe.ParameterKind.var_keyword: "**",
        }.get(each.kind or griffe.ParameterKind.keyword_only, "")
        is_keyword = is_keyword or star == "*"
        annotation = f": {each.annotation}" if each.annotation is not None else ""
        default = f" = {each.default}" if each.default is not None and not star else ""
        yield f"{star}{each.name}{annotation}{default}"


def _code(text: str) -> Iterator[str]:
    if len(text) > 110 and "(" in text:
        name, _, rest = text.partition("(")
        inside, _, end = rest.rpartition(")")
        parts = re.split(r", (?=[\w*]+(?::|=|,|$)|\*, )", inside)
        text = f"{name}(\n    " + ",\n    ".join(parts) + f",\n){end}"
    yield f"```text\n{text}\n```\n"


def _text(thing: griffe.Object) -> str:
    return thing.docstring.value if thing.docstring else ""


def _prose(thing: griffe.Object) -> Iterator[str]:
    """A docstring as Markdown: literal blocks in fences, arguments as lists."""
    lines, in_list = _text(thing).replace("::\n\n    ", ":\n\n    ").splitlines(), False
    for line in lines:
        if _SECTION.match(line):
            in_list = True
            yield f"**{line.rstrip(':')}**\n"
        elif in_list and (match := re.match(r"^    ([\w, *.|]+): (.*)", line)):
            yield f"- `{match[1]}`: {match[2]}"
        elif in_list and line.startswith("        "):
            yield f"  {line.strip()}"
        else:
            in_list = in_list and not line
            yield "" if line.strip() == ":" else line
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# Settings and errors ---------------------------------------------------------------------------------------------

_SOURCES = """\
A setting comes from the first of these places that has it:

1. an argument: `SnapshotConfig(snapshot_interval="1m")`, or an option of the command line;
2. an environment variable: `ASNAP_` and the name in capitals, as `ASNAP_SNAPSHOT_INTERVAL=1m`. The place of the
   store is `ASNAP_STORE`;
3. the user's `config.toml`; `asnap paths` prints where it is;
4. the default.

Files of a project are not read. `asnap doctor` names an `.asnap.toml`, or a `[tool.asnap]` in a `pyproject.toml`,
that is ignored.

`asnap config show --origin` prints every setting, its value and where the value came from. Durations are seconds,
or text such as `90s`, `5m`, `12h`, `7d`. A value that makes no sense is an error that names the setting and the
file.

```toml
# config.toml
snapshot_interval = "1m"
max_session_age = "90d"
retention = { keep_last = 20, keep_within = "7d" }
```
"""
_VARIABLES = """
## Other environment variables

| variable | meaning |
|---|---|
| `ASNAP_STORE` | the store: a directory or a URL |
| `ASNAP_KEY_FILE` | a file with the key of an encrypted store |
| `ASNAP_KEYRING` | the name of an entry in the system's keyring |
| `ASNAP_KEY_COMMAND` | a command that prints the key |
| `ASNAP_KEY`, `ASNAP_PASSPHRASE` | the key, or the passphrase, itself |
| `ASNAP_MCP_TOKEN` | the bearer token of `asnap mcp --http` |
| `NO_COLOR`, `FORCE_COLOR` | no colour; colour without a terminal |
| `PAGER` | the program that shows long answers |
| `XDG_DATA_HOME`, and `…_CONFIG_…`, `…_CACHE_…`, `…_STATE_…` | where files are; `asnap paths` prints the result |
| `XDG_RUNTIME_DIR` | where control sockets are |
| `AWS_…` | who may use [a bucket](../how-to/keep-sessions-in-a-bucket.md) |
| `PG…` | who may use [PostgreSQL](../how-to/keep-sessions-in-postgresql.md) |

Programs that `asnap` starts (agents, pagers) do not get the variables with keys.
"""


def _configuration(package: griffe.Module) -> Iterator[str]:
    yield f"# Configuration\n\n{_MADE}\n"
    yield _SOURCES
    documented = package["manager.config.SnapshotConfig"].attributes
    with mock.patch.dict(os.environ, {"XDG_DATA_HOME": "~/.local/share"}, clear=True):
        default = SnapshotConfig()
    yield "| setting | default | what it does |\n|---|---|---|"
    for each in fields(SnapshotConfig):
        if each.name.startswith("_") or each.name not in documented or not documented[each.name].docstring:
            continue
        value = "the user's data directory" if each.name == "storage_path" else f"`{getattr(default, each.name)}`"
        yield f"| `{each.name}` | {value} | {_cell(_text(documented[each.name]))} |"
    yield _VARIABLES


def _errors(package: griffe.Module) -> Iterator[str]:
    yield f"# Errors\n\n{_MADE}\n"
    yield "Every error is a `SnapshotError`. It has a stable `code`, a `hint` (what to do next) and `retryable`:"
    yield "whether the same call may succeed later. Compare codes, not messages. `asnap` exits with the number"
    yield "in the column *exit* and prints the command to run next.\n"
    yield "| error | code | exit | retryable | meaning | what to do | at a shell |\n|---|---|---|---|---|---|---|"
    for name in sorted(errors.__all__):
        kind = getattr(errors, name)
        if not (isinstance(kind, type) and issubclass(kind, errors.SnapshotError)):
            continue
        meaning = _cell(_text(package["errors"][name]).split("\n\n")[0])
        hint = _cell(kind.default_hint) or "the message says what to change"
        code, again = errors.EXIT_CODES.get(kind.code, 1), "yes" if kind.retryable else "no"
        run = next_command(kind("", session_id="SESSION", hint="pip install …"), asked="asnap COMMAND")
        yield f"| `{name}` | `{kind.code}` | {code} | {again} | {meaning} | {hint} | `{run}` |"


def main() -> int:
    for name, text in pages().items():
        (PLACE / name).write_text(text, "utf-8")
        print(f"{PLACE / name}: {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
