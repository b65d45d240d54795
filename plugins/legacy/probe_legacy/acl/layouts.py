"""Layouts of the device, turned back into the shapes of the program without their padding.

The device stores channels in blocks of C0, and matrices in tiles. The last block is filled up with zeros. The
header has the shape in the program, but its layout only for some outputs; otherwise the shapes decide: the
first of NCHW, NHWC, HWCN and CHWN that agrees with both.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from probe_core.files.packaged import load_yaml
from probe_legacy.acl.data_types import Array

PLAIN_LAYOUTS = ("NCHW", "NHWC", "HWCN", "CHWN")
PLAIN_3D_LAYOUTS = ("NCDHW", "NDHWC", "DHWCN", "DHWNC")
"""Layouts of the program for four and for five dimensions, the more frequent first."""
OTHER_LAYOUTS = ("ND", "NC", "CN", "NCL")
"""Further layouts of the device without padding."""
HOST_LAYOUT, DEVICE_LAYOUT = "host", "device"


class ArrayInLayout(NamedTuple):
    """Values in a layout.

    Attributes:
        array: The values.
        layout: The name of the layout; that of the device if ``note`` says why it stayed.
        note: The reason why the layout of the device stayed; empty if it did not have to.
    """

    array: Array
    layout: str
    note: str = ""


class Shapes(NamedTuple):
    """The shape of a tensor in the program, with fields that the header may lack.

    Attributes:
        shape: The shape; None if not recorded.
        layout: The name of its layout; empty if not recorded.
        groups: The number of groups of a convolution's weights.
    """

    shape: tuple[int, ...] | None
    layout: str = ""
    groups: int = 0


def format_name(number: int) -> str:
    """Return the name of a layout by its number."""
    return str(load_yaml(__package__, "formats.yaml").get(number, f"unknown layout {number}"))


def place(array: Array, layout: str, host: Shapes, wanted: str = HOST_LAYOUT) -> ArrayInLayout:
    """Return values in the wanted layout.

    Args:
        array: The values in the shape of the device.
        layout: The layout of the device.
        host: The shape in the program.
        wanted: ``host``, ``device``, ``ND`` (as the program had it) or one of ``PLAIN_LAYOUTS``.
    """
    if wanted in (DEVICE_LAYOUT, layout):
        return ArrayInLayout(array, layout)
    if host.shape is None:
        is_plain = layout in (*PLAIN_LAYOUTS, *PLAIN_3D_LAYOUTS, *OTHER_LAYOUTS)
        placed = ArrayInLayout(array, layout, "" if is_plain else "the header has no shape of the program")
    elif layout in _BLOCKED_LAYOUTS:
        placed = _BLOCKED_LAYOUTS[layout](array, layout, host)
    else:
        placed = _convert_plain(array, layout, host)
    if placed.note or wanted in (HOST_LAYOUT, "ND", placed.layout):
        return placed
    if sorted(placed.layout) != sorted(wanted):
        return placed._replace(note=f"{placed.layout} cannot be turned into {wanted}")
    return ArrayInLayout(_permute_axes(placed.array, placed.layout, wanted), wanted)


def _convert_plain(array: Array, layout: str, host: Shapes) -> ArrayInLayout:
    shape = host.shape
    if array.shape == shape:
        return ArrayInLayout(array, layout)
    if sorted(layout) == sorted(host.layout) and len(layout) == array.ndim:
        turned = _permute_axes(array, layout, host.layout)
        if turned.shape == shape:
            return ArrayInLayout(turned, host.layout)
    if layout == "ND" and shape is not None and prod(shape) == array.size:
        return ArrayInLayout(array.reshape(shape), layout)
    return _keep_layout(array, layout, host)


def _keep_layout(array: Array, layout: str, host: Shapes) -> ArrayInLayout:
    return ArrayInLayout(
        array,
        layout,
        f"the shape {list(array.shape)} in {layout} does not agree with {list(host.shape or ())}",
    )


def _permute_axes(array: Array, have: str, want: str) -> Array:
    turned: Array = array.transpose([have.index(letter) for letter in want])
    return turned


def _iterate_host_sizes(host: Shapes, layouts: tuple[str, ...]) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the layouts that the program may have had, with the size of each dimension."""
    shape = host.shape or ()
    for layout in sorted(layouts, key=lambda name: name != host.layout):
        if len(layout) == len(shape):
            yield layout, dict(zip(layout, shape))


