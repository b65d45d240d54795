"""Damage recorded runs in every way a disk, a hand or a stranger may, and compare them in-process.

``python tests/mutate_dumps.py [--count 2000] [--seed 0] [--jobs 2] [--data ZIP] [--only NUMBER]``

Case N of seed S is always the same case. A case passes when ``probe compare`` ends with 0 or 2 in
good time, without a traceback, runs nothing that a file asks for, and leaves whole files or none.
"""

from __future__ import annotations

import argparse
import csv
import faulthandler
import io
import json
import os
import pickle
import pickletools
import random
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

DATA = Path(__file__).resolve().parent / "data" / "runs-8.3.3.zip"
VERSION = "v8.3.3"
CHUNK = 50
LIMIT = 20
"""Seconds that a comparison may take."""

TENSOR_RUNS = ("tensor_L1_edge", "tensor_L0_nested", "tensor_L1_datamap", "debug_tensor")
MAPPING_RUNS = ("tensor_L1_datamap", "stat_L1_datamap")
RUNS = (*TENSOR_RUNS, "tensor_L1_fuzzy", "stat_L1_edge", "md5_L1_edge", "stat_L1_datamap", "stat_mix_fuzzy",
        "stat_mix_dist2", "debug_stat")  # fmt: skip
METRICS = ("ulp", "equal", "rmse", "mape")
RESULT = re.compile(
    r"(debug_)?compare_result(_rank\d+)?_\d{14}\.(csv|jsonl|xlsx)|advisor(_rank\d+)?_\d{14}\.txt"
)
FORMULA = re.compile(r"[=+@＝＋－＠％%\t\r-]")

RAW_VALUES = (
    "null", "true", "0", "-1", "1e400", "-1e400", "NaN", "-Infinity", "1.5", "[]", "{}", '""', "[null]",
    "1" + "0" * 5000, "-1" + "0" * 4000, "1" + "0" * 400, "9007199254740993", "1e308", "-0.0",
    "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "0" + "}" * 100_000, "[" * 100_000,
    "[" * 150 + "]" * 150, "[" * 300 + "]" * 300,
    "[-1, 2]", "[3, -9223372036854775808]", "[1e3]", "[true]", '["6"]', "[1099511627776, 1099511627776]",
    "[0, 18446744073709551616]", "[" + ", ".join(["1"] * 70) + "]",
    '"\\ud800"', '"\\udc80\\ud800x"', '"\\u0000"', '"\\u001b[2J\\u0007"', '"a\\r\\nb"', '"\\ufffe\\u2028"',
    '"=1+1"', "\"+cmd|' /C calc'!A0\"", '"@SUM(1)"', '"-2+3"', '"a;=1+1"', '"{}{0}%s"', '"tensor"',
    '"' + "n" * 300 + '"', '"' + "n" * 100_000 + '"', '"' + "\\u4e2d" * 40_000 + '"',
    '{"type": "torch.Tensor"}', '{"type": "torch.Tensor", "dtype": 3}', '{"type": "slice", "value": 1}',
    '{"type": "torch.Size", "value": {"a": [1]}}', '{"type": "int", "value": [1]}', '{"type": 1}',
    '{"type": "torch.ProcessGroup", "group_ranks": [[]]}', '{"class_type": "torch.distributed.P2POp"}',
)  # fmt: skip
"""JSON as it stands in the file, for values that no writer would write."""

FIELDS = ("type", "dtype", "shape", "Max", "Mean", "Norm", "md5", "value", "requires_grad", "data_name")
STORAGES = ("DoubleStorage", "HalfStorage", "BFloat16Storage", "ComplexFloatStorage", "LongStorage",
            "BoolStorage", "ByteStorage", "UntypedStorage", "QInt8Storage", "Nonsense")  # fmt: skip
