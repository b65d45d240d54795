"""Reading ``.pt``: a tensor as torch reads it, without torch; what else torch saves is refused."""

from __future__ import annotations

import collections
import io
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_pytorch.ptfile import load_pt
from support.measuring import PROPERTY
from support.runs.pt_builder import archive, program, storage, tensor

from probe_core.errors import UnreadableTensor

BY_TORCH = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


# -- files by torch ----------------------------------------------------------------------------


def dtype_of(name: str) -> Any:
    """Return a dtype of torch; skip the test if torch does not have it or cannot save it."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, name, None)
    if kind is None:
        pytest.skip(f"this torch has no dtype {name}")
    try:
        torch.save(torch.empty(1, dtype=kind), io.BytesIO())
    except KeyError:
        pytest.skip(f"this torch cannot save the dtype {name}")
    return kind


def torch_tensor(dtype: str, count: int) -> Any:
    """``count`` elements of every kind of bits, nan and inf among them; booleans are 0 or 1."""
    torch = pytest.importorskip("torch")
    kind = dtype_of(dtype)
    rng = np.random.default_rng(7)
    if dtype == "bool":
        return torch.from_numpy(rng.integers(0, 2, count).astype(bool))
    data = rng.integers(0, 256, max(1, count) * kind.itemsize, dtype=np.uint8)
    return torch.from_numpy(data).view(kind)[:count]


def bits_of_tensor(tensor: Any) -> bytes:
    """The elements in their order, as torch itself lays them out."""
    torch = pytest.importorskip("torch")
    plain = tensor.detach().resolve_conj().resolve_neg()
    plain = plain.clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(plain.view(torch.uint8).numpy().tobytes()) if plain.numel() else b""


def agrees(path: Path, tensor: Any) -> None:
    """Save, read, and hold against what torch reads back."""
    torch = pytest.importorskip("torch")
    torch.save(tensor, path)
    again = torch.load(path, weights_only=True)
    found = load_pt(path)
    assert found.shape == tuple(again.shape)
    assert found.dtype.name == str(again.dtype).removeprefix("torch.")
    assert found.tobytes() == bits_of_tensor(again)


@pytest.mark.parametrize("dtype", BY_TORCH)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4)])
def test_every_dtype(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    agrees(tmp_path / "x.pt", torch_tensor(dtype, int(np.prod(shape))).reshape(shape))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "uint16"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
def test_empty(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    agrees(tmp_path / "x.pt", torch_tensor(dtype, 0).reshape(shape))


VIEWS = {
    "transposed": lambda t: t.reshape(6, 10).t(),
    "permuted": lambda t: t.reshape(3, 4, 5).permute(2, 0, 1),
    "every third": lambda t: t[::3],
    "offset": lambda t: t[17:],
    "offset and step in two dimensions": lambda t: t.reshape(6, 10)[1::2, 3::4],
    "column": lambda t: t.reshape(6, 10)[:, 7],
    "one element of a bigger storage, 0-d": lambda t: t[41],
    "expanded": lambda t: t[3:4].expand(5, 4, 1),
    "expanded by broadcasting": lambda t: t.reshape(6, 10)[:, :1].expand(6, 10),
    "overlapping windows": lambda t: t.unfold(0, 8, 3),
    "empty view of something": lambda t: t[5:5],
    "new axes": lambda t: t[None, :, None],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint32", "complex64"])
def test_views(tmp_path: Path, view: Any, dtype: str) -> None:
    """A view is saved with the whole of its storage; only its own elements may come back."""
    agrees(tmp_path / "x.pt", view(torch_tensor(dtype, 60)))


def test_conjugate_and_negative_views(tmp_path: Path) -> None:
    """These are saved as a flag beside the unchanged bytes."""
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1 + 2j, -0.0 - 0.5j, 3 + 0j])
    assert tensor.conj().is_conj() and tensor.conj().imag.is_neg()
    agrees(tmp_path / "conj.pt", tensor.conj())
    agrees(tmp_path / "neg.pt", tensor.conj().imag)
    agrees(tmp_path / "both.pt", torch._neg_view(tensor.conj()))
    assert load_pt(tmp_path / "conj.pt").tolist() == [1 - 2j, 0.5j, 3]
    assert load_pt(tmp_path / "neg.pt").tolist() == [-2, 0.5, 0]


def test_parameters_and_requires_grad(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    agrees(tmp_path / "a.pt", torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)))
    agrees(tmp_path / "b.pt", torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t(), requires_grad=False))
    agrees(tmp_path / "c.pt", torch.arange(6.0).requires_grad_())
    agrees(tmp_path / "d.pt", torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)))
    agrees(tmp_path / "e.pt", torch.nn.Parameter(torch.ones(3, dtype=dtype_of("uint16")), requires_grad=False))


def test_pickle_protocols(tmp_path: Path) -> None:
    """torch.save takes a protocol, and a recorder may have chosen another than 2."""
    torch = pytest.importorskip("torch")
    tensor = torch.arange(300.0).reshape(3, 100)
    for protocol in (2, 3, 4, 5):
        path = tmp_path / f"{protocol}.pt"
        torch.save(tensor, path, pickle_protocol=protocol)
        assert load_pt(path).tobytes() == bits_of_tensor(tensor)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda torch: [torch.ones(2)], id="list of tensors"),
        pytest.param(lambda torch: {"a": torch.ones(2)}, id="dict"),
        pytest.param(lambda torch: torch.nn.Linear(2, 2).state_dict(), id="state dict"),
        pytest.param(lambda torch: torch.nn.Linear(2, 2), id="module"),
        pytest.param(lambda torch: torch.eye(3).to_sparse(), id="sparse"),
        pytest.param(lambda torch: torch.empty(3, dtype=dtype_of("complex32")), id="dtype without numpy"),
        pytest.param(lambda torch: torch.Size([2, 3]), id="size"),
        pytest.param(lambda torch: torch.device("cpu"), id="device"),
        pytest.param(lambda torch: 3.5, id="number"),
    ],
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_other_things_torch_saves(tmp_path: Path, make: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.save(make(torch), tmp_path / "x.pt")
    with pytest.raises(UnreadableTensor, match=r"x\.pt"):
        load_pt(tmp_path / "x.pt")


def test_files_from_before_the_zip(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.ones(4), tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UnreadableTensor, match=r"x\.pt"):
        load_pt(tmp_path / "x.pt")


@st.composite
def strided(draw: st.DrawFn) -> tuple[str, int, int, tuple[int, ...], tuple[int, ...]]:
    """A dtype, a storage's length, and an offset, a shape and strides that stay within it."""
    dtype = draw(st.sampled_from(BY_TORCH))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    strides = tuple(draw(st.integers(0, 7)) for _ in shape)
    offset = draw(st.integers(0, 9))
    reach = offset + sum((size - 1) * stride for size, stride in zip(shape, strides) if size)
    return dtype, reach + 1 + draw(st.integers(0, 4)), offset, shape, strides


