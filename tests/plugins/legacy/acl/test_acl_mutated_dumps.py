"""Mutated ACL dumps, text dumps and ``.npy`` files: a result or a message, never a traceback, and bounded memory."""

from __future__ import annotations

import random
import shutil
import struct
import tracemalloc
import warnings
from collections import Counter
from pathlib import Path

import pytest
from support.probe import Probe
from support.runs import acl_dumps as acl
from support.runs.acl_dumps import acl_dumps  # noqa: F401
from support.runs.older_dumps import dumps  # noqa: F401

TEXTS = ("hooks_300_sample_conv/cpu.pkl", "hooks_50_overflow/Overflow_info_20261120_220613.pkl",
         "ptdbg60_summary/npu/ptdbg_dump_v6.0/step0/rank120850/api_stack_dump.pkl")  # fmt: skip
LAYOUTS = ("host", "device", "ND", "NCHW", "NHWC", "HWCN")
STRANGE = [0, 1, 127, 128, 255, (1 << 31) - 1, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1]
MOST_MEMORY = 100 << 20


def changed(data: bytes, random_: random.Random) -> bytes:
    """Change bytes, put a strange number in the place of some, remove, repeat or swap parts, cut or append."""
    out = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        place, length = random_.randrange(len(out) + 1), random_.randint(1, 40)
        match random_.randrange(7):
            case 0:
                out[place : place + 1] = bytes([random_.randrange(256)])
            case 1:
                out[place : place + random_.randint(0, 2)] = acl.varint(random_.choice(STRANGE))
            case 2:
                del out[place : place + length]
            case 3:
                out[place:place] = out[place : place + length] * random_.choice([1, 2, 100])
            case 4:
                out[place : place + length] = bytes(random_.randrange(256) for _ in range(length))
            case 5:
                del out[place:]
            case _:
                out += bytes(length)
    return bytes(out)


def in_the_header(data: bytes, random_: random.Random) -> bytes:
    """Change the header alone, and write the length that it has then."""
    (length,) = struct.unpack("<Q", data[:8])
    header = changed(data[8 : 8 + length], random_)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def mutate(acl_root: Path, text_root: Path, room: Path, probe: Probe, seeds: range) -> Counter[tuple[str, int]]:
    """Use a mutated file for each seed, and return how often each command ended with each code."""
    sources = sorted(path for path in (acl_root / "output").rglob("*") if path.is_file())
    arrays = sorted((acl_root / "expected").glob("*.npy"))
    found: Counter[tuple[str, int]] = Counter()
    for seed in seeds:
        random_ = random.Random(seed)
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir()
        sound = random_.choice(sources)
        match seed % 4:
            case 0 | 1:
                path = acl.write(
                    room / "d" / sound.name,
                    random_.choice([changed, in_the_header])(sound.read_bytes(), random_),
                )
                commands = [
                    ("convert", room / "d", "-o", room / "o", "--layout", random_.choice(LAYOUTS)),
                    ("parse", "vc", "-m", room / "d", "-g", sound.parent, "-out", room / "v"),
                ]
            case 2:
                source = text_root / random_.choice(TEXTS)
                path = acl.write(room / source.name, changed(source.read_bytes(), random_))
                commands = [("parse", "pk", "-f", path, "-n", ""), ("convert", path, "-o", room / "o")]
            case _:
                other = random_.choice(arrays)
                path = acl.write(room / other.name, changed(other.read_bytes(), random_))
                commands = [("parse", "pt", "-n", path), ("parse", "cn", "-m", path, "-g", other)]
        for command in commands:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = probe(*command)
            assert code in (0, 2, 3) and "Traceback" not in probe.err, f"seed {seed}, {command}, {code}\n{probe.err}"
            assert code == 0 or "error: " in probe.err or "warning: " in probe.err, f"seed {seed}, {command}"
            assert not list(room.rglob("*.part")), f"seed {seed}: a part of a file is left"
            found[" ".join(map(str, command[: 1 + (command[0] == "parse")])), code] += 1
    return found


@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_files(acl_dumps: Path, dumps: Path, tmp_path: Path, probe: Probe, count: int) -> None:
    tracemalloc.start()
    try:
        found = mutate(acl_dumps, dumps, tmp_path / "room", probe, range(count))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY, f"{peak >> 20} MiB"
    assert {("convert", 0), ("convert", 2), ("parse pk", 0), ("parse pt", 0), ("parse pt", 2)} <= set(found), found
    assert ("convert", 3) in found or count < 1000, found
