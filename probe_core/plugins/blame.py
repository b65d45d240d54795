"""Errors raised by plugins, turned into messages with the plugin's name and version and the way to fix it.

An error in one of probe's own distributions is a defect of probe and is not caught, except for a package that
it cannot import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from probe_core.errors import Defect, UserError, describe_error
from probe_core.plugins.distributions import describe_installation, is_of_probe


class Origin(NamedTuple):
    """The distribution that a contribution comes from, with its version."""

    distribution: str = ""
    version: str = ""

    @property
    def is_of_probe(self) -> bool:
        """Return True for a distribution of this repository."""
        return is_of_probe(self.distribution)

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip() or "a plugin"


class PluginError(UserError):
    """An error of a plugin, with its name and the way to fix it.

    Attributes:
        subject: The failed contribution and its distribution; empty if it is not known.
    """

    subject = ""


FailureListener = Callable[[PluginError, str], None]
"""A function that notes, once, that a plugin failed, and the effect on the result."""


def describe_fix(distribution: str) -> str:
    """Return the sentence on how to fix a broken plugin."""
    if is_of_probe(distribution):
        return f"Install it again. {describe_installation(distribution)}"
    if not distribution:
        return "Report it to its authors."
    return (
        "Update it, report it to its authors (its tests show the traceback), "
        f"or do without it (pip uninstall {distribution})."
    )


def create_plugin_error(error: BaseException, subject: str, origin: Origin) -> PluginError | None:
    """Return the error that names a plugin as the cause of an exception; None if it is not the cause.

    Args:
        error: The exception.
        subject: The failed part of the plugin, such as ``The metric "mine"``.
        origin: The distribution of the plugin.
    """
    if isinstance(error, (KeyboardInterrupt, UserError, Defect)):
        return None
    if origin.is_of_probe and not isinstance(error, ImportError):
        return None
    contribution = f"{subject} of {origin}"
    plugin_error = PluginError(f"{contribution} failed: {describe_error(error)}.", describe_fix(origin.distribution))
    plugin_error.subject = contribution
    return plugin_error


@contextmanager
def blame_plugin(subject: str, origin: Origin, allowed: type[Exception] = UserError) -> Iterator[None]:
    """Turn exceptions of a plugin in the block, except ``allowed``, into errors that name the plugin.

    Raises:
        PluginError: The plugin raised an exception that is not meant for the user.
    """
    try:
        yield
    except BaseException as error:  # including SystemExit, because a plugin must not end a command
        plugin_error = None if isinstance(error, allowed) else create_plugin_error(error, subject, origin)
        if plugin_error is None:
            raise
        raise plugin_error from error