YAMLS = (
    b"", b"\n# nothing\n", b"- a\n- b\n", b"a: [b]\n", b"1: 2\n", b"a: null\n", b"just text",
    b"a: b: c\n", b"\xff\xfe\x00a",
    b"a: \x01\n", b"? {a: b}\n: c\n", b"a: !!python/object/apply:os.system ['touch MARKER']\n",
    b"a: &x [*x]\n",
    b"[" * 20_000, b"a: " + b"{a: " * 5_000, b"<<: 1\n", b"a: 2026-01-01\n",
    b"a: '\\ud800'\n", b'a: "\\ud800"\n',
    b"a: &a ['lol']\n" + b"".join(b"b%d: &b%d [*%s,*%s]\n" % (n, n, p, p)
                                 for n in range(40) for p in [b"b%d" % (n - 1) if n else b"a"]),
)  # fmt: skip


class TimedOut(BaseException):
    """A comparison took too long; no Exception, so that nobody in between keeps it."""


class Hostile:
    """An object whose pickle touches a file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@dataclass(slots=True)
class Case:
    """One copy of recorded runs, about to be damaged."""

    home: Path
    rng: random.Random
    marker: Path

    def records(self) -> list[Path]:
        return [path for path in self._files("*_dump", "*.json") if path.name in ("dump.json", "debug.json")]

    def stacks(self) -> list[Path]:
        return self._files("npu_dump", "stack.json")

    def tensors(self) -> list[Path]:
        return self._files("*_dump", "*.pt")

    def _files(self, side: str, pattern: str) -> list[Path]:
        return sorted(self.home.glob(f"{side}/step0/**/{pattern}"))

    @property
    def compare(self) -> Path:
        return self.home / "compare.json"

    @property
    def mapping(self) -> Path:
        return self.home / "data_mapping.yaml"


Mutation = Callable[[Case], None]
Edit = Callable[[random.Random, bytes], bytes]


def put(path: Path, data: bytes) -> None:
    """Replace a file; the one it was linked to stays as it is."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


# -- damage to bytes ---------------------------------------------------------------------------


def flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 50))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def drop_slice(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.choice((1, 7, 100, 4096)) :]


def empty(rng: random.Random, data: bytes) -> bytes:
    return rng.choice((b"", b" \n", b"\xef\xbb\xbf", b"\x00" * 100))


