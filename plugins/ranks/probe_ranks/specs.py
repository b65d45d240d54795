"""Description of an executor, the interface of executors, and the rules for pairing ranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from probe_core.plugins.specs import Spec

if TYPE_CHECKING:
    from concurrent import futures

PAIR_RANKS = ("auto", "number", "order")
"""Rules for pairing ranks: in order if no number is common to both runs, by number only, always in order."""


class Place(Enum):
    """Locations of the workers of a pool."""

    HERE = "in this process"
    MACHINE = "in processes of this machine"
    CLUSTER = "on other machines, or in an isolated environment"


class Pool(NamedTuple):
    """An executor of calls, and the number of calls that it makes at a time."""

    executor: futures.Executor
    size: int


@dataclass(frozen=True, slots=True)
class ExecutorSpec(Spec):
    """A place to run comparisons (makes an ``Executor``).

    Attributes:
        has_scheduler: True if ``--scheduler`` selects it.
        killed: The names of the exceptions raised if workers die during a call.
    """

    has_scheduler: bool = False
    killed: tuple[str, ...] = ()


class Executor(Protocol):
    """A place to run comparisons, such as processes of this machine or a cluster."""

    place: Place

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        """Return a pool of workers; functions, arguments and results of their calls can be pickled.

        Args:
            jobs: Number of calls at a time, or fewer if there are fewer workers; 0 for all workers.
            scheduler: The address given with ``--scheduler``.

        Raises:
            UserError: The scheduler cannot be reached, or has no workers.
        """
