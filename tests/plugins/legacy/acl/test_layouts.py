"""Layouts of the device and back: what an element-by-element writer stored is found again, without padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_legacy.acl.dump import AclDump
from probe_legacy.acl.layouts import ArrayInLayout
from support.runs import acl_dumps as acl

SIZES = st.integers(1, 5)
ORDERS = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "HWCN": (2, 3, 1, 0), "CHWN": (1, 2, 3, 0)}
NUMBERS = {"NCHW": 0, "NHWC": 1, "ND": 2, "HWCN": 16, "CHWN": 14, "NDHWC": 27, "NCDHW": 30}


def read(tmp_path: Path, device: Any, layout: int, wanted: str = "host", **more: Any) -> ArrayInLayout:
    """Write a dump with one output and return that output."""
    path = acl.write(
        tmp_path / acl.NAME,
        acl.dump(acl.tensor("output", device.tobytes(), 2, layout, device.shape, **more)),
    )
    dump = AclDump(path)
    return dump.read_array(dump.header.sections[0], wanted)


def numbered(*shape: int) -> Any:
    """Return values that are all different and not zero."""
    return np.arange(1, np.prod(shape) + 1).reshape(shape).astype(np.float16)


@settings(max_examples=30, deadline=None)
@given(
    n=SIZES,
    c=st.integers(1, 20),
    h=SIZES,
    w=SIZES,
    block=st.sampled_from([4, 16]),
    order=st.sampled_from([*ORDERS]),
)
def test_blocks_of_channels(
    tmp_path_factory: pytest.TempPathFactory, n: int, c: int, h: int, w: int, block: int, order: str
) -> None:
    values = numbered(n, c, h, w)
    host = values.transpose(ORDERS[order])
    placed = read(
        tmp_path_factory.mktemp("d"), acl.five_dimensions(values, block), 3 if block == 16 else 12,
        host=host.shape, host_layout=NUMBERS[order],
    )  # fmt: skip
    assert (placed.layout, placed.note) == (order, "") and np.array_equal(placed.array, host)


@settings(max_examples=20, deadline=None)
@given(n=SIZES, c=st.integers(1, 20), d=SIZES, h=SIZES, w=SIZES)
def test_blocks_of_channels_with_depth(
    tmp_path_factory: pytest.TempPathFactory, n: int, c: int, d: int, h: int, w: int
) -> None:
    values = numbered(n, c, d, h, w)
    placed = read(tmp_path_factory.mktemp("d"), acl.six_dimensions(values, 16), 32, host=values.shape)
    assert (placed.layout, placed.note) == ("NCDHW", "") and np.array_equal(placed.array, values)


@settings(max_examples=30, deadline=None)
@given(
    lead=st.lists(st.integers(1, 3), max_size=3),
    h=st.integers(1, 40),
    w=st.integers(1, 40),
    wide=st.sampled_from([16, 32]),
)
def test_tiles_of_matrices(
    tmp_path_factory: pytest.TempPathFactory, lead: list[int], h: int, w: int, wide: int
) -> None:
    values = numbered(*lead, h, w)
    placed = read(tmp_path_factory.mktemp("d"), acl.tiles(values, 16, wide), 29, host=values.shape)
    assert placed.note == "" and np.array_equal(placed.array, values)


def test_a_vector_in_tiles(tmp_path: Path) -> None:
    values = numbered(20)
    placed = read(tmp_path, acl.tiles(values.reshape(1, 20), 16, 16), 29, host=(20,))
    assert placed.note == "" and np.array_equal(placed.array, values)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 40), c=st.integers(1, 40), h=st.integers(1, 3), w=st.integers(1, 3))
def test_weights_of_a_convolution(tmp_path_factory: pytest.TempPathFactory, n: int, c: int, h: int, w: int) -> None:
    values = numbered(n, c, h, w)
    placed = read(tmp_path_factory.mktemp("d"), acl.weights(values, 16, 16), 4, host=values.shape, host_layout=0)
    assert (placed.layout, placed.note) == ("NCHW", "") and np.array_equal(placed.array, values)


def test_without_a_recorded_layout_the_shapes_decide(tmp_path: Path) -> None:
    values = numbered(2, 5, 3, 4)
    device = acl.five_dimensions(values, 16)
    for order, axes in ORDERS.items():
        host = values.transpose(axes)
        placed = read(tmp_path, device, 3, host=host.shape)
        assert placed.layout == order and np.array_equal(placed.array, host)
    assert read(tmp_path, device, 3, host=(2, 5, 3, 4), host_layout=1).layout == "NCHW", "the shape disagrees"
    square = read(tmp_path, acl.five_dimensions(numbered(2, 3, 3, 3), 16), 3, host=(2, 3, 3, 3))
    assert square.layout == "NCHW"
    assert (
        read(tmp_path, acl.five_dimensions(numbered(2, 3, 3, 3), 16), 3, host=(2, 3, 3, 3), host_layout=1).layout
        == "NHWC"
    )


def test_channels_of_a_vector(tmp_path: Path) -> None:
    values = numbered(1, 20, 1, 1)
    placed = read(tmp_path, acl.five_dimensions(values, 16), 3, host=(20,))
    assert placed.note == "" and np.array_equal(placed.array, values.reshape(20))


def test_the_wanted_layout(tmp_path: Path) -> None:
    values = numbered(2, 5, 3, 4)
    device = acl.five_dimensions(values, 16)
    assert np.array_equal(read(tmp_path, device, 3, "device", host=values.shape).array, device)
    for order, axes in ORDERS.items():
        placed = read(tmp_path, device, 3, order, host=values.shape)
        assert placed.layout == order and np.array_equal(placed.array, values.transpose(axes))
    assert np.array_equal(read(tmp_path, device, 3, "ND", host=values.shape).array, values)
    plain = read(tmp_path, values, 0, "NHWC", host=values.shape)
    assert np.array_equal(plain.array, values.transpose(0, 2, 3, 1)) and plain.layout == "NHWC"
    matrix = read(tmp_path, numbered(2, 3), 2, "NHWC", host=(2, 3))
    assert matrix.note == "ND cannot be turned into NHWC" and np.array_equal(matrix.array, numbered(2, 3))


def test_plain_layouts_become_that_of_the_program(tmp_path: Path) -> None:
    values = numbered(2, 5, 3, 4)
    placed = read(tmp_path, values.transpose(0, 2, 3, 1).copy(), 1, host=values.shape, host_layout=0)
    assert placed.layout == "NCHW" and np.array_equal(placed.array, values)
    assert np.array_equal(read(tmp_path, numbered(6), 2, host=(2, 3)).array, numbered(2, 3))
    assert read(tmp_path, numbered(2, 3), 2, host=(2, 3)).note == ""


@pytest.mark.parametrize(
    ("device", "layout", "host"),
    [
        ((1, 1, 2, 2, 16), 3, (1, 17, 2, 2)),
        ((1, 2, 2, 2, 16), 3, (1, 16, 2, 2)),
        ((1, 1, 2, 2), 3, (1, 1, 2, 2, 1)),
        ((1, 1, 2, 2, 16), 3, ()),
        ((2, 2, 16, 16), 29, (33, 30)),
        ((2, 16, 16), 29, (20, 20)),
        ((3, 1, 1, 16, 16), 29, (2, 2, 2)),
        ((4, 1, 16, 16), 4, (3, 3, 3, 3)),
        ((4, 16), 4, (3, 3, 3, 3)),
        ((6,), 0, (2, 3)),
        ((0, 1, 2, 2, 16), 3, (1, 3, 2, 2)),
        ((4, 1, 16, 0), 4, (3, 3, 2, 2)),
        ((4, 1, 16, 16), 4, (3, 3, 0, 0)),
    ],
)
def test_shapes_that_disagree_keep_the_layout_of_the_device(
    tmp_path: Path, device: tuple[int, ...], layout: int, host: tuple[int, ...]
) -> None:
    placed = read(tmp_path, numbered(*device), layout, host=host)
    assert np.array_equal(placed.array, numbered(*device))
    assert placed.note == f"the shape {list(device)} in {placed.layout} does not agree with {list(host)}"


def test_other_reasons_to_keep_the_layout_of_the_device(tmp_path: Path) -> None:
    assert read(tmp_path, numbered(4, 1, 16, 16), 4, host=(3, 3, 2, 2), groups=2).note == (
        "it holds the weights of 2 groups"
    )
    assert read(tmp_path, numbered(1, 1, 2, 2, 16), 3).note == "the header has no shape of the program"
    assert read(tmp_path, numbered(2), 2).note == "", "without padding there is nothing to turn back"
    assert read(tmp_path, numbered(2), 28, host=(1,)).note.endswith("in FRACTAL_ZZ does not agree with [1]")
    assert read(tmp_path, numbered(2), 77, host=(1,)).layout == "unknown layout 77"