def not_utf8(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    stray = rng.choice((b"\xff", b"\xed\xa0\x80", b"\xc3", b"\x80\x81", b"\xef\xbb\xbf"))
    return data[:start] + stray + data[start + rng.randrange(2) :]


def tail(rng: random.Random, data: bytes) -> bytes:
    return data + rng.choice((b"x", b"}", data, b"\x00", b"\xff" * 5))


def utf16(rng: random.Random, data: bytes) -> bytes:
    return data.decode("utf-8").encode("utf-16")


# -- damage to JSON ----------------------------------------------------------------------------


def places(tree: Any) -> Iterator[tuple[Any, Any, int]]:
    """Every member and item: its container, its key, its depth."""
    waiting = [(tree, 0)]
    while waiting:
        value, depth = waiting.pop()
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            yield value, key, depth
            waiting.append((value[key], depth + 1))


def pick(rng: random.Random, tree: Any) -> tuple[Any, Any]:
    """A random place, the head of the file and the fields of tensors more often than not."""
    found = list(places(tree))
    wanted = rng.random()
    if wanted < 0.25:
        found = [place for place in found if place[2] < 2] or found
    elif wanted < 0.7:
        field = rng.choice(FIELDS)
        found = [place for place in found if place[1] == field] or found
    container, key, _ = rng.choice(found)
    return container, key


def remove_key(rng: random.Random, data: bytes) -> bytes:
    tree = json.loads(data)
    container, key = pick(rng, tree)
    del container[key]
    return json.dumps(tree, indent=1).encode()


def change_value(rng: random.Random, data: bytes) -> bytes:
    tree = json.loads(data)
    container, key = pick(rng, tree)
    container[key] = "@RAW@"
    return json.dumps(tree, indent=1).replace('"@RAW@"', rng.choice(RAW_VALUES), 1).encode()


def rename_key(rng: random.Random, data: bytes) -> bytes:
    tree = json.loads(data)
    container, key = pick(rng, tree)
    while not isinstance(container, dict):
        container, key = pick(rng, tree)
    texts = [text for text in RAW_VALUES if text.startswith('"')]
    renamed = {"@RAW@" if name == key else name: value for name, value in container.items()}
    container.clear()
    container.update(renamed)
    return json.dumps(tree, indent=1).replace('"@RAW@"', rng.choice(texts), 1).encode()


def double_key(rng: random.Random, data: bytes) -> bytes:
    tree = json.loads(data)
    container, key = pick(rng, tree)
    while not isinstance(container, dict):
        container, key = pick(rng, tree)
    container["@RAW@"] = rng.choice((container[key], None, [], 7))
    return json.dumps(tree, indent=1).replace('"@RAW@"', json.dumps(key), 1).encode()


def swap_values(rng: random.Random, data: bytes) -> bytes:
    tree = json.loads(data)
    (first, one), (second, other) = pick(rng, tree), pick(rng, tree)
    first[one], second[other] = json.loads(json.dumps(second[other])), json.loads(json.dumps(first[one]))
    return json.dumps(tree, indent=1).encode()


def whole_value(rng: random.Random, data: bytes) -> bytes:
    return rng.choice(RAW_VALUES).encode()


def data_name(rng: random.Random, data: bytes) -> bytes:
    """Name a tensor file that is none of the record's."""
    tree = json.loads(data)
    found = [container for container, key, _ in places(tree) if key == "data_name"]
    names = [container["data_name"] for container in found]
    rng.choice(found)["data_name"] = rng.choice(
        ("../../etc/passwd", "../../../../../../../../etc/passwd", "/etc/passwd", "/dev/zero", "..", ".", "",
         "-1", "\x00.pt", "\ud800.pt", "n" * 300 + ".pt", "..\\x.pt", "=1+1.pt", rng.choice(names),
         rng.choice(names).replace(".pt", ".npy"), "../dump.json", "~", "中.pt")
    )  # fmt: skip
    return json.dumps(tree, indent=1).encode()


# -- damage to tensor files --------------------------------------------------------------------


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return memory.getvalue()


def with_member(data: bytes, suffix: str, change: Callable[[bytes], bytes]) -> bytes:
    """The archive with one member changed."""
    return packed(
        {name: change(part) if name.endswith(suffix) else part for name, part in members(data).items()}
    )


def lie_about_sizes(rng: random.Random, data: bytes) -> bytes:
    """Another number in the description: a size, a stride, an offset, a count of elements."""

    def change(program: bytes) -> bytes:
        codes = [(code, at) for code, _, at in pickletools.genops(program)] + [(None, len(program))]
        numbers = [
            n for n, (code, _) in enumerate(codes) if code and code.name in ("BININT", "BININT1", "BININT2")
        ]
        number = rng.choice(numbers)
        value = rng.choice(
            (0, 1, 7, 255, 256, 65536, 1 << 28, 1 << 31, 1 << 40, 1 << 63, 1 << 900, -1, -(1 << 40))
        )
        return program[: codes[number][1]] + whole_number(value) + program[codes[number + 1][1] :]

    return with_member(data, "/data.pkl", change)


def whole_number(value: int) -> bytes:
    """The instruction that puts an integer on the stack."""
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def other_storage(rng: random.Random, data: bytes) -> bytes:
    """Another element type than the bytes are of."""
    name = rng.choice(STORAGES).encode()
    return with_member(
        data, "/data.pkl", lambda program: re.sub(rb"ctorch\n\w+Storage", b"ctorch\n" + name, program)
    )


def flip_description(rng: random.Random, data: bytes) -> bytes:
    return with_member(data, "/data.pkl", lambda program: rng.choice((flip, cut, drop_slice))(rng, program))


def other_byte_order(rng: random.Random, data: bytes) -> bytes:
    order = rng.choice((b"big", b"", b"middle", b"little\n"))
    return with_member(data, "/byteorder", lambda _: order)


def lose_member(rng: random.Random, data: bytes) -> bytes:
    files = members(data)
    del files[rng.choice(list(files))]
    return packed(files)


def lie_in_directory(rng: random.Random, data: bytes) -> bytes:
    """Another size, offset, method or flag in the zip's directory."""
    entries = [found.start() for found in re.finditer(b"PK\x01\x02", data)]
    field, size = rng.choice(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (42, 4)))
    at = rng.choice(entries) + field
    value = rng.choice((0, 1, 8, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)) & ((1 << 8 * size) - 1)
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def bomb(rng: random.Random, data: bytes) -> bytes:
    """A description that is small on disk and large in memory."""
    files = members(data)
    root = next(iter(files)).partition("/")[0]
    size = rng.choice((1 << 20, 8 << 20, 32 << 20))
    return packed(files | {f"{root}/data.pkl": b"\x00" * size}, zipfile.ZIP_DEFLATED)


