"""Faults of plugins: caught where probe calls a plugin, and said with its name, its version and what to do.

A fault of a distribution of this repository is a defect of probe and passes, except for a package that it
cannot import.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from probe_core.errors import Defect, UserError, said
from probe_core.plugins.distributions import how_to_install, is_of_probe


class Origin(NamedTuple):
    """The distribution that a contribution comes from, and its version."""

    distribution: str = ""
    version: str = ""

    @property
    def is_of_probe(self) -> bool:
        """Is it of this repository?"""
        return is_of_probe(self.distribution)

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip() or "a plugin"


class PluginError(UserError):
    """A plugin that cannot do what it was asked for."""


def what_to_do(distribution: str) -> str:
    """Return the sentence on a plugin that is broken: which command may mend it, who may."""
    if is_of_probe(distribution):
        return f"Install it again. {how_to_install(distribution)}"
    if not distribution:
        return "Report it to its authors."
    return (
        f"Update it (pip install -U {distribution}), report it to its authors, "
        f"or do without it (pip uninstall {distribution})."
    )


def fault(error: BaseException, what: str, origin: Origin) -> PluginError | None:
    """Return the error that blames a plugin for what was raised; None where the plugin is not to blame.

    Args:
        error: What was raised.
        what: What of the plugin failed, such as ``The metric "mine"``.
        origin: Where that comes from.
    """
    if isinstance(error, (KeyboardInterrupt, UserError, Defect)):
        return None
    if origin.is_of_probe and not isinstance(error, ImportError):
        return None
    return PluginError(f"{what} of {origin} failed: {said(error)}.", what_to_do(origin.distribution))


@contextmanager
def blamed(what: str, origin: Origin, passing: type[Exception] = UserError) -> Iterator[None]:
    """Turn what a plugin raises in the block, if not ``passing``, into the error that names the plugin.

    Raises:
        PluginError: The plugin raised something that is not meant for the user.
    """
    try:
        yield
    except BaseException as error:  # SystemExit as well: a plugin ends no command
        blame = None if isinstance(error, passing) else fault(error, what, origin)
        if blame is None:
            raise
        raise blame from error
