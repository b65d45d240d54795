"""The hash of a batch by its formula, with Python's integers."""

from __future__ import annotations

from probe_recording.step_facts.batch_values import BLOCK, CHUNK_BLOCKS

MASK = 2**64 - 1


def split_mix(number: int) -> int:
    """Return the output of splitmix64 with this number, from 1, as an odd number."""
    state = number * 0x9E3779B97F4A7C15 & MASK
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
    return (state ^ (state >> 31)) | 1


def hash_of_bits(bits: list[int]) -> int:
    """Return the hash of integers, as a non-negative number of 64 bits."""
    total = 0
    for place, value in enumerate(bits):
        chunk, inside = divmod(place, BLOCK * CHUNK_BLOCKS)
        block, column = divmod(inside, BLOCK)
        weight = split_mix(column + 1) * split_mix(block + 1) * (2 * chunk + 1) * 0xD6E8FEB86659FD93
        total += (value + 1) * weight
    return total & MASK