def plain_pickle(rng: random.Random, data: bytes) -> bytes:
    return pickle.dumps([1.0, 2.0, {"a": 3}], rng.randrange(6))


def laughing(rng: random.Random, data: bytes) -> bytes:
    """A description of few bytes that would print, or hash, as 2**40 words."""
    words = b"\x80\x02X\x03\x00\x00\x00lolq\x00" + b"".join(
        b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(40)
    )
    ending = rng.choice(
        (b".", b")R.", b"h\x00\x93.", b"}h\x28Ns.", b"Q.", b"cOrdered\n\n.", b"ctorch\nx\nh\x28R.")
    )
    return with_member(data, "/data.pkl", lambda _: words + ending)


def hostile(rng: random.Random, data: bytes, marker: Path) -> bytes:
    """A pickle that runs a command, alone, in the archive, or amid a true description."""
    program = pickle.dumps(Hostile(marker), rng.randrange(6))
    form = rng.randrange(3)
    if form == 0:
        return program
    if form == 1:
        return with_member(data, "/data.pkl", lambda _: program)
    call = b"cposix\nsystem\nX%c\x00\x00\x00%b\x85R0" % (len(f"touch {marker}"), f"touch {marker}".encode())
    return with_member(data, "/data.pkl", lambda whole: whole[:2] + call + whole[2:])


def replaced_by_directory(case: Case) -> None:
    path = case.rng.choice(case.tensors())
    path.unlink()
    path.mkdir()


def replaced_by_link(case: Case) -> None:
    path = case.rng.choice(case.tensors())
    path.unlink()
    path.symlink_to(case.rng.choice(("/etc/passwd", "/dev/zero", path.name, "../dump.json", "nowhere")))


def replaced_by_fifo(case: Case) -> None:
    path = case.rng.choice(case.tensors())
    path.unlink()
    os.mkfifo(path)


def replaced_by_stranger(case: Case) -> None:
    path = case.rng.choice(case.tensors())
    put(path, case.rng.choice(case.tensors()).read_bytes())


def replaced_by_hostile(case: Case) -> None:
    path = case.rng.choice(case.tensors())
    put(path, hostile(case.rng, path.read_bytes(), case.marker))


