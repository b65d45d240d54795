"""Names of calls: arguments as they were written, lists of the user's own, risk levels, tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from probe_pytorch.capture.names import FAMILIES, load_names
from support.runs.names import (
    ROW,
    WHOLE,
    WRITTEN,
    A,
    B,
    M,
    Run,
    names,
    record,
    run,  # noqa: F401
)
from torch.nn import functional as F

from probe_core.errors import UserError

# -- arguments as they were written ------------------------------------------------------------------------


@pytest.mark.parametrize("label", WRITTEN)
def test_arguments_as_written(label: str, run: Run) -> None:
    _, positional, keywords = WRITTEN[label]
    record = list(run[f"written {label}"].values())[-1]
    assert (len(record["input_args"]), list(record["input_kwargs"])) == (positional, keywords)
    assert all(leaf is not None or "Norm" in label for leaf in record["input_args"][:1])


def test_values_of_arguments(run: Run) -> None:
    record = run["written F.cross_entropy"]["Functional.cross_entropy.0.forward"]
    assert record["input_kwargs"] == {
        "reduction": {"type": "str", "value": "sum"}, "label_smoothing": {"type": "float", "value": 0.1},
    }  # fmt: skip
    record = run["written nn.LayerNorm"]["Functional.layer_norm.0.forward"]
    shape, weight, bias, epsilon = record["input_args"][1:]
    assert shape == [{"type": "int", "value": 4}] and epsilon == {"type": "float", "value": 1e-5}
    assert (bias["shape"], bias["Max"]) == ([4], 0.0)
    assert (weight["shape"], weight["Max"], weight["requires_grad"]) == ([4], 1.0, True)
    record = run["1 - a"]["Tensor.__rsub__.0.forward"]
    assert record["input_args"][1] == {"type": "int", "value": 1}


LOST = {
    "functools.partial": lambda: functools.partial(F.softmax, dim=-1)(A),
    "map": lambda: list(map(F.softmax, [A], [-1])),
}


@pytest.mark.parametrize("label", LOST)
def test_no_argument_is_lost(label: str, tmp_path: Path) -> None:
    (found,) = record(tmp_path, {label: LOST[label]})[label].values()
    values = [*found["input_args"][1:], *found["input_kwargs"].values()]
    assert {"type": "int", "value": -1} in values


def test_a_method_by_way_of_its_class(tmp_path: Path) -> None:
    (found,) = record(tmp_path, {"split": lambda: torch.Tensor.split(A, 2)})["split"].values()
    assert len(found["input_args"]) == 3  # the default with them: the object counts as one more argument


# -- lists of the user's own -------------------------------------------------------------------------------


def lists(path: Path, change: Callable[[dict[str, list[str]]], None]) -> dict[str, Any]:
    """The list that ships, changed."""
    from importlib.resources import files

    found = yaml.safe_load((files("probe_pytorch.capture") / "support_wrap_ops.yaml").read_text("utf-8"))
    change(found)
    ops = path / "ops.yaml"
    ops.write_text(yaml.safe_dump(found))
    return {"support_wrap_ops": str(ops)}


def both() -> Any:
    return F.softmax(A, -1), torch.matmul(A, B), A + B, A.add(B), A.dim(), torch.zeros(1)


def test_one_line_less(tmp_path: Path) -> None:
    def change(found: dict[str, list[str]]) -> None:
        found["functional"].remove("softmax")
        found["torch"].remove("matmul")
        found["tensor"].remove("__add__")

    before = names(record(tmp_path / "a", {"x": both}, **lists(tmp_path, lambda found: None))["x"])
    after = names(record(tmp_path / "b", {"x": both}, **lists(tmp_path, change))["x"])
    assert before == names(record(tmp_path / "c", {"x": both})["x"])
    # what softmax calls inside is seen in its place
    assert before[:4] == ["Functional.softmax", "Torch.matmul", "Tensor.__add__", "Tensor.add"]
    assert after == ["Tensor.softmax", "Tensor.add", *before[4:]]


def test_a_function_taken_off_the_list_has_no_second_name(tmp_path: Path) -> None:
    ops = lists(tmp_path, lambda found: found["torch"].remove("mm"))
    assert names(record(tmp_path / "a", {"x": lambda: torch.mm(A, B)}, **ops)["x"]) == []


def test_one_line_more(tmp_path: Path) -> None:
    def change(found: dict[str, list[str]]) -> None:
        found["torch"].append("zeros")
        found["tensor"].append("dim")
        found["tensor"].append("__neg__")
        found["functional"].append("rms_norm")
        found["functional"].append("of_another_version")

    calls: dict[str, Callable[[], Any]] = {"x": lambda: (torch.zeros(1), A.dim(), -A, A.neg())}
    if hasattr(F, "rms_norm"):
        calls["y"] = lambda: F.rms_norm(A, (4,))
    found = record(tmp_path, calls, **lists(tmp_path, change))
    assert names(found["x"]) == ["Torch.zeros", "Tensor.dim", "Tensor.__neg__", "Tensor.neg"]
    if "y" in found:
        assert names(found["y"]) == ["Functional.rms_norm"]
    assert names(record(tmp_path / "a", {"x": calls["x"]})["x"]) == ["Tensor.neg"]


def test_a_list_of_one(tmp_path: Path) -> None:
    ops = tmp_path / "ops.yaml"
    ops.write_text("functional: [linear]\ntensor:\nunknown_family: [x]\n")
    found = record(
        tmp_path, {"x": lambda: (both(), F.linear(A, B), torch.ops.aten.add(A, B))}, support_wrap_ops=str(ops)
    )
    assert names(found["x"]) == ["Functional.linear"]


def test_a_composite_that_is_not_listed_shows_what_is_inside(tmp_path: Path) -> None:
    def change(found: dict[str, list[str]]) -> None:
        for name in ("cross_entropy", "multi_head_attention_forward", "triplet_margin_with_distance_loss"):
            found["functional"].remove(name)

    def attention() -> Any:
        return M["attention"](ROW, ROW, ROW)

    calls = {
        "loss": lambda: F.cross_entropy(A, WHOLE),
        "attention": attention,
        "triplet": lambda: F.triplet_margin_with_distance_loss(A, B, A),
    }
    found = record(tmp_path, calls, **lists(tmp_path, change))
    assert names(found["loss"]) == []  # its inside is C
    inside = names(found["attention"])
    assert inside[0] == inside[-2] == "Functional.linear" and "Functional.softmax" in inside
    assert names(found["triplet"]) == [
        "Functional.pairwise_distance", "Functional.pairwise_distance", "Tensor.__add__", "Tensor.__sub__",
        "Torch.clamp_min", "Torch.mean",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "cannot be read"), ("functional: [", "not valid yaml"), ("[relu]", "must map"), ("functional: relu", "must map"),
     ("functional: [1, 2]", "must map"), ("", "must map"), ("functional: {relu: 1}", "must map"),
     ("!!python/object/apply:os.system [ls]", "not valid yaml")],
)  # fmt: skip
def test_a_list_that_is_none(text: str | None, says: str, tmp_path: Path) -> None:
    ops = tmp_path / "ops.yaml"
    if text is not None:
        ops.write_text(text)
    with pytest.raises(UserError) as caught:
        load_names(ops)
    assert says in caught.value.what and str(ops) in caught.value.what
    if says == "must map":
        assert caught.value.choices == FAMILIES


# -- risk levels -------------------------------------------------------------------------------------------


def mixed() -> Any:
    return (
        torch.mm(A, B), A @ B, F.linear(A, B), F.layer_norm(A, (4,)), F.relu(A), A + B, A.reshape(16), A.t(), A.transpose(0, 1),
        torch.cat([A]), torch.clone(A), torch.clamp(A, 0), torch.ops.aten.mm(A, B), A.float(), A.sum(),
    )  # fmt: skip


RISK = {
    "ALL": ["Torch.mm", "Tensor.__matmul__", "Functional.linear", "Functional.layer_norm", "Functional.relu", "Tensor.__add__",
            "Tensor.reshape", "Tensor.t", "Tensor.transpose", "Torch.cat", "Torch.clone", "Torch.clamp", "Aten.mm",
            "Tensor.float", "Tensor.sum"],
    "FOCUS": ["Torch.mm", "Tensor.__matmul__", "Functional.linear", "Functional.layer_norm", "Functional.relu",
              "Tensor.__add__", "Tensor.t", "Aten.mm", "Tensor.sum"],
    "CORE": ["Torch.mm", "Tensor.__matmul__", "Functional.linear", "Functional.layer_norm", "Aten.mm"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("level", "call"),
    [("CORE", lambda: torch.ops.aten.add(A, B)), ("FOCUS", lambda: torch.ops.aten.reshape(A, (16,)))],
    ids=["CORE", "FOCUS"],
)
def test_risk_level_of_aten(level: str, call: Callable[[], Any], tmp_path: Path) -> None:
    assert names(record(tmp_path, {"x": call}, risk_level=level)["x"]) == []


@pytest.mark.parametrize("level", RISK)
def test_risk_level(level: str, tmp_path: Path) -> None:
    assert names(record(tmp_path, {"x": mixed}, risk_level=level)["x"]) == RISK[level]


def test_core_is_part_of_focus_and_that_of_all() -> None:
    sizes = []
    for level in ("CORE", "FOCUS", "ALL"):
        found = load_names(risk_level=level)
        sizes.append(
            {api.name for api in found.by_function.values()} | {api.operator for api in found.by_function.values()}
        )
    assert sizes[0] < sizes[1] < sizes[2]


# -- the tables themselves ---------------------------------------------------------------------------------


def test_every_listed_function_of_this_torch_is_known() -> None:
    """A name of the list that torch has is a name that a call can have."""
    from importlib.resources import files

    listed = yaml.safe_load((files("probe_pytorch.capture") / "support_wrap_ops.yaml").read_text("utf-8"))
    found = load_names()
    known = {
        n for api in found.by_function.values() for n in (api.name, api.operator, api.recurrent, api.reflected) if n
    }
    known |= set(found.by_code.values()) | set(found.dispatched.values())
    for name in listed["functional"]:
        assert f"Functional.{name}" in known or not hasattr(F, name), name
    shared = {"dsmm", "spmm", "hsmm", "saddmm"}
    for name in listed["tensor"]:
        if hasattr(torch.Tensor, name) and name not in ("__rdiv__",):
            assert f"Tensor.{name}" in known or other_name(torch.Tensor, name, found), name
    for name in listed["torch"]:
        holder: Any = torch
        for part in name.split("."):
            holder = getattr(holder, part, None)
        if holder is not None and name not in shared:
            assert f"Torch.{name}" in known or holder in found.by_function, name


def test_every_npu_operator_of_the_older_guide_is_listed() -> None:
    """The 47 operators of torch_npu that the manual of ptdbg_ascend names."""
    from importlib.resources import files

    listed = yaml.safe_load((files("probe_pytorch.capture") / "support_wrap_ops.yaml").read_text("utf-8"))
    older = """
        one_ npu_sort_v2 npu_transpose npu_broadcast npu_dtype_cast empty_with_format npu_one_hot npu_stride_add
        npu_ps_roi_pooling npu_roi_align npu_nms_v4 npu_iou npu_nms_with_mask npu_pad npu_bounding_box_encode
        npu_bounding_box_decode npu_batch_nms npu_slice _npu_dropout npu_indexing npu_ifmr npu_max npu_scatter
        npu_layer_norm_eval npu_alloc_float_status npu_get_float_status npu_clear_float_status
        npu_confusion_transpose npu_bmmV2 fast_gelu npu_sub_sample npu_deformable_conv2d npu_mish
        npu_anchor_response_flags npu_yolo_boxes_encode npu_grid_assign_positive npu_normalize_batch
        npu_masked_fill_range npu_linear npu_bert_apply_adam npu_giou npu_ciou npu_ciou_backward npu_diou
        npu_diou_backward npu_sign_bits_pack npu_sign_bits_unpack
    """
    assert len(older.split()) == 47
    assert [name for name in older.split() if name not in listed["torch_npu"]] == []


def other_name(holder: Any, name: str, found: Any) -> bool:
    return getattr(holder, name) in found.by_function
