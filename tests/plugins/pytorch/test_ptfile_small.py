"""The compiled reader of small ``.pt`` files: it reads what torch saves, and nothing that Python refuses."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_pytorch import ptfile
from probe_pytorch.ptfile import load_pt
from probe_recording.reading.memory import SMALL_FILE
from support.measuring import PROPERTY
from support.runs.pt_builder import ONES, archive, program, tensor
from support.sampling import examples

from probe_core.errors import UnreadableTensor

if importlib.util.find_spec("probe_pytorch._ptfile") is None and "CI" not in os.environ:
    pytest.skip("probe_pytorch._ptfile is not built: there was no C compiler", allow_module_level=True)
compiled: Any = importlib.import_module("probe_pytorch._ptfile")
read_small = compiled.read_small


def saved(value: object) -> bytes:
    """The content of a file by ``torch.save``."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


BY_TORCH = saved(torch.arange(12.0).reshape(3, 4).t())


def outcome(path: Path) -> tuple[object, ...]:
    """The array that a file holds, or the message of its refusal."""
    try:
        array = load_pt(path)
    except UnreadableTensor as error:
        return (str(error),)
    return array.dtype, array.shape, array.strides, array.tobytes()


def check(path: Path, content: bytes) -> bool:
    """Assert that a file gives the same with and without the compiled reader; return True if that reads it."""
    path.write_bytes(content)
    found = []
    for engine in (compiled, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ptfile, "_load_compiled_reader", lambda engine=engine: engine)
            found.append(outcome(path))
    assert found[0] == found[1]
    return read_small(path, SMALL_FILE) is not None


def test_files_of_torch_are_read(tmp_path: Path) -> None:
    values = [torch.ones(3), torch.nn.Parameter(torch.zeros(2, 2)), torch.tensor(1), torch.ones(2).bfloat16()]
    assert all(check(tmp_path / "x.pt", saved(value)) for value in values)
    assert check(tmp_path / "y.pt", archive(tmp_path / "x.pt", program(tensor())).read_bytes())


def test_other_files_are_left_to_python(tmp_path: Path) -> None:
    large = saved(torch.zeros(SMALL_FILE))
    several = archive(tmp_path / "a.pt", program(tensor()), {"0": ONES, "1": ONES}).read_bytes()
    packed = archive(tmp_path / "b.pt", program(tensor()), compression=zipfile.ZIP_DEFLATED).read_bytes()
    big = archive(tmp_path / "c.pt", program(tensor()), byteorder=b"big").read_bytes()
    long = archive(tmp_path / "d.pt", program(tensor()) + b" " * ptfile.USUAL_PICKLE_BYTES).read_bytes()
    two = saved([torch.ones(1), torch.ones(2)])
    for content in (large, several, packed, big, long, two, b"", b"PK", BY_TORCH + b"x"):
        assert not check(tmp_path / "x.pt", content)


def test_two_roots_and_names_given_twice(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.pt", program(tensor()))
    for name in ("y/data.pkl", "x/data.pkl", "x/data/0", "x/byteorder", "x/data/0/data.pkl"):
        path.write_bytes(archive(tmp_path / "y.pt", program(tensor())).read_bytes())
        with zipfile.ZipFile(path, "a") as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *args, **options: None)  # of zipfile, of the name
            file.writestr(name, b"little")
        assert not check(path, path.read_bytes()), name


def test_a_key_that_the_description_does_not_name(tmp_path: Path) -> None:
    check(tmp_path / "x.pt", archive(tmp_path / "y.pt", program(tensor()), {"1": ONES}).read_bytes())


def test_cut_off_anywhere(tmp_path: Path) -> None:
    for length in range(len(BY_TORCH)):
        assert not check(tmp_path / "x.pt", BY_TORCH[:length])


@settings(PROPERTY, max_examples=examples(600))
@given(st.integers(0), st.sampled_from([0, 1, 2]))
def test_damaged_anywhere(tmp_path_factory: pytest.TempPathFactory, seed: int, kind: int) -> None:
    """Bytes, and the 2- and 4-byte numbers of the zip's directory, may hold anything."""
    path = tmp_path_factory.getbasetemp() / "small.pt"
    draw = random.Random(seed)
    content = bytearray(BY_TORCH if kind else archive(path, program(tensor())).read_bytes())
    start = len(content) * 2 // 3 if kind == 2 else 0
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(start, len(content) - 4)
        size = draw.choice((1, 2, 4))
        number = draw.choice((0, 1, draw.getrandbits(8 * size), 2 ** (8 * size) - 1))
        content[place : place + size] = number.to_bytes(size, "little")
    check(path, bytes(content))


def test_neither_links_nor_pipes_are_followed(tmp_path: Path) -> None:
    """A pipe would block; a link is followed by Python, which has checked where it leads."""
    (tmp_path / "x.pt").write_bytes(BY_TORCH)
    (tmp_path / "link.pt").symlink_to("x.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    for name in ("link.pt", "pipe.pt", "none.pt", "."):
        assert read_small(tmp_path / name, SMALL_FILE) is None
    assert np.array_equal(load_pt(tmp_path / "link.pt"), load_pt(tmp_path / "x.pt"))


@pytest.mark.parametrize("arguments", [(), ("x",), (1, 2), ("a\0b", 10), ("x", "y")])
def test_wrong_arguments_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        read_small(*arguments)