def tensors_deleted(case: Case) -> None:
    paths = case.tensors()
    for path in case.rng.sample(paths, case.rng.choice((1, 3, len(paths) // 2, len(paths)))):
        path.unlink()


def tensor_directory_replaced(case: Case) -> None:
    directory = case.rng.choice(case.tensors()).parent
    shutil.rmtree(directory)
    if case.rng.random() < 0.5:
        directory.write_bytes(b"no directory")


# -- damage to the other files -----------------------------------------------------------------


def record_deleted(case: Case) -> None:
    path = case.rng.choice(case.records())
    path.unlink()
    if case.rng.random() < 0.5:
        path.mkdir()


def runs_mixed(case: Case) -> None:
    """A record file in the place of the other run's stack, or of itself."""
    records = case.records()
    put(case.rng.choice(records), case.rng.choice([*records, *case.stacks(), case.compare]).read_bytes())


def other_path(case: Case) -> None:
    """A compare file that names something else."""
    value = json.loads(case.compare.read_bytes())
    key = case.rng.choice(("npu_path", "bench_path", "stack_path", "is_print_compare_log", "unknown"))
    value[key] = case.rng.choice(
        ("", ".", "/", "\x00", "a\x00b", "\ud800", "n" * 5000, "/" * 3000, "/etc/passwd", "npu_dump",
         "nowhere/dump.json",
         "npu_dump/step0/rank/stack.json", "compare.json", None, [], 1, "/proc/self/mem", "~")
    )  # fmt: skip
    put(case.compare, json.dumps(value).encode())


def stack_value(rng: random.Random, data: bytes) -> bytes:
    """A stack file in which one group is not as it should be."""
    tree = json.loads(data)
    raw = rng.choice(("1", "null", '"x"', "[]", "[[], []]", '[["a"], [1]]', '[[1], ["x"]]', "[[[]], []]",
                      '[["a"], ["x"], []]', "{}", '["=1+1"]', '["\\ud800"]', "[null]"))  # fmt: skip
    tree[rng.choice(list(tree))] = "@RAW@"
    return json.dumps(tree).replace('"@RAW@"', raw, 1).encode()


def any_yaml(rng: random.Random, data: bytes) -> bytes:
    return rng.choice(YAMLS)


def yaml_names(rng: random.Random, data: bytes) -> bytes:
    """Names of rows that are not there, that are there twice, that meet in one row."""
    lines = [line for line in data.decode().splitlines() if not line.startswith("#")]
    ours, theirs = (line.split(": ") for line in rng.sample(lines, 2))
    odd = rng.choice((f"{ours[0]}: {theirs[1]}", f"{ours[0]}x: {ours[1]}", f"{ours[0]}: =1+1",
                      f"'': {ours[1]}",
                      f'"\\x1b[2J": {ours[1]}', f"{ours[0]}: {'n' * 100_000}"))  # fmt: skip
    return "\n".join([*lines, odd]).encode()


# -- the list of them --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """A mutation, the runs that it suits, how often it is drawn."""

    name: str
    mutate: Mutation
    runs: tuple[str, ...] = RUNS
    weight: float = 1.0


def edited(edit: Edit, files: Callable[[Case], Sequence[Path]], case: Case) -> None:
    """Apply an edit to one of the files."""
    path = case.rng.choice(files(case))
    if path.is_file() and (data := path.read_bytes()):
        put(path, edit(case.rng, data))


def plans() -> list[Plan]:
    """All mutations, named ``file: edit``."""
    byte_edits: tuple[Edit, ...] = (flip, cut, drop_slice, empty, not_utf8, tail)
    tree_edits: tuple[Edit, ...] = (
        remove_key,
        change_value,
        rename_key,
        double_key,
        swap_values,
        whole_value,
    )
    pt_edits: tuple[Edit, ...] = (flip, cut, drop_slice, empty, tail, lie_about_sizes, other_storage,
                                  flip_description, other_byte_order, lose_member,
                                  lie_in_directory, bomb, plain_pickle)  # fmt: skip
    others: tuple[Mutation, ...] = (replaced_by_directory, replaced_by_link, replaced_by_stranger,
                                    replaced_by_hostile, tensors_deleted, tensor_directory_replaced)  # fmt: skip
    found = [_plan("json", edit, Case.records, weight=2) for edit in (*byte_edits, *tree_edits)]
    found += [
        _plan("json", change_value, Case.records, weight=8),
        _plan("json", utf16, Case.records, weight=0.3),
    ]
    found += [_plan("json", data_name, Case.records, TENSOR_RUNS, 3)]
    found += [_plan("pt", edit, Case.tensors, TENSOR_RUNS, 1.5) for edit in pt_edits]
    found += [_plan("pt", laughing, Case.tensors, TENSOR_RUNS, 0.5)]
    found += [Plan(f"pt: {mutate.__name__}", mutate, TENSOR_RUNS) for mutate in others]
    found += [Plan("pt: replaced_by_fifo", replaced_by_fifo, TENSOR_RUNS, 0.2)]
    with_stack = tuple(name for name in RUNS if not name.startswith("debug"))
    for edit in (*byte_edits, *tree_edits, stack_value):
        found.append(_plan("stack", edit, Case.stacks, with_stack, 0.5))
    for edit in (*byte_edits, *tree_edits):
        found.append(_plan("compare", edit, lambda case: [case.compare], RUNS, 0.4))
    found.append(Plan("compare: other_path", other_path, weight=2))
    for edit, weight in ((flip, 0.7), (cut, 0.4), (not_utf8, 0.4), (any_yaml, 2), (yaml_names, 1)):
        found.append(_plan("mapping", edit, lambda case: [case.mapping], MAPPING_RUNS, weight))
    found += [Plan("json: record_deleted", record_deleted), Plan("json: runs_mixed", runs_mixed)]
    return found


def _plan(
    what: str,
    edit: Edit,
    files: Callable[[Case], Sequence[Path]],
    runs: tuple[str, ...] = RUNS,
    weight: float = 1.0,
) -> Plan:
    return Plan(f"{what}: {edit.__name__}", partial(edited, edit, files), runs, weight)


# -- running a case ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case; ``problems`` is empty where it passed."""

    seed: int
    number: int
    mutation: str
    run: str
    arguments: tuple[str, ...]
    code: int | None
    seconds: float
    output: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        long = len(self.output) > 6000
        shown = f"{self.output[:2000]}\n…\n{self.output[-4000:]}" if long else self.output
        head = f"seed {self.seed} case {self.number}: {self.mutation} of {self.run}, exit {self.code}"
        problems = [f"  - {problem}" for problem in self.problems]
        return "\n".join([head, f"  {' '.join(self.arguments)}", *problems, shown, "-" * 80])


def arguments(rng: random.Random, mutation: str, run: str, case: Case) -> list[str]:
    """The command line of a case."""
    stated = json.loads(case.compare.read_bytes())
    formats = rng.choices(("csv", "jsonl", "xlsx", "csv,jsonl"), (80, 8, 8, 4))[0]
    found = ["compare", "-o", "out", "--format", formats]
    if mutation.startswith("compare") or rng.random() < 0.4:
        if rng.random() < 0.4 and case.stacks():
            stated["stack_path"] = str(case.stacks()[0].relative_to(case.home))
            put(case.compare, json.dumps(stated).encode())
        found += ["-i", "compare.json"]
        found += ["-s"] if rng.random() < 0.6 else []
    else:
        paths = [Path(stated[key]) for key in ("npu_path", "bench_path")]
        found += [str(path.parent if path.suffix and rng.random() < 0.4 else path) for path in paths]
    if case.mapping.exists() and (mutation.startswith("mapping") or rng.random() < 0.5):
        found += ["-dm", "data_mapping.yaml"]
    elif rng.random() < (0.8 if "fuzzy" in run else 0.15):
        found.append("-f")
    found += ["-hl"] if rng.random() < 0.3 else []
    found += ["-c"] if rng.random() < 0.1 else []
    share = 0.3 if "tensor" in run else 0.01
    return found + [part for name in METRICS if rng.random() < share for part in ("--metric", name)]


def drawn(seed: int, number: int) -> tuple[Plan, str, random.Random]:
    """The mutation and the runs of a case, and the rest of its dice."""
    rng = random.Random(f"{seed}:{number}")
    known = plans()
    plan = rng.choices(known, [plan.weight for plan in known])[0]
    return plan, rng.choice(plan.runs), rng


def run_case(source: Path, seed: int, number: int) -> Outcome:
    """Make case ``number`` of ``seed`` from the runs unpacked in ``source``, compare, and judge."""
    plan, run, rng = drawn(seed, number)
    with tempfile.TemporaryDirectory(dir=source.parent, prefix="case-") as name:
        case = Case(Path(name) / "runs", rng, Path(name) / "MARKER")
        shutil.copytree(source / run / VERSION, case.home, copy_function=os.link)
        line = arguments(rng, plan.name, run, case)
        plan.mutate(case)
        names = [plan.name]
        if rng.random() < 0.15:
            second = rng.choice([other for other in plans() if run in other.runs])
            with _forgiving():
                second.mutate(case)
                names.append(second.name)
        encoding = "ascii" if rng.random() < 0.1 else "utf-8"
        code, output, seconds, problems = compared(case.home, line, encoding)
        problems += judged(case, line, code, output)
        what = " + ".join(names)
        return Outcome(seed, number, what, run, tuple(line), code, seconds, output, tuple(problems))


@contextmanager
def _forgiving() -> Iterator[None]:
    """A second mutation may find nothing left to damage."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError, zipfile.BadZipFile):
        return


def compared(home: Path, line: list[str], encoding: str) -> tuple[int | None, str, float, list[str]]:
    """Run ``probe`` in ``home``: its exit code, all it printed, its seconds, what went wrong."""
    from probe_core.cli.main import run

    memory = io.BytesIO()
    stream = io.TextIOWrapper(memory, encoding, write_through=True)
    before, start = Path.cwd(), time.monotonic()
    code: int | None = None
    problems: list[str] = []
    os.chdir(home)
    try:
        with redirect_stdout(stream), redirect_stderr(stream), alarm():
            code = run(line)
    except TimedOut:
        problems.append(f"took more than {LIMIT} s\n{''.join(traceback.format_exc().splitlines(True)[-12:])}")
    except BaseException as error:
        problems.append(f"{type(error).__name__} came out of run()\n{traceback.format_exc()}")
    finally:
        os.chdir(before)
    return code, memory.getvalue().decode(encoding, "replace"), time.monotonic() - start, problems


@contextmanager
def alarm() -> Iterator[None]:
    """End what takes more than LIMIT seconds; end the process where not even a signal gets through."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TimedOut

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT)
    faulthandler.dump_traceback_later(LIMIT + 5, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, old)


# -- judging it --------------------------------------------------------------------------------


def judged(case: Case, line: list[str], code: int | None, output: str) -> list[str]:
    """All that is wrong with the outcome of a case."""
    out = case.home / "out"
    found = [f"exit code {code}"] if code not in (0, 2, None) else []
    found += ["a traceback is shown"] if "Traceback" in output else []
    found += ["a file's command was run"] if case.marker.exists() or (case.home / "MARKER").exists() else []
    found += ["a file outside was read"] if "root:x:0" in output else []
    if code == 2 and not re.search(r"^error: .+\n  \S", output, re.M):
        found.append("exit 2 without an error and the way to mend it")
    files = sorted(out.iterdir()) if out.is_dir() else []
    found += [f"left behind: {path.name}" for path in files if not RESULT.fullmatch(path.name)]
    summaries = re.findall(r"^(?:rank\d+: )?([\d,]+) rows of", output, re.M)
    results = [path for path in files if "compare_result" in path.name]
    formats = line[line.index("--format") + 1].split(",")
    ranks = {path.name.rpartition("_")[0] for path in results}
    if code == 0 and not summaries:
        found.append("exit 0 without a summary")
    if summaries and len(results) != len(summaries) * len(formats):
        found.append(f"{len(results)} results for {len(summaries)} comparisons")
    if code == 2 and not summaries and any("_rank" not in name for name in ranks):
        found.append("nothing was compared, and there is a result")
    for path in results:
        if stat.S_IMODE(path.stat().st_mode) != 0o640:
            found.append(f"{path.name} has mode {stat.S_IMODE(path.stat().st_mode):o}")
        found += whole(path, [int(text.replace(",", "")) for text in summaries])
    return found


def whole(path: Path, counts: Sequence[int]) -> list[str]:
    """What is wrong with one result file; ``counts`` are the rows that the summaries speak of."""
    try:
        rows = {".csv": csv_rows, ".jsonl": jsonl_rows, ".xlsx": xlsx_rows}[path.suffix](path)
    except (ValueError, csv.Error, zipfile.BadZipFile, KeyError, ElementTree.ParseError) as error:
        return [f"{path.name} is not whole: {type(error).__name__}: {error}"]
    if counts and rows not in counts:
        return [f"{path.name} has {rows} rows where the summary says {counts}"]
    return []


def csv_rows(path: Path) -> int:
    """The rows below the header, each as long as the header, none with a formula."""
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ValueError(f"row {number} has {len(row)} of {len(header)} cells")
        for cell in row:
            if FORMULA.match(cell) and not _is_number(cell):
                raise ValueError(f"row {number} holds the formula {cell[:40]!r}")
    return len(rows)


def jsonl_rows(path: Path) -> int:
    """The objects, all with the same members, none with a number that JSON does not know."""
    rows = [json.loads(text, parse_constant=_refuse) for text in path.read_text("utf-8").split("\n")[:-1]]
    if len({tuple(key for key in row if key != "highlight") for row in rows}) > 1:
        raise ValueError("the rows differ in their members")
    return len(rows)


def xlsx_rows(path: Path) -> int:
    """The rows of the sheet; every part is well-formed, and no row is longer than the header."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: ElementTree.fromstring(archive.read(name)) for name in archive.namelist()
                 if name.endswith((".xml", ".rels"))}  # fmt: skip
    sheet = parts["xl/worksheets/sheet1.xml"]
    space = sheet.tag.partition("}")[0] + "}"
    header, *rows = sheet.iter(f"{space}row")
    if any(len(row) > len(header) for row in rows) or any(True for _ in sheet.iter(f"{space}f")):
        raise ValueError("a row is longer than the header, or a cell holds a formula")
    return len(rows)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _is_number(text: str) -> bool:
    try:
        float(text.removesuffix("%"))
    except ValueError:
        return False
    return True


# -- many cases --------------------------------------------------------------------------------


def run_slice(source: Path, seed: int, numbers: Sequence[int]) -> list[Outcome]:
    """Run some cases one after the other."""
    return [run_case(source, seed, number) for number in numbers]


def run_cases(data: Path, seed: int, numbers: Sequence[int], jobs: int = 1) -> list[Outcome]:
    """Run cases, shared out among ``jobs`` processes; the outcomes in the order of their numbers."""
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        source = Path(name) / "source"
        with zipfile.ZipFile(data) as archive:
            archive.extractall(source)
        shares = [numbers[start::jobs] for start in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            found = [one for share in pool.map(partial(run_share, source, seed), shares) for one in share]
    return sorted(found, key=lambda outcome: outcome.number)


def run_share(source: Path, seed: int, numbers: Sequence[int]) -> list[Outcome]:
    """Run cases in a process of their own; one that takes the process down costs itself alone."""
    found: list[Outcome] = []
    chunks = [numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK)]
    while chunks:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            try:
                while chunks:
                    found += pool.submit(run_slice, source, seed, chunks[0]).result()
                    del chunks[0]
            except BrokenProcessPool:
                lost = chunks.pop(0)
                if len(lost) == 1:
                    found.append(crashed(source, seed, lost[0]))
                else:
                    chunks[:0] = [[number] for number in lost]
    return found


def crashed(source: Path, seed: int, number: int) -> Outcome:
    """The outcome of a case that ended its process."""
    plan, run, _ = drawn(seed, number)
    problem = "the process crashed, or hung where no signal gets through; see the stack on stderr"
    return Outcome(seed, number, plan.name, run, (), None, LIMIT, "", (problem,))


def main() -> int:
    """The script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", type=int, help="run this case alone and show it")
    given = parser.parse_args()
    if given.only is not None:
        (outcome,) = run_cases(given.data, given.seed, [given.only])
        print(outcome)
        return int(bool(outcome.problems))
    outcomes = run_cases(given.data, given.seed, range(given.count), given.jobs)
    failed = [outcome for outcome in outcomes if outcome.problems]
    for outcome in failed:
        print(outcome)
    slowest = max(outcomes, key=lambda outcome: outcome.seconds, default=None)
    if slowest:
        print(f"slowest: case {slowest.number}, {slowest.mutation}, {slowest.seconds:.1f} s")
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
