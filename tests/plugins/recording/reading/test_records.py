"""The compiled reader of ordinary records gives the columns and the messages of the Python reader."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_recording.reading import records
from probe_recording.reading.run import DumpRun
from support.sampling import examples

from probe_core.errors import UserError

pytestmark = pytest.mark.skipif(
    records.load_compiled_reader() is None, reason="there was no C++ compiler at installation"
)

NUMBERS = st.one_of(
    st.floats(), st.integers(-3, 3), st.sampled_from([2**53, 2**53 + 1, -(2**60), 1e-320, 1e22, -0.0]),
    st.booleans(), st.none(), st.just("text"),
)  # fmt: skip
NAMES = st.sampled_from(["0", "dim", "a.b", "src", "type_", "é", 'q"', ""])
TENSORS = st.fixed_dictionaries(
    {"type": st.just("torch.Tensor"), "dtype": st.sampled_from(["torch.float32", "torch.int64", 3])},
    optional={
        "shape": st.lists(st.integers(0, 3), max_size=3) | st.just([True]) | st.just("x"),
        "Max": NUMBERS, "Min": NUMBERS, "Mean": NUMBERS, "Norm": NUMBERS,
        "requires_grad": st.sampled_from([True, False, None, 1]),
        "md5": st.sampled_from(["1f", "", None, 5]),
        "data_name": st.sampled_from(["a.b.pt", "-1", "", ".pt", "a/b", "noending", None]),
        "further": NUMBERS | st.lists(NUMBERS, max_size=2),
    },
)  # fmt: skip
SCALARS = st.builds(
    lambda kind, value: {"type": kind, "value": value},
    st.sampled_from(["int", "float", "bool", "str", "slice", "torch.Size"]),
    st.one_of(NUMBERS, st.text(max_size=3), st.lists(st.integers(), max_size=2)),
)
LEAVES = st.one_of(TENSORS, SCALARS, st.none(), st.integers(), st.text(max_size=2))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
CALLS = st.dictionaries(
    st.sampled_from(["input_args", "input_kwargs", "input", "parameters", "output", "is_recompute"]),
    TREES,
    max_size=4,
)
BYTES = b'{}[]",:0123456789.eE+-nulltrue\\\x00\xff \n'
KEYS = [f"Torch.add.{n}.forward" for n in range(8)] + ["x.debug", "Module.a.B.parameters_grad", "é", ""]


def opened(path: Path) -> tuple[Any, ...]:
    """Return the contents of a record file, or the message of its error."""
    try:
        run = DumpRun(path, "pytorch", lambda file: np.zeros(1))
    except UserError as error:
        return (str(error),)
    with_types = [
        [(slot, [type(item) for item in slot.value.statistics], repr(slot)) for slot in run.record(n).slots]
        for n in range(len(run))
    ]
    shown = [[(types, text) for _, types, text in record] for record in with_types]
    found = (
        [*run.names()], [*run.starts], [*run.signatures], run.mode, shown,
        [run.fields(n) is not None for n in range(len(run))], [repr(run.fields(n)) for n in range(len(run))],
    )  # fmt: skip
    run.close()
    return found


def by_both(path: Path) -> Iterator[tuple[Any, ...]]:
    """Yield the contents or the error of a file by the compiled reader, then by the Python reader."""
    yield opened(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "load_compiled_reader", lambda: None)
        yield opened(path)


def written(directory: Path, text: bytes) -> Path:
    path = directory / "dump.json"
    path.write_bytes(text)
    return path


def as_dump(data: dict[str, Any], indent: int | None = None) -> bytes:
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    return json.dumps({**head, "data": data}, indent=indent).encode()


@given(st.dictionaries(st.sampled_from(KEYS), CALLS, max_size=6), st.sampled_from([None, 1]))
@settings(max_examples=examples(400), deadline=None)
def test_both_readers_agree_on_any_records(tmp_path_factory: Any, data: Any, indent: int | None) -> None:
    compiled, plain = by_both(written(tmp_path_factory.mktemp("run"), as_dump(data, indent)))
    assert compiled == plain


def test_both_readers_agree_on_recorded_runs(runs: Any) -> None:
    paths = [
        path for case in ("tensor_L1_edge", "stat_L1_edge", "md5_L1_edge") for path in runs(case).rglob("dump.json")
    ]
    assert len(paths) > 3
    for path in paths:
        compiled, plain = by_both(path)
        assert compiled == plain, path


@pytest.mark.parametrize("seed", range(4))
def test_both_readers_agree_on_damaged_files(tmp_path: Path, seed: int) -> None:
    """Files that are cut off, or with changed, inserted and removed bytes, give the same values or message."""
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": 1.5, "Min": -2.0,
            "Mean": float("nan"), "Norm": 1e-7, "requires_grad": True}  # fmt: skip
    call = {"input_args": [leaf, {"type": "int", "value": 3}, None], "input_kwargs": {"p": {"type": "float", "value": 0.5}},
            "output": [leaf]}  # fmt: skip
    good = as_dump({f"Torch.add.{n}.forward": call for n in range(4)})
    source = random.Random(seed)
    for _ in range(examples(2500)):
        text = bytearray(good)
        for _ in range(source.randint(1, 3)):
            place = source.randrange(len(text) or 1)
            match source.randrange(4):
                case 0:
                    text[place : place + 1] = bytes([source.choice(BYTES)])
                case 1:
                    del text[place : place + source.randint(1, 9)]
                case 2:
                    text[place:place] = text[place : place + source.randint(1, 30)]
                case 3:
                    del text[place:]
        compiled, plain = by_both(written(tmp_path, bytes(text)))
        assert compiled == plain, bytes(text)


def test_records_that_cross_parts_of_the_file_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from probe_recording.reading import jsonstream

    data = {f"Torch.add.{n}.forward": {"output": [{"type": "float", "value": n / 7}]} for n in range(40)}
    path = written(tmp_path, as_dump(data, 1))
    wanted = opened(path)
    for size in (1, 7, 100, 1000):
        monkeypatch.setattr(jsonstream, "CHUNK_BYTES", size)
        compiled, plain = by_both(path)
        assert compiled == plain == wanted


def test_integers_that_float64_does_not_hold_keep_all_digits(tmp_path: Path) -> None:
    """2**53 + 1 as float64 is 2**53, which float64 holds."""
    values = [sign * (2**53 + offset) for sign in (1, -1) for offset in (-1, 0, 1, 2, 3)]
    data = {f"Torch.add.{n}.forward": {"output": [{"type": "int", "value": v}]} for n, v in enumerate(values)}
    compiled, plain = by_both(written(tmp_path, as_dump(data)))
    assert compiled == plain


def test_a_name_that_appears_twice_is_refused(tmp_path: Path) -> None:
    record = '{"output": [null]}'
    text = f'{{"task": "statistics", "level": "L1", "data": {{"a": {record}, "b": {record}, "a": {record}, "c": {record}}}}}'
    compiled, plain = by_both(written(tmp_path, text.encode()))
    assert compiled == plain and 'data["a"] appears twice' in compiled[0]