@PROPERTY
@given(strided())
def test_any_strides(tmp_path_factory: pytest.TempPathFactory, outline: Any) -> None:
    dtype, count, offset, shape, strides = outline
    tensor = torch_tensor(dtype, count).as_strided(shape, strides, offset)
    agrees(tmp_path_factory.getbasetemp() / "any.pt", tensor)


# -- files by hand -----------------------------------------------------------------------------


def test_by_hand_is_as_by_torch(tmp_path: Path) -> None:
    """The files below are refused for what is wrong with them, not for how they are made."""
    path = archive(tmp_path / "x.pt", program(tensor()))
    assert load_pt(path).tolist() == [[1, 1, 1], [1, 1, 1]]
    torch = pytest.importorskip("torch")
    assert torch.load(path, weights_only=True).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_is_a_read_only_view(tmp_path: Path) -> None:
    found = load_pt(archive(tmp_path / "x.pt", program(tensor())))
    assert not found.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 2


def test_stays_readable_when_the_file_is_gone(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.pt", program(tensor()))
    found = load_pt(path)
    path.unlink()
    assert found.sum() == 6


BIG = [
    (b"FloatStorage", np.float32), (b"DoubleStorage", np.float64), (b"HalfStorage", np.float16),
    (b"BFloat16Storage", ml_dtypes.bfloat16), (b"LongStorage", np.int64), (b"CharStorage", np.int8),
    (b"BoolStorage", np.bool_), (b"ComplexFloatStorage", np.complex64),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype"), BIG, ids=[kind.decode() for kind, _ in BIG])
def test_files_of_big_endian_machines(tmp_path: Path, kind: bytes, dtype: Any) -> None:
    """They say so in a member of their own; the values are the same."""
    expected = np.arange(6).astype(dtype)
    swapped = expected.tobytes()
    width = 4 if dtype is np.complex64 else expected.itemsize
    swapped = b"".join(swapped[at : at + width][::-1] for at in range(0, len(swapped), width))
    described = program(tensor(shape=(6,), strides=(1,), place=storage(b"ctorch\n" + kind + b"\n")))
    found = load_pt(archive(tmp_path / "x.pt", described, {"0": swapped}, b"big"))
    assert found.astype(np.complex128).tolist() == expected.astype(np.complex128).tolist()


def test_unknown_attributes_are_dropped(tmp_path: Path) -> None:
    """BUILD sets attributes of what was made; on an OrderedDict of hooks that is harmless and ignored."""
    state = pickle.dumps(collections.OrderedDict(), 2)[2:-1] + b"}b"
    assert load_pt(archive(tmp_path / "x.pt", program(tensor(rest=state)))).shape == (2, 3)
