"""Values that the recorder of MindSpore programs writes: statistics, checksums, files, other kinds."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint  # noqa: E402
from probe_mindspore.reader import MindSporeReader  # noqa: E402
from support.on_mindspore.ms_recording import Recording, recorded, recording, step_of_the_net, tensor  # noqa: E402

ms.runtime.launch_blocking()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return step_of_the_net(tmp_path_factory.mktemp("mix"))


DTYPES = ["float32", "float16", "float64", "int32", "int64", "uint8"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_are_those_of_numpy(tmp_path: Path, dtype: str) -> None:
    x = tensor(7, 33, dtype=dtype) if dtype != "uint8" else Tensor(np.arange(231, dtype="uint8").reshape(7, 33))
    leaf = recorded(tmp_path, lambda x: mint.reshape(x, (33, 7)), x, grad=False).records()["Mint.reshape.0.forward"]
    leaf, given = leaf["input_args"][0], x.asnumpy().astype(np.float64)
    assert (leaf["type"], leaf["dtype"].lower(), leaf["shape"]) == ("mindspore.Tensor", dtype, [7, 33])
    assert (leaf["Max"], leaf["Min"]) == (given.max(), given.min())
    assert leaf["Mean"] == pytest.approx(given.mean(), rel=1e-14, abs=1e-14)
    assert leaf["Norm"] == pytest.approx(np.linalg.norm(given), rel=1e-14)
    assert "requires_grad" not in leaf


@pytest.mark.parametrize(
    ("array", "four"),
    [
        (np.array([True, False]), (True, False, None, None)),
        (np.float32(2.5), (2.5, 2.5, 2.5, 2.5)),
        (np.zeros((0, 3), np.float32), (None, None, None, None)),
        (np.array([1, np.inf], np.float32), (np.inf, 1, np.inf, np.inf)),
        (np.full(5, 60000, np.float16), (60000, 60000, 60000, 60000 * 5**0.5)),
        (np.full(4, 1e200), (1e200, 1e200, 1e200, 2e200)),
        (np.array([3 + 4j], np.complex64), (5, 5, 5, None)),
    ],
    ids=["bool", "0-d", "empty", "inf", "float16", "huge", "complex"],
)
def test_statistics_at_the_edges(tmp_path: Path, array: Any, four: Any) -> None:
    found = recorded(tmp_path, lambda x: mint.reshape(x, (-1,)), Tensor(array), grad=False)
    leaf = found.records()["Mint.reshape.0.forward"]["input_args"][0]
    got = [leaf[k] for k in ("Max", "Min", "Mean", "Norm")]
    assert [value is None for value in got] == [value is None for value in four]
    for value, wanted in zip(got, four):
        assert value is None or value == pytest.approx(wanted, rel=1e-12)


def test_nan_makes_all_four_nan(tmp_path: Path) -> None:
    found = recorded(tmp_path, lambda x: mint.exp(x), Tensor(np.array([1, np.nan], np.float32)), grad=False)
    leaf = found.records()["Mint.exp.0.forward"]["input_args"][0]
    assert all(leaf[k] != leaf[k] for k in ("Max", "Min", "Mean", "Norm"))


def test_bfloat16_is_stored_wide_and_summed_raw(tmp_path: Path) -> None:
    x = tensor(3, 4).astype(ms.bfloat16)
    found = recorded(tmp_path, lambda x: x.view(12), x, grad=False, task="statistics",
                     statistics={"summary_mode": "md5", "tensor_list": ["view"]})  # fmt: skip
    leaf = found.records()["Tensor.view.0.forward"]["output"][0]
    exact = x.float().asnumpy().reshape(12)
    assert leaf["dtype"] == "BFloat16" and np.array_equal(found.array(leaf), exact)
    raw = (exact.view(np.uint32) >> 16).astype(np.uint16)
    assert leaf["md5"] == f"{zlib.crc32(raw.tobytes()):08x}"
    assert leaf["Max"] == exact.max()


def test_md5_is_the_crc_of_the_bytes(tmp_path: Path) -> None:
    x = tensor(4, 5)
    found = recorded(tmp_path, lambda x: mint.exp(mint.transpose(x, 0, 1)), x, grad=False,
                     task="statistics", statistics={"summary_mode": "md5"})  # fmt: skip
    records = found.records()
    turned = np.ascontiguousarray(x.asnumpy().T)  # a view: row by row of what it shows
    assert records["Mint.transpose.0.forward"]["output"][0]["md5"] == f"{zlib.crc32(turned.tobytes()):08x}"
    assert records["Mint.transpose.0.forward"]["input_args"][0]["md5"] == f"{zlib.crc32(x.asnumpy().tobytes()):08x}"


def test_tensors_come_back_through_the_reader(whole: Recording) -> None:
    run = MindSporeReader().open(whole.directory() / "dump.json")
    index = run.find("Mint.chunk.0.forward")
    assert index is not None
    given, *parts = (run.tensor(s.value) for s in run.record(index).slots if s.value.data_name)
    assert given.shape == (2, 16, 24) and len(parts) == 3
    assert all(np.array_equal(part, whole) for part, whole in zip(parts, np.split(given, 3, -1)))
    assert sum(slot.value.data_name is not None for r in run.records() for slot in r.slots) == len(
        list((whole.directory() / "dump_tensor_data").iterdir())
    )
    run.close()


def test_values_of_other_kinds(tmp_path: Path) -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("leave me alone")

    def everything(*args: Any, **kwargs: Any) -> Any:
        return {"x": args[0], "n": [1, (2.5, None)]}

    holder = SimpleNamespace(everything=everything, __name__="mine")
    around: list[Any] = []
    around.append(around)
    with recording(tmp_path / "run", task="tensor") as found:
        found.debugger.register_custom_api(holder, "everything", "mine")
        found.start()
        holder.everything(tensor(2), ms.float16, slice(1, None, 2), ..., np.float32(1.5), np.arange(3), Odd(), around,
                          {"type": 1, 2: True}, key="text", dtype=ms.int32)  # fmt: skip
        found.stop()
        found.debugger.restore_custom_api(holder, "everything")
        found.step()
    record = found.records()["mine.everything.0.forward"]
    args = record["input_args"]
    assert args[1] == {"type": "mindspore.dtype", "value": "Float16"}
    assert args[2] == {"type": "slice", "value": [1, None, 2]}
    assert args[3]["type"] == "ellipsis" and args[4] == {"type": "float32", "value": 1.5}
    assert args[5]["Max"] == 2 and args[6] is None and args[7] == [None]
    assert args[8] == {"type_": {"type": "int", "value": 1}, "2": {"type": "bool", "value": True}}
    assert record["input_kwargs"]["dtype"] == {"type": "mindspore.dtype", "value": "Int32"}
    assert record["output"][0]["n"] == [
        {"type": "int", "value": 1}, [{"type": "float", "value": 2.5}, None]]  # fmt: skip
    assert holder.everything is everything


def test_slices_limit_statistics_and_data(tmp_path: Path) -> None:
    x = Tensor(np.arange(24, dtype=np.float32).reshape(6, 4))
    section = {"slice": [{"dim": 0, "begin": 1, "end": 3}], "summary_mode": "md5"}
    with recording(tmp_path / "run", task="tensor", level="L1", tensor=section) as found:
        found.start()
        mint.abs(x)
        found.stop()
        found.step()
    (record,) = found.records().values()
    leaf = record["output"][0]
    assert leaf["shape"] == [2, 4] and (leaf["Min"], leaf["Max"]) == (4.0, 11.0)
    np.testing.assert_array_equal(found.array(leaf), x.asnumpy()[1:3])
