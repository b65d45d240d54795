"""The states of torch's random number generators, read without waiting for a device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from probe_recording.step_facts.conditions import Draw, state_hash

from probe_pytorch import compat_conditions as compat

CPU_GENERATOR_NAME = "torch"
"""Name of the default generator of the CPU."""

State = tuple[str, torch.Generator, torch.Tensor]
"""The name of a generator, the generator, and its state."""


def iterate_default_generators() -> Iterator[tuple[str, torch.Generator]]:
    """Yield the default generators of the CPU and of devices that are in use, with their names."""
    yield CPU_GENERATOR_NAME, torch.default_generator
    for name, module in compat.iterate_device_modules():
        for number, generator in enumerate(module.default_generators):
            yield f"{name}:{number}", generator


def hash_state(state: torch.Tensor) -> str:
    """Return the hash of the state of a generator."""
    with compat.disable_transforms():
        return state_hash(state.numpy().data)


def read_states(generator: Any = None) -> list[State]:
    """Return the states that the next call may draw from.

    Args:
        generator: The generator that the call is given; None for the default generators.
    """
    is_generator = isinstance(generator, torch.Generator)
    named = [(f"generator {generator.initial_seed()}", generator)] if is_generator else iterate_default_generators()
    with compat.disable_transforms():
        return [(name, source, source.get_state()) for name, source in named]


def find_draws(op: str, before: list[State]) -> list[Draw]:
    """Return what a call drew, from the states before it.

    Args:
        op: The key of the call.
        before: The states before the call.
    """
    draws = []
    with compat.disable_transforms():
        for name, generator, state in before:
            after = generator.get_state()
            if not torch.equal(state, after):
                draws.append(Draw(op, name, hash_state(state), hash_state(after)))
    return draws


NON_DRAWING_SCOPES = ("Tensor", "Distributed")
"""Scopes whose calls draw no random numbers, except those whose operator has the tag for it."""


@cache
def may_draw(prefix: str) -> bool:
    """Return True for calls that may draw random numbers, by the tags of their operators.

    Functions that torch computes by several operators may draw, and so may custom operators. Methods of
    tensors without an operator of their name, such as conversions, and communication do not.

    Args:
        prefix: The name of the call without its count, such as ``Functional.dropout``.
    """
    scope, *parts = prefix.split(".")
    by_tag = compat.is_random("_".join(parts)) if parts else None
    if by_tag is None and parts:
        by_tag = compat.is_random(parts[-1])
    return scope not in NON_DRAWING_SCOPES if by_tag is None else by_tag
