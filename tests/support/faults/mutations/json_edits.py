"""Damage to JSON that leaves it JSON, or nearly: records, stacks and the compare file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

RAW = "@RAW@"
"""Stands in a tree for JSON that no writer would write."""

TEXTS = (
    '"\\ud800"', '"\\udc80\\ud800x"', '"\\u0000"', '"\\u001b[2J\\u0007"', '"a\\r\\nb"', '"\\ufffe\\u2028"',
    '"=1+1"', "\"+cmd|' /C calc'!A0\"", '"@SUM(1)"', '"-2+3"', '"a;=1+1"', '"{}{0}%s"', '"tensor"', '""',
    '"' + "n" * 300 + '"', '"' + "n" * 100_000 + '"', '"' + "\\u4e2d" * 40_000 + '"',
)  # fmt: skip
VALUES = (
    *TEXTS,
    "null", "true", "0", "-1", "1e400", "-1e400", "NaN", "-Infinity", "1.5", "[]", "{}", "[null]",
    "1" + "0" * 5000, "-1" + "0" * 4000, "1" + "0" * 400, "9007199254740993", "1e308", "-0.0",
    "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "0" + "}" * 100_000,
    "[" * 150 + "]" * 150, "[" * 300 + "]" * 300,
    "[-1, 2]", "[3, -9223372036854775808]", "[1e3]", "[true]", '["6"]', "[1099511627776, 1099511627776]",
    "[0, 18446744073709551616]", "[" + ", ".join(["1"] * 70) + "]",
    '{"type": "torch.Tensor"}', '{"type": "torch.Tensor", "dtype": 3}', '{"type": "slice", "value": 1}',
    '{"type": "torch.Size", "value": {"a": [1]}}', '{"type": "int", "value": [1]}', '{"type": 1}',
    '{"type": "torch.ProcessGroup", "group_ranks": [[]]}', '{"class_type": "torch.distributed.P2POp"}',
)  # fmt: skip
GROUPS = ("1", "null", '"x"', "[]", "[[], []]", '[["a"], [1]]', '[[1], ["x"]]', "[[[]], []]",
          '[["a"], ["x"], []]', "{}", '["=1+1"]', '["\\ud800"]', "[null]")  # fmt: skip
PATHS: tuple[Any, ...] = ("", ".", "/", "\x00", "a\x00b", "\ud800", "n" * 5000, "/" * 3000, "/etc/passwd", "npu_dump",
         "nowhere/dump.json", "npu_dump/step0/rank/stack.json", "compare.json", None, [], 1,
         "/proc/self/mem", "~")  # fmt: skip
NAMES = ("../../etc/passwd", "../../../../../../../../etc/passwd", "/etc/passwd", "/dev/zero", "..", ".", "",
         "-1", "\x00.pt", "\ud800.pt", "n" * 300 + ".pt", "..\\x.pt", "=1+1.pt", "../dump.json", "~",
         "中.pt")  # fmt: skip
FIELDS = ("type", "dtype", "shape", "Max", "Mean", "Norm", "md5", "value", "requires_grad", "data_name")


def dumped(tree: Any, raw: str = "") -> bytes:
    """The file of a tree, with ``raw`` where the tree has RAW."""
    return json.dumps(tree, indent=1).replace(f'"{RAW}"', raw, 1).encode()


def places(tree: Any) -> Iterator[tuple[Any, Any, int]]:
    """Every member and item: its container, its key, its depth."""
    waiting = [(tree, 0)]
    while waiting:
        value, depth = waiting.pop()
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            yield value, key, depth
            waiting.append((value[key], depth + 1))


def pick(rng: random.Random, tree: Any, kinds: tuple[type, ...] = (dict, list)) -> tuple[Any, Any]:
    """A random place, the head of the file and the fields of tensors more often than not."""
    found = [place for place in places(tree) if isinstance(place[0], kinds)]
    wanted = rng.random()
    if wanted < 0.25:
        found = [place for place in found if place[2] < 2] or found
    elif wanted < 0.7:
        field = rng.choice(FIELDS)
        found = [place for place in found if place[1] == field] or found
    container, key, _ = rng.choice(found)
    return container, key


def remove(rng: random.Random, data: bytes) -> bytes:
    """Without one member or item."""
    tree = json.loads(data)
    container, key = pick(rng, tree)
    del container[key]
    return dumped(tree)


def change_value(rng: random.Random, data: bytes) -> bytes:
    """Another value for one member or item."""
    tree = json.loads(data)
    container, key = pick(rng, tree)
    container[key] = RAW
    return dumped(tree, rng.choice(VALUES))


def rename_key(rng: random.Random, data: bytes) -> bytes:
    """Another name for one member, in the same place."""
    tree = json.loads(data)
    container, key = pick(rng, tree, (dict,))
    renamed = {RAW if name == key else name: value for name, value in container.items()}
    container.clear()
    container.update(renamed)
    return dumped(tree, rng.choice(TEXTS))


def double_key(rng: random.Random, data: bytes) -> bytes:
    """One member twice, with another value perhaps."""
    tree = json.loads(data)
    container, key = pick(rng, tree, (dict,))
    container[RAW] = rng.choice((container[key], None, [], 7))
    return dumped(tree, json.dumps(key))


def swap_values(rng: random.Random, data: bytes) -> bytes:
    """Two values, each in the place of the other."""
    tree = json.loads(data)
    (first, one), (second, other) = pick(rng, tree), pick(rng, tree)
    first[one], second[other] = deepcopy(second[other]), deepcopy(first[one])
    return dumped(tree)


def whole_value(rng: random.Random, data: bytes) -> bytes:
    """A value alone."""
    return rng.choice(VALUES).encode()


def data_name(rng: random.Random, data: bytes) -> bytes:
    """A record that names a tensor file that is not its own."""
    tree = json.loads(data)
    found = [container for container, key, _ in places(tree) if key == "data_name"]
    other = str(rng.choice(found)["data_name"])
    rng.choice(found)["data_name"] = rng.choice((*NAMES, other, other.replace(".pt", ".npy")))
    return dumped(tree)


def stack_value(rng: random.Random, data: bytes) -> bytes:
    """A stack file in which one group is not as it should be."""
    tree = json.loads(data)
    tree[rng.choice(list(tree))] = RAW
    return dumped(tree, rng.choice(GROUPS))


def other_path(rng: random.Random, data: bytes) -> bytes:
    """A compare file that names something else."""
    tree = json.loads(data)
    key = rng.choice(("npu_path", "bench_path", "stack_path", "is_print_compare_log", "unknown"))
    tree[key] = rng.choice(PATHS)
    return dumped(tree)
