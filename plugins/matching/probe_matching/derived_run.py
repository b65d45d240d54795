"""Base class of runs that are made from another run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe_core.model import Value
from probe_core.model.columns import Array
from probe_core.model.run import Construct, Run


class DerivedRun(Run):
    """A run made from another run, whose data it reads.

    A subclass sets ``starts`` and ``signatures``, and defines ``record``. The other methods are those of the run.

    Args:
        run: The other run, which is closed with this one.
    """

    def __init__(self, run: Run) -> None:
        self.path, self.header, self.mode, self.is_debug = run.path, run.header, run.mode, run.is_debug
        self._run = run

    def names(self) -> Sequence[str]:
        """Return the names of the records, in the order of the run."""
        return self._run.names()

    def find(self, key: str) -> int | None:
        """Return the index of the record called ``key``; None if there is none."""
        return self._run.find(key)

    def tensor(self, value: Value) -> Array:
        """Return the array of a tensor value."""
        return self._run.tensor(value)

    @property
    def construct(self) -> Construct:
        """The module that each call was made in."""
        return self._run.construct

    @property
    def stack_path(self) -> Path | None:
        """The path of the recorded call stacks."""
        return self._run.stack_path

    def use_stacks(self, path: Path) -> None:
        """Load the call stacks in ``path``."""
        self._run.use_stacks(path)

    def stack_of(self, key: str) -> tuple[str, ...] | None:
        """Return the recorded frames of ``key``; None if there are none."""
        return self._run.stack_of(key)

    def argument_name(self, op: str, argument: str) -> str:
        """Return the name of an argument, such as ``eps`` for ``input.7``; empty if it is not known."""
        name = getattr(self._run, "argument_name", None)
        return str(name(op, argument)) if name is not None else ""

    def close(self) -> None:
        """Close the files."""
        self._run.close()
