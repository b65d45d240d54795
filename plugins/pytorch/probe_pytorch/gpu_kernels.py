"""Triton kernels for the statistics and the checksum of a tensor on a GPU.

Each needs a single launch and reads each element once. The programs of a launch handle parts of the elements, and
the program that finishes last joins their results in a fixed order, so a result has the same bits in each run.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count", "row"])
def measure(
    elements,  # pointer to integers or floating-point numbers
    results,  # pointer to rows of four float64 (four int64 if integers of 64 bits are compared)
    finished,  # pointer to an int32 that is 0 before and after each launch
    sums,  # pointer to 2 * 2 ** PROGRAMS_LEVEL float64
    extrema,  # pointer to 2 * 2 ** PROGRAMS_LEVEL numbers of the dtype in which elements are compared
    count,  # the number of elements
    row,  # the row to write
    LEAST: tl.constexpr,  # a lower bound of all elements
    MOST: tl.constexpr,  # an upper bound of all elements
    BLOCK_LEVEL: tl.constexpr,  # a program reads 2 ** BLOCK_LEVEL elements at a time
    PROGRAMS_LEVEL: tl.constexpr,  # there are at most 2 ** PROGRAMS_LEVEL programs
):
    """Write maximum, minimum, mean and norm; if an element is nan, all four are nan.

    For int64, the row has the bits of mean and norm.
    """
    BLOCK: tl.constexpr = 2**BLOCK_LEVEL
    compared: tl.constexpr = extrema.dtype.element_ty
    program, programs = tl.program_id(0), tl.num_programs(0)
    lanes = tl.arange(0, BLOCK)
    high = tl.full((BLOCK,), LEAST, compared)
    low = tl.full((BLOCK,), MOST, compared)
    total = tl.zeros((BLOCK,), tl.float64)
    squares = tl.zeros((BLOCK,), tl.float64)
    for start in range(program.to(tl.int64) * BLOCK, count, programs * BLOCK):
        places = start + lanes
        inside = places < count
        values = tl.load(elements + places, inside, other=0).to(compared)
        wide = values.to(tl.float64)
        total += wide
        squares += wide * wide
        high = tl.maximum(high, tl.where(inside, values, LEAST))
        low = tl.minimum(low, tl.where(inside, values, MOST))
    tl.store(extrema + 2 * program, tl.max(high))
    tl.store(extrema + 2 * program + 1, tl.min(low))
    tl.store(sums + 2 * program, tl.sum(total))
    tl.store(sums + 2 * program + 1, tl.sum(squares))
    tl.debug_barrier()
    if tl.atomic_add(finished, 1, sem="acq_rel") == programs - 1:
        parts = tl.arange(0, 2**PROGRAMS_LEVEL)
        written = parts < programs
        largest = tl.max(tl.load(extrema + 2 * parts, written, other=LEAST, cache_modifier=".cg"))
        smallest = tl.min(tl.load(extrema + 2 * parts + 1, written, other=MOST, cache_modifier=".cg"))
        mean = tl.sum(tl.load(sums + 2 * parts, written, other=0.0, cache_modifier=".cg")) / count
        norm = tl.sqrt(tl.sum(tl.load(sums + 2 * parts + 1, written, other=0.0, cache_modifier=".cg")))
        target = results + 4 * row
        if results.dtype.element_ty == tl.int64:
            tl.store(target, largest)
            tl.store(target + 1, smallest)
            tl.store(target + 2, mean.to(tl.int64, bitcast=True))
            tl.store(target + 3, norm.to(tl.int64, bitcast=True))
        else:
            has_nan = norm != norm  # a sum of squares is nan only if an element is
            tl.store(target, tl.where(has_nan, norm, largest.to(tl.float64)))
            tl.store(target + 1, tl.where(has_nan, norm, smallest.to(tl.float64)))
            tl.store(target + 2, tl.where(has_nan, norm, mean))
            tl.store(target + 3, norm)
        tl.store(finished, 0)


@triton.jit
def _advance(states, table, level):
    """Return states of CRC-32 as they are after ``2 ** level`` further words of zeros.

    A row of ``table`` has 32 states: bit by bit, the state after these words if only this bit was set before.
    """
    result = tl.zeros_like(states)
    for bit in range(32):
        result ^= ((states << (31 - bit)) >> 31) & tl.load(table + 32 * level + bit)
    return result


@triton.jit
def _join(states, following, table, level, LEVELS: tl.constexpr):
    """Return the state after consecutive pieces of ``2 ** level`` words from the states of the pieces.

    ``following`` is the number of pieces that follow each, less than ``2 ** LEVELS``.
    """
    for bit in range(LEVELS):
        states = tl.where(((following >> bit) & 1) == 1, _advance(states, table, level + bit), states)
    return tl.xor_sum(states)


@triton.jit(do_not_specialize=["count", "row", "level", "checksum_of_zeros"])
def checksum(
    octets,  # pointer to the bytes
    results,  # pointer to int32
    finished,  # pointer to an int32 that is 0 before and after each launch
    states,  # pointer to 2 ** PROGRAMS_LEVEL int32
    table,  # pointer to the rows that ``_advance`` uses, for levels up to BLOCK_LEVEL + PROGRAMS_LEVEL
    count,  # the number of bytes
    row,  # the result to write
    level,  # there are 2 ** level programs
    checksum_of_zeros,  # the CRC-32 of as many bytes of zeros
    BLOCK_LEVEL: tl.constexpr,  # a program reads 2 ** BLOCK_LEVEL words at a time
    PROGRAMS_LEVEL: tl.constexpr,  # there are at most 2 ** PROGRAMS_LEVEL programs
):
    """Write the CRC-32 of the bytes, as zlib computes it.

    The bytes are read as words of four, with zeros in front, which leave the state 0 as it is. The lanes of all
    programs take the words in turn: each lane advances its state past the words of the others and adds its own.
    """
    BLOCK: tl.constexpr = 2**BLOCK_LEVEL
    program, programs = tl.program_id(0), tl.num_programs(0)
    lanes = tl.arange(0, BLOCK)
    stride = 4 * BLOCK * programs.to(tl.int64)
    filled = (count + stride - 1) // stride * stride
    first = 4 * (program.to(tl.int64) * BLOCK + lanes) - (filled - count)
    state = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, filled, stride):
        word = tl.zeros((BLOCK,), tl.int32)
        for octet in tl.static_range(4):
            places = start + first + octet
            word |= tl.load(octets + places, places >= 0, other=0).to(tl.int32) << (8 * octet)
        for bit in tl.static_range(32):  # as ``_advance``, unrolled
            word ^= ((state << (31 - bit)) >> 31) & tl.load(table + 32 * (BLOCK_LEVEL + level) + bit)
        state = word
    tl.store(states + program, _join(state, BLOCK - 1 - lanes, table, 0, BLOCK_LEVEL))
    tl.debug_barrier()
    if tl.atomic_add(finished, 1, sem="acq_rel") == programs - 1:
        parts = tl.arange(0, 2**PROGRAMS_LEVEL)
        pieces = tl.load(states + parts, parts < programs, other=0, cache_modifier=".cg")
        whole = _join(pieces, tl.maximum(programs - 1 - parts, 0), table, BLOCK_LEVEL, PROGRAMS_LEVEL)
        tl.store(results + row, tl.sum(_advance(tl.full((1,), 0, tl.int32) + whole, table, 0)) ^ checksum_of_zeros)
        tl.store(finished, 0)
