"""Damage to tensor files: zip archives with a pickle, ``data.pkl``, that describes the tensor."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import random
import re
import zipfile
from collections.abc import Callable

from support.faults.mutations.case import MARKER
from support.faults.mutations.file_edits import cut, drop_slice, flip

STORAGES = ("DoubleStorage", "HalfStorage", "BFloat16Storage", "ComplexFloatStorage", "LongStorage",
            "BoolStorage", "ByteStorage", "UntypedStorage", "QInt8Storage", "Nonsense")  # fmt: skip
NUMBERS = (0, 1, 7, 255, 256, 65536, 1 << 28, 1 << 31, 1 << 40, 1 << 63, 1 << 900, -1, -(1 << 40))
COMMAND = f"touch {MARKER}"


class Hostile:
    """An object whose pickle runs a command when it is loaded."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (COMMAND,)


# -- the archive -------------------------------------------------------------------------------


def members(data: bytes) -> dict[str, bytes]:
    """Return the contents of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive that holds ``files``."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return memory.getvalue()


def with_member(data: bytes, suffix: str, change: Callable[[bytes], bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """The archive with one member changed."""
    files = {name: change(part) if name.endswith(suffix) else part for name, part in members(data).items()}
    return packed(files, method)


def lose_member(rng: random.Random, data: bytes) -> bytes:
    """The archive without one member."""
    files = members(data)
    del files[rng.choice(list(files))]
    return packed(files)


def lie_in_directory(rng: random.Random, data: bytes) -> bytes:
    """Another size, offset, method or flag in the archive's directory."""
    entries = [found.start() for found in re.finditer(b"PK\x01\x02", data)]
    field, size = rng.choice(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (42, 4)))
    at = rng.choice(entries) + field
    value = rng.choice((0, 1, 8, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)) & ((1 << 8 * size) - 1)
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def other_byte_order(rng: random.Random, data: bytes) -> bytes:
    """Another byte order than the elements are in, or none that there is."""
    order = rng.choice((b"big", b"", b"middle", b"little\n"))
    return with_member(data, "/byteorder", lambda _: order)


# -- the description ---------------------------------------------------------------------------


def damage_description(rng: random.Random, data: bytes) -> bytes:
    """Random damage to the description, in an archive that is whole."""
    return with_member(data, "/data.pkl", lambda program: rng.choice((flip, cut, drop_slice))(rng, program))


def lie_about_sizes(rng: random.Random, data: bytes) -> bytes:
    """Another number in the description: a size, a stride, an offset, a count of elements."""

    def change(program: bytes) -> bytes:
        starts = [(code.name, at or 0) for code, _, at in pickletools.genops(program)]
        ends = [at for _, at in starts[1:]] + [len(program)]
        numbers = [(at, end) for (name, at), end in zip(starts, ends) if name.startswith("BININT")]
        at, end = rng.choice(numbers)
        return program[:at] + whole_number(rng.choice(NUMBERS)) + program[end:]

    return with_member(data, "/data.pkl", change)


def whole_number(value: int) -> bytes:
    """The instruction that puts an integer on the stack."""
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def other_storage(rng: random.Random, data: bytes) -> bytes:
    """Another element type than the bytes are of."""
    named = b"ctorch\n" + rng.choice(STORAGES).encode()
    return with_member(data, "/data.pkl", lambda program: re.sub(rb"ctorch\n\w+Storage", named, program))


def bomb(rng: random.Random, data: bytes) -> bytes:
    """A description that is small on disk and large in memory."""
    size = rng.choice((1 << 20, 8 << 20, 32 << 20))
    return with_member(data, "/data.pkl", lambda _: bytes(size), zipfile.ZIP_DEFLATED)


def laughing(rng: random.Random, data: bytes) -> bytes:
    """A description of few bytes that would print, or hash, as 2**40 words."""
    words = b"\x80\x02X\x03\x00\x00\x00lolq\x00" + b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(40))
    endings = (b".", b")R.", b"h\x00\x93.", b"}h\x28Ns.", b"Q.", b"cOrdered\n\n.", b"ctorch\nx\nh\x28R.")
    return with_member(data, "/data.pkl", lambda _: words + rng.choice(endings))


def hostile(rng: random.Random, data: bytes) -> bytes:
    """A pickle that runs a command: alone, in the archive, or amid a true description."""
    program = pickle.dumps(Hostile(), rng.randrange(6))
    form = rng.randrange(3)
    if form == 0:
        return program
    if form == 1:
        return with_member(data, "/data.pkl", lambda _: program)
    call = b"cposix\nsystem\nX%c\x00\x00\x00%b\x85R0" % (len(COMMAND), COMMAND.encode())
    return with_member(data, "/data.pkl", lambda whole: whole[:2] + call + whole[2:])
