"""Mutated files of the older tools: a message for the user or a result, never another exception."""

from __future__ import annotations

import json
import random
import shutil
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_legacy.compare import hooks_table, ptdbg_table
from probe_legacy.compare.files import write_csv, write_workbook
from probe_legacy.parse_command import format_ptdbg_file
from probe_legacy.reading.lines import HOOKS, PTDBG, detect_format
from support.runs.older_dumps import dumps, open_dump  # noqa: F401

from probe_core.errors import UnreadableTensor, UserError
from probe_core.plugins.manager import Manager

SOURCES = (
    "hooks_300_sample_conv/cpu.pkl",
    "hooks_edge_cases/npu.pkl",
    "hooks_50_overflow/Overflow_info_20261120_220613.pkl",
    "ptdbg23_conv_api_stack/npu/ptdbg_dump_v2.3/rank0/api_stack_npu_dump.pkl",
    "ptdbg23_overflow/n3_filter_off/ptdbg_dump_v2.3/rank0/Overflow_info_20261120_215202_2.pkl",
    "ptdbg60_module/d/ptdbg_dump_v6.0/step0/rank122062/dump.pkl",
    "ptdbg60_all/npu/ptdbg_dump_v6.0/step0/rank120514/api_stack_dump.pkl",
    "ptdbg60_summary/npu/ptdbg_dump_v6.0/step0/rank120850/api_stack_dump.pkl",
)
STRANGE: list[Any] = [
    None, True, -1, 2**70, 1e400, float("nan"), "", "x", "../x", "\x00", "é" * 3000, [], {}, [[]], [None], [2**65],
    {"a": [1]}, "torch.float32", "<class 'int'>", "[]", [-1], [1.5], [0], 10**400,
]  # fmt: skip
MOST_MEMORY = 100 << 20
MANAGER = Manager()


def in_bytes(data: bytes, random_: random.Random) -> bytes:
    """Change, remove, repeat or insert some bytes."""
    changed = bytearray(data)
    for _ in range(random_.randint(1, 5)):
        place = random_.randrange(len(changed))
        match random_.randrange(5):
            case 0:
                changed[place] = random_.randrange(256)
            case 1:
                del changed[place : place + random_.randint(1, 200)]
            case 2:
                changed[place:place] = changed[place : place + random_.randint(1, 2000)]
            case 3:
                changed[place:place] = random_.choice([b"[" * 5000, b"9" * 5000, b"\n\n", b"\x00", b'"', b"1e999"])
            case _:
                del changed[place:]
        if not changed:
            return b"["
    return bytes(changed)


def in_a_field(data: bytes, random_: random.Random) -> bytes:
    """Replace a field of some rows, or a part of one, by something strange."""
    lines = data.decode().splitlines()
    for _ in range(random_.randint(1, 5)):
        number = random_.randrange(len(lines))
        try:
            row = json.loads(lines[number])
        except ValueError:
            continue
        holder: Any = row
        while isinstance(holder, list) and holder:
            place = random_.randrange(len(holder))
            if not isinstance(holder[place], list) or not holder[place] or random_.random() < 0.5:
                holder[place] = random_.choice(STRANGE)
                break
            holder = holder[place]
        lines[number] = json.dumps(row)
    return "\n".join(lines).encode()


def in_lines(data: bytes, random_: random.Random) -> bytes:
    """Remove, repeat and swap lines."""
    lines = data.splitlines(keepends=True)
    for _ in range(random_.randint(1, 10)):
        one, two = (random_.randrange(len(lines)) for _ in range(2))
        lines[one], lines[two] = lines[two], random_.choice([b"", lines[one], lines[two], b"\n"])
    return b"".join(lines)


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (in_bytes, in_a_field, in_lines)


def use(path: Path, sound: Path, out: Path) -> str:
    """Do all that can be done with a file; return the number of values that were read, or the message."""
    try:
        run = open_dump(path)
        for record in run.records():
            for slot in record.slots:
                if slot.value.data_name is not None:
                    try:
                        run.tensor(slot.value)
                    except UnreadableTensor:
                        continue
        run.close()
        if detect_format(path) == PTDBG:
            table = ptdbg_table.create_ptdbg_table(path, sound)
            write_csv(out, table)
            write_workbook(out, table, MANAGER)
            table = ptdbg_table.create_ptdbg_table(sound, path, fuzzy=True)
            if table.is_judged:
                ptdbg_table.format_advice(table)
            list(format_ptdbg_file(path, ""))
        elif detect_format(path) == HOOKS:
            write_csv(out, hooks_table.create_hooks_table(sound, path))
        return str(run.starts[-1])
    except UserError as error:
        assert error.what and error.fix
        return "refused"


def mutate(dumps: Path, tmp_path: Path, seeds: range) -> None:
    results: set[str] = set()
    for seed in seeds:
        random_ = random.Random(seed)
        source = dumps / SOURCES[seed % len(SOURCES)]
        room = tmp_path / "room"
        room.mkdir(exist_ok=True)
        path = room / source.name
        data = random_.choice(MUTATIONS)(source.read_bytes(), random_)
        path.write_bytes(data)
        if source.with_suffix("").is_dir() and not path.with_suffix("").exists():
            path.with_suffix("").symlink_to(source.with_suffix(""))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results.add(use(path, source, tmp_path / "out.csv"))
            except BaseException:
                shutil.copy(path, tmp_path / f"seed{seed}.pkl")
                raise AssertionError(f"seed {seed} of {source.name}, kept in {tmp_path}") from None
        shutil.rmtree(room)
    assert len(results) > 5  # some are read and some refused


def test_few_mutated_files(dumps: Path, tmp_path: Path) -> None:
    mutate(dumps, tmp_path, range(70))


@pytest.mark.slow
def test_many_mutated_files(dumps: Path, tmp_path: Path) -> None:
    tracemalloc.start()
    mutate(dumps, tmp_path, range(70, 2200))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY, f"{peak >> 20} MiB"
