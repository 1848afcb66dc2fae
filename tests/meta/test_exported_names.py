from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import snapshot_plugin
from snapshot_plugin import SnapshotError, errors
from snapshot_plugin.errors import EXIT_CODES

DESIGNED = [
    "FilesystemStore",
    "MemoryStore",
    "Message",
    "RetentionPolicy",
    "SessionSnapshot",
    "SnapshotConfig",
    "SnapshotManager",
    "SnapshotMeta",
    "SnapshotRef",
    "SnapshotStore",
    "create_or_resume_session",
    "open_store",
    "persistent_session",
]
INDENT = 4


def homes() -> dict[str, str]:
    return {name: module for module, names in snapshot_plugin._HOME.items() for name in names}


def imports_for_type_checkers() -> dict[str, str]:
    tree = ast.parse(Path(snapshot_plugin.__file__).read_text("utf-8"))
    block = next(
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


def classes_below(cls: type[SnapshotError]) -> Iterator[type[SnapshotError]]:
    yield cls
    for below in cls.__subclasses__():
        yield from classes_below(below)


def own_errors() -> list[type[SnapshotError]]:
    return [cls for cls in classes_below(SnapshotError) if cls.__module__ == errors.__name__]


def drawn_tree(docstring: str) -> dict[str, str | None]:
    """Each class of the picture with the one above it."""
    above: list[str] = []
    drawn: dict[str, str | None] = {}
    for line in docstring.splitlines():
        words = [word for word in line.split() if word[0] not in "│├└"]
        if not words or not hasattr(errors, words[0]):
            continue
        depth = line.index(words[0]) // INDENT - 1
        above[depth:] = [words[0]]
        drawn[words[0]] = above[depth - 1] if depth else None
    return drawn


@pytest.mark.requirement("STORE-NAMES")
@pytest.mark.parametrize("name", snapshot_plugin.__all__)
def test_every_public_name_resolves_to_the_thing_its_home_module_exports(name: str) -> None:
    home = import_module(homes()[name])
    assert getattr(snapshot_plugin, name) is getattr(home, name)
    assert name in home.__all__


@pytest.mark.requirement("STORE-NAMES")
def test_type_checkers_see_the_names_that_exist_at_run_time() -> None:
    assert imports_for_type_checkers() == homes()
    assert sorted(homes()) == sorted(snapshot_plugin.__all__)


def test_public_names_are_sorted_and_listed_once() -> None:
    assert len(set(snapshot_plugin.__all__)) == len(snapshot_plugin.__all__)
    assert snapshot_plugin.__all__ == sorted(snapshot_plugin.__all__)


@pytest.mark.requirement("STORE-NAMES")
@pytest.mark.parametrize("name", DESIGNED)
def test_documented_names_are_public(name: str) -> None:
    assert name in snapshot_plugin.__all__


@pytest.mark.requirement("STORE-NAMES")
def test_every_error_can_be_caught_by_a_top_level_name() -> None:
    assert {cls.__name__ for cls in own_errors()} <= set(snapshot_plugin.__all__)


def test_a_name_that_does_not_exist_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = snapshot_plugin.NoSuchName


@pytest.mark.requirement("STORE-ERROR-TREE")
def test_error_tree_matches_the_drawing() -> None:
    real = {cls.__name__: cls.__bases__[0].__name__ for cls in own_errors() if cls is not SnapshotError}
    assert drawn_tree(errors.__doc__ or "") == {"SnapshotError": None, **real}


@pytest.mark.requirement("STORE-ERROR-TREE")
def test_every_error_has_a_code_of_its_own() -> None:
    codes = {cls.__name__: cls.__dict__.get("code") for cls in own_errors()}
    assert None not in codes.values()
    assert len(set(codes.values())) == len(codes)


@pytest.mark.requirement("STORE-ERROR-TREE")
@pytest.mark.parametrize("cls", own_errors())
def test_every_error_carries_its_session_and_its_hint(cls: type[SnapshotError]) -> None:
    error = cls("it went wrong", session_id="s", hint="look there")
    assert (error.message, error.session_id, error.hint) == ("it went wrong", "s", "look there")
    assert cls("it went wrong").hint == cls.default_hint
    assert "look there" in str(error)


@pytest.mark.parametrize("cls", own_errors())
def test_default_hints_fit_every_reader(cls: type[SnapshotError]) -> None:
    """Programs, people at a shell and models read it: no Python calls, no options, no variables."""
    assert not [sign for sign in ("()", "--", "ASNAP_", "=", "store.") if sign in cls.default_hint]


@pytest.mark.requirement("STORE-EXIT-CODES")
def test_exit_codes_refer_to_existing_error_codes() -> None:
    assert EXIT_CODES.keys() <= {cls.code for cls in own_errors()}


@pytest.mark.requirement("STORE-EXIT-CODES")
def test_exit_codes_fit_a_byte_and_avoid_0_and_1() -> None:
    assert all(1 < status < 64 for status in EXIT_CODES.values())


def test_every_error_module_name_is_exported() -> None:
    assert {cls.__name__ for cls in own_errors()} | {"EXIT_CODES"} == set(errors.__all__)
