"""The wire format of protobuf: fields with a number, which hold an integer or bytes.

Only what a dump's header needs is understood. Every length is checked before it is used, the number of fields
is limited, and nothing is copied: bytes are views of the header.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

MAX_FIELDS = 50_000
"""Limit on the fields of a header; a header of 100 tensors has about 2,000."""
MAX_VARINT_BYTES = 10
"""Largest number of bytes of an integer of 64 bits, seven bits a byte."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}

Field = Union[int, memoryview]


class DamagedDump(ValueError):
    """A file that violates the format; the text continues a sentence on it."""


class Budget:
    """The number of fields that may still be read.

    Args:
        left: The number at the start.
    """

    def __init__(self, left: int = MAX_FIELDS) -> None:
        self.left = left

    def spend(self) -> None:
        """Count one field.

        Raises:
            DamagedDump: None is left.
        """
        self.left -= 1
        if self.left < 0:
            raise DamagedDump(f"has a header of more than {MAX_FIELDS} fields")


def iterate_fields(message: memoryview, budget: Budget) -> Iterator[tuple[int, Field]]:
    """Yield the number and the value of each field of a message.

    Raises:
        DamagedDump: The message violates the wire format, or has too many fields.
    """
    place, end = 0, len(message)
    while place < end:
        budget.spend()
        tag, place = _number(message, place)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise DamagedDump(f"has a header with the field number {number}, which no message has")
        if kind == VARINT:
            value, place = _number(message, place)
            yield number, value
            continue
        if kind == BYTES:
            size, place = _number(message, place)
        elif kind in _FIXED_BYTES:
            size = _FIXED_BYTES[kind]
        else:
            raise DamagedDump(f"has a header with a field of kind {kind}, which no dump has")
        if size > end - place:
            raise DamagedDump(f"has a header whose field {number} is longer than what holds it")
        data = message[place : place + size]
        place += size
        yield number, data if kind == BYTES else int.from_bytes(data, "little")


def iterate_numbers(value: Field, budget: Budget) -> Iterator[int]:
    """Yield the integers of a repeated field, packed in bytes or single.

    Raises:
        DamagedDump: The bytes hold no whole integers.
    """
    if isinstance(value, int):
        yield value
        return
    place = 0
    while place < len(value):
        budget.spend()
        number, place = _number(value, place)
        yield number


def _number(data: memoryview, place: int) -> tuple[int, int]:
    """Return the integer at ``place``, of at most 64 bits, and the place behind it."""
    value = 0
    for shift in range(MAX_VARINT_BYTES):
        if place + shift >= len(data):
            raise DamagedDump("has a header that ends within a number")
        byte = data[place + shift]
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, place + shift + 1
    raise DamagedDump("has a header with a number of more than 64 bits")