def _is_filled(size: int, blocks: int, block: int) -> bool:
    """Return True if ``size`` values need exactly so many blocks."""
    return (blocks - 1) * block < size <= blocks * block or size == blocks == 0


def _join_channels(array: Array, layout: str, host: Shapes) -> ArrayInLayout:
    """Join blocks of channels: N C1 H W C0, and N D C1 H W C0."""
    inner, host_layouts = ("NHW", PLAIN_LAYOUTS) if layout.startswith("NC1") else ("NDHW", PLAIN_3D_LAYOUTS)
    if array.ndim != len(inner) + 2 or host.shape is None:
        return _keep_layout(array, layout, host)
    at = 1 if inner == "NHW" else 2
    blocks, block = array.shape[at], array.shape[-1]
    outer = [axis for axis in range(array.ndim - 1) if axis != at]
    sizes = dict(zip(inner, (array.shape[axis] for axis in outer)))
    joined = array.transpose(0, at, array.ndim - 1, *outer[1:]).reshape(
        sizes["N"], blocks * block, *(sizes[letter] for letter in inner[1:])
    )
    base = host_layouts[0]
    for host_layout, wanted in _iterate_host_sizes(host, host_layouts):
        if _is_filled(wanted["C"], blocks, block) and all(sizes[letter] == wanted[letter] for letter in inner):
            return ArrayInLayout(_permute_axes(joined[:, : wanted["C"]], base, host_layout), host_layout)
    others = prod(sizes.values())
    channels = prod(host.shape) // others if others else 0
    if len(host.shape) < len(base) and channels * others == prod(host.shape) and _is_filled(channels, blocks, block):
        return ArrayInLayout(joined[:, :channels].reshape(host.shape), "ND")
    return _keep_layout(array, layout, host)


def _join_weights(array: Array, layout: str, host: Shapes) -> ArrayInLayout:
    """Join the tiles of a convolution's weights: C1 H W, N1, Ni, C0."""
    if host.groups > 1:
        return ArrayInLayout(array, layout, f"it holds the weights of {host.groups} groups")
    if array.ndim == 4:
        rows, tiles, tile, block = array.shape
        for host_layout, wanted in _iterate_host_sizes(host, PLAIN_LAYOUTS):
            around = wanted["H"] * wanted["W"]
            blocks = rows // around if around else 0
            fits = blocks * around == rows and _is_filled(wanted["C"], blocks, block)
            if fits and _is_filled(wanted["N"], tiles, tile):
                blocks_array = array.reshape(blocks, wanted["H"], wanted["W"], tiles * tile, block)
                joined = blocks_array.transpose(3, 0, 4, 1, 2).reshape(
                    tiles * tile, blocks * block, wanted["H"], wanted["W"]
                )
                return ArrayInLayout(
                    _permute_axes(joined[: wanted["N"], : wanted["C"]], "NCHW", host_layout), host_layout
                )
    return _keep_layout(array, layout, host)


def _join_matrices(array: Array, layout: str, host: Shapes) -> ArrayInLayout:
    """Join the tiles of matrices: …, W1, H1, H0, W0."""
    if array.ndim < 4 or not host.shape:
        return _keep_layout(array, layout, host)
    *lead, across, down, high, wide = array.shape
    *outer, height, width = host.shape if len(host.shape) > 1 else (1, *host.shape)
    if prod(outer) != prod(lead) or not (_is_filled(height, down, high) and _is_filled(width, across, wide)):
        return _keep_layout(array, layout, host)
    tiles_array = array.reshape(prod(lead), across, down, high, wide).transpose(0, 2, 3, 1, 4)
    joined = tiles_array.reshape(prod(lead), down * high, across * wide)[:, :height, :width]
    return ArrayInLayout(joined.reshape(host.shape), host.layout or "ND")


_BLOCKED_LAYOUTS = {
    "NC1HWC0": _join_channels,
    "NC1HWC0_C04": _join_channels,
    "NDC1HWC0": _join_channels,
    "FRACTAL_Z": _join_weights,
    "FRACTAL_NZ": _join_matrices,
}
"""The layouts of the device that are turned back, with the function that does it."""
