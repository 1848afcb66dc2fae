"""Import optional dependencies with an error that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_plugin.errors import MissingExtra

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Import the packages of *extra* in the ``with`` block; *what* says which feature needs which package.

    Raises:
        MissingExtra: a package is not installed, or its release lacks something that we import. It is an
            `ImportError` too.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(f"{__package__}."):
            raise  # a mistake of ours
        raise MissingExtra(what, hint=f"pip install 'snapshot-plugin[{extra}]'") from error
    except ImportError as error:
        hint = f"pip install --upgrade 'snapshot-plugin[{extra}]'"
        raise MissingExtra(f"{what}, in another release: {error}", hint=hint) from error
