"""The conditions of a training step: ``conditions.json`` (docs/formats.md#conditions-json)."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Union

from probe_core.store.files import CONDITIONS_FILE

__all__ = ["CONDITIONS_FILE", "Conditions", "Draw", "RandomSample", "hash_host_states", "state_hash"]

SCHEMA = 1
"""Version of the layout; it grows where a reader of an older one would read something wrong."""

HASH_BYTES = 8

Fact = Union[None, bool, int, float, str]
Facts = dict[str, dict[str, Fact]]


class Draw(NamedTuple):
    """A call that drew random numbers.

    Attributes:
        op: The key of the call.
        generator: The name of the generator.
        before: The hash of its state before the call.
        after: The hash of its state after the call.
    """

    op: str
    generator: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RandomSample:
    """The states of random number generators at one point of a step.

    Attributes:
        point: ``start``, ``forward`` (the first call of a model) or ``end``.
        states: The hash of the state of each generator, by its name.
        seeds: The random seed that was set last, of each generator that reports it.
    """

    point: str
    states: Mapping[str, str]
    seeds: Mapping[str, int] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the sample as JSON data."""
        return {"point": self.point, "states": dict(self.states), "seeds": dict(self.seeds)}


class Conditions:
    """The conditions of one step and rank.

    Attributes:
        facts: Values by the names of a group and of the fact, such as ``versions`` and ``torch``.
        samples: The states of random number generators, in the order of time.
        draws: The calls that drew random numbers, in the order of time.
        batch: The hash of each tensor that the first model received, by its place such as ``input.0``.
        pending: Functions that add hashes to ``batch`` that are still on a device.
        changed: True if anything was added since the text was made.
    """

    def __init__(self) -> None:
        self.facts: Facts = {}
        self.samples: list[RandomSample] = []
        self.draws: list[Draw] = []
        self.batch: dict[str, str] = {}
        self.pending: list[Callable[[], None]] = []
        self.changed = True

    def add_facts(self, group: str, facts: Mapping[str, Fact]) -> None:
        """Add facts to a group; a fact of the same name is replaced."""
        self.facts.setdefault(group, {}).update(facts)
        self.changed = True

    def add_sample(self, sample: RandomSample) -> None:
        """Add the states of generators; a sample of the same point is replaced."""
        self.samples = [existing for existing in self.samples if existing.point != sample.point]
        self.samples.append(sample)
        self.changed = True

    def add_draws(self, draws: list[Draw]) -> None:
        """Add calls that drew random numbers."""
        self.draws += draws
        self.changed = self.changed or bool(draws)

    def text(self, framework: str) -> str:
        """Return the content of the file, after hashes that are on a device have been fetched."""
        pending, self.pending = self.pending, []
        for fetch in pending:
            with suppress(RuntimeError):  # a device that failed; the rest of the file is still true
                fetch()
        self.changed = False
        draws = ",\n  ".join(json.dumps(draw) for draw in self.draws)
        head = {
            "schema": SCHEMA,
            "framework": framework,
            "facts": self.facts,
            "random": [sample.plain() for sample in self.samples],
            "batch": self.batch,
        }
        return json.dumps(head, indent=1)[:-2] + ',\n "draws": [' + (f"\n  {draws}\n " if draws else "") + "]\n}\n"


def state_hash(*parts: bytes | memoryview) -> str:
    """Return a hash of the state of a random number generator."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def hash_host_states() -> dict[str, str]:
    """Return the hashes of the states of Python's generator, and of NumPy's global one if it was imported."""
    version, internal, gauss = random.getstate()
    states = {"python": state_hash(repr((version, internal, gauss)).encode())}
    if "numpy.random" in sys.modules:
        import numpy as np

        state: Any = np.random.get_state(legacy=False)
        inner = state["state"]
        key = inner.get("key")
        rest = [repr(sorted((name, str(value)) for name, value in inner.items() if name != "key")).encode()]
        rest.append(repr((state.get("has_gauss"), state.get("gauss"))).encode())
        states["numpy"] = state_hash(*(() if key is None else (key.tobytes(),)), *rest)
    return states
