"""The states of MindSpore's random number generators.

MindSpore has two kinds. Functions of ``mint`` draw from a generator (``mindspore.Generator``), whose state is
readable. Other operators receive seeds when they are constructed: the global seed of ``mindspore.set_seed``
and a counter of their name. Their kernels continue from these seeds, and their state is not readable.
"""

from __future__ import annotations

import mindspore
from probe_recording.step_facts.conditions import state_hash

from probe_mindspore import compat

GLOBAL_SEED_NAME = "mindspore"
"""Name of the global seed, and of the states of operators that receive it."""

DEFAULT_GENERATOR_NAME = "mindspore.Generator"
"""Name of the default generator."""


def hash_global_state(kernels: bytes) -> str:
    """Return the hash of the global seed, of the counters of operators, and of the states of kernels.

    Args:
        kernels: The known part of the states of kernels.
    """
    return state_hash(repr((mindspore.get_seed(), compat.list_operator_seeds())).encode(), kernels)


def read_states(kernels: bytes) -> dict[str, str]:
    """Return the hashes of the states of both kinds, by name.

    Args:
        kernels: The known part of the states of kernels.
    """
    state = compat.get_default_generator().get_state().asnumpy().tobytes()
    return {GLOBAL_SEED_NAME: hash_global_state(kernels), DEFAULT_GENERATOR_NAME: state_hash(state)}


def read_seeds() -> dict[str, int]:
    """Return the current random seeds by name; the global seed is left out until it is set."""
    seeds = {DEFAULT_GENERATOR_NAME: int(compat.get_default_generator().initial_seed())}
    seed = mindspore.get_seed()
    return seeds if seed is None else {GLOBAL_SEED_NAME: int(seed), **seeds}
