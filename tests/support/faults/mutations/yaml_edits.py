"""Damage to the mapping of rows, the file for ``-dm``."""

from __future__ import annotations

import random
from itertools import pairwise

from support.faults.mutations.case import MARKER


def _laughing() -> bytes:
    """A list that would print as 2**40 words."""
    names = [b"a", *(b"b%d" % number for number in range(40))]
    lines = (b"%b: &%b [*%b,*%b]\n" % (name, name, old, old) for old, name in pairwise(names))
    return b"a: &a ['lol']\n" + b"".join(lines)


FILES = (
    b"", b"\n# nothing\n", b"- a\n- b\n", b"a: [b]\n", b"1: 2\n", b"a: null\n", b"just text",
    b"a: b: c\n", b"\xff\xfe\x00a", b"a: \x01\n", b"? {a: b}\n: c\n",
    b"a: !!python/object/apply:os.system ['touch %b']\n" % MARKER.encode(),
    b"a: &x [*x]\n", b"[" * 20_000, b"a: " + b"{a: " * 5_000, b"<<: 1\n", b"a: 2026-01-01\n",
    b"a: '\\ud800'\n", b'a: "\\ud800"\n', _laughing(),
)  # fmt: skip


def any_yaml(rng: random.Random, data: bytes) -> bytes:
    """A file that is no mapping of names, or no YAML."""
    return rng.choice(FILES)


def names(rng: random.Random, data: bytes) -> bytes:
    """Names of rows that are not there, that are there twice, that meet in one row."""
    lines = [line for line in data.decode().splitlines() if not line.startswith("#")]
    (ours, its), (_, others) = (line.split(": ", 1) for line in rng.sample(lines, 2))
    odd = (f"{ours}: {others}", f"{ours}x: {its}", f"{ours}: =1+1", f"'': {its}", f'"\\x1b[2J": {its}',
           f"{ours}: {'n' * 100_000}")  # fmt: skip
    return "\n".join([*lines, rng.choice(odd)]).encode()
