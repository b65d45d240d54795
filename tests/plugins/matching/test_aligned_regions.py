"""Alignment of backward calls, saved variables and regions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_matching.aligned import AlignmentMatcher
from probe_recording.reading.run import DumpRun
from support.runs.orders import all_pairs
from support.runs.recorded import scalar, tensor, write_run
from support.runs.streams import PLAN, align, backward, call, look, op, opened, run

from probe_core.matching.row_order import RowOrder
from probe_core.model import MatchKind

# -- backward calls and what is saved ------------------------------------------------------------------


def test_backward_calls_follow_their_forward_calls(tmp_path: Path) -> None:
    """Gradients that are all alike tell nothing; the forward calls do."""
    target = run(
        *(call(f"Torch.relu.{n}", value) for n, value in enumerate((9.0, 1.0, 2.0))),
        *(backward(f"Torch.relu.{n}", 5.0) for n in (2, 1, 0)),
    )
    golden = run(
        *(call(f"Torch.relu.{n}", value) for n, value in enumerate((1.0, 2.0))),
        *(backward(f"Torch.relu.{n}", 5.0) for n in (1, 0)),
    )
    found = align(tmp_path, target, golden)
    for n in (1, 2):
        assert found.pairs[f"Torch.relu.{n}.backward"] == f"Torch.relu.{n - 1}.backward"
    assert found.regions == [(["Torch.relu.0.forward"], []), (["Torch.relu.0.backward"], [])]


def test_backward_calls_without_forward_calls_are_aligned_themselves(tmp_path: Path) -> None:
    target = run(call("Torch.a.0"), *(backward(f"Torch.b.{n}", 9.0 - n) for n in range(3)))
    golden = run(call("Torch.a.0"), *(backward(f"Torch.b.{n}", 8.0 - n) for n in range(2)))
    found = align(tmp_path, target, golden)
    assert found.regions == [(["Torch.b.0.backward"], [])]
    assert found.pairs["Torch.b.2.backward"] == "Torch.b.1.backward"


def test_backward_calls_of_calls_that_do_not_pair_do_not_pair(tmp_path: Path) -> None:
    """The target has a relu in the beginning that the golden has in the end."""
    target = run(
        *(call(f"Torch.relu.{n}", value) for n, value in enumerate((9.0, 1.0, 2.0))),
        *(backward(f"Torch.relu.{n}", 5.0 + n) for n in (2, 1, 0)),
    )
    golden = run(
        *(call(f"Torch.relu.{n}", value) for n, value in enumerate((1.0, 2.0, 7.0))),
        *(backward(f"Torch.relu.{n}", 6.0 + n) for n in (2, 1, 0)),
    )
    found = align(tmp_path, target, golden)
    assert "Torch.relu.0.forward" not in found.pairs
    assert "Torch.relu.0.backward" not in found.pairs


def test_saved_variables_pair_by_name(tmp_path: Path) -> None:
    for side, names in (("t", ("a.0", "new.0", "b.0")), ("g", ("b.0", "a.0"))):
        write_run(tmp_path / side, {f"{name}.debug": tensor() for name in names}, name="debug.json")
    ours, theirs = (DumpRun(tmp_path / side / "debug.json", "pytorch", lambda path: np.zeros(1)) for side in "tg")
    found = look(AlignmentMatcher().match(ours, theirs, PLAN), ours, theirs)
    assert found.pairs == {"a.0.debug": "a.0.debug", "b.0.debug": "b.0.debug"}
    assert found.regions == [(["new.0.debug"], [])]


# -- regions -----------------------------------------------------------------------------------------


def test_fused_calls_are_judged_where_they_begin_and_end(tmp_path: Path) -> None:
    """silu(x) * y against one call: x goes in and the product comes out; what lies between has no partner."""
    x, y, inner, out = (tensor([4], value) for value in (1.0, 2.0, 3.0, 4.0))
    before, after = call("Torch.before.0"), call("Torch.after.0")
    target = run(before, op("Functional.silu.0", [x], [inner]), op("Tensor.__mul__.0", [inner, y], [out]), after)
    golden = run(before, op("NPU.npu_swiglu.0", [x, y], [out]), after)
    found = align(tmp_path / "1", target, golden)
    assert found.regions == [(["Functional.silu.0.forward", "Tensor.__mul__.0.forward"], ["NPU.npu_swiglu.0.forward"])]
    assert found.ends == [
        ("Functional.silu.0.forward.input.0", "NPU.npu_swiglu.0.forward.input.0"),
        ("Tensor.__mul__.0.forward.output.0", "NPU.npu_swiglu.0.forward.output.0"),
    ]
    found = align(tmp_path / "2", golden, target)
    assert found.ends == [
        ("NPU.npu_swiglu.0.forward.input.0", "Functional.silu.0.forward.input.0"),
        ("NPU.npu_swiglu.0.forward.output.0", "Tensor.__mul__.0.forward.output.0"),
    ]


def test_ends_pair_by_shape(tmp_path: Path) -> None:
    """The inputs of both calls in another order, and one that the other call does not take."""
    target = run(
        call("Torch.a.0"),
        op("Torch.fused.0", [tensor([2, 3]), tensor([5]), scalar(1)], [tensor([7]), tensor([3])]),
    )
    golden = run(
        call("Torch.a.0"),
        op("Torch.plain.0", [tensor([5]), scalar(1), tensor([9])], [tensor([3]), tensor([7])]),
    )
    assert align(tmp_path, target, golden).ends == [
        ("Torch.fused.0.forward.input.1", "Torch.plain.0.forward.input.0"),
        ("Torch.fused.0.forward.output.0", "Torch.plain.0.forward.output.1"),
        ("Torch.fused.0.forward.output.1", "Torch.plain.0.forward.output.0"),
    ]


def distinct(shape: list[int], value: float) -> Any:
    """A tensor of more than one number."""
    return tensor(shape, value) | {"Min": value - 1}


def test_edges_pair_by_content_before_their_order(tmp_path: Path) -> None:
    """Values that flow in anywhere and are made nowhere inside pair with equal ones; so do those that come out."""
    target = run(
        call("Torch.a.0"),
        op("Torch.view.0", [distinct([6], 3.0)], [distinct([2, 3], 3.0)]),
        op("Torch.mm.0", [distinct([2, 3], 3.0), distinct([3, 3], 5.0)], [distinct([2, 3], 7.0)]),
        op("Torch.bias.0", [distinct([2, 3], 7.0), distinct([3], 4.0)], [distinct([2, 3], 8.0)]),
        op("Torch.extra.0", [distinct([3], 4.0)], [distinct([2, 3], 1.5)]),
    )
    golden = run(
        call("Torch.a.0"),
        op("Torch.other.0", [distinct([3], 4.0)], [distinct([2, 3], 9.0)]),
        op("Torch.linear.0", [distinct([6], 3.0), distinct([3, 3], 5.0), distinct([3], 4.0)], [distinct([2, 3], 8.0)]),
    )  # fmt: skip
    assert align(tmp_path, target, golden).ends == [
        ("Torch.view.0.forward.input.0", "Torch.linear.0.forward.input.0"),
        ("Torch.mm.0.forward.input.1", "Torch.linear.0.forward.input.1"),
        ("Torch.bias.0.forward.input.1", "Torch.other.0.forward.input.0"),
        ("Torch.bias.0.forward.output.0", "Torch.linear.0.forward.output.0"),
        ("Torch.extra.0.forward.input.0", "Torch.linear.0.forward.input.2"),
    ]


def test_a_call_against_several_pairs_what_only_it_has_of_a_shape(tmp_path: Path) -> None:
    target = run(
        call("Torch.a.0"),
        op("Torch.mm.0", [distinct([2, 4], 3.0), distinct([4, 5], 5.0)], [distinct([2, 5], 7.0)]),
        op("Torch.bias.0", [distinct([2, 5], 7.0), distinct([5], 4.0)], [distinct([2, 5], 8.0)]),
    )
    golden = run(
        call("Torch.a.0"),
        op("Torch.linear.0", [distinct([2, 4], 3.5), distinct([4, 5], 5.5), distinct([5], 4.5)], [distinct([2, 5], 8.5)]),
    )  # fmt: skip
    assert align(tmp_path, target, golden).ends == [
        ("Torch.mm.0.forward.input.0", "Torch.linear.0.forward.input.0"),
        ("Torch.mm.0.forward.input.1", "Torch.linear.0.forward.input.1"),
        ("Torch.bias.0.forward.input.1", "Torch.linear.0.forward.input.2"),
        ("Torch.bias.0.forward.output.0", "Torch.linear.0.forward.output.0"),
    ]


def test_edges_of_one_phase_pair(tmp_path: Path) -> None:
    """A backward call at the end of one run, and calls of the optimizer behind it in the other."""
    gradient = {"input": [distinct([4], 2.0)], "output": [distinct([9, 2], 3.0)]}
    target = run(call("Torch.a.0"), {"Torch.gather.0.backward": gradient})
    golden = run(
        call("Torch.a.0"),
        {"Torch.embedding.0.backward": {**gradient, "input": [distinct([2, 2], 2.0)]}},
        op("Torch.add_.0", [distinct([4], 6.0)], [distinct([9, 2], 6.0)]),
    )
    assert align(tmp_path, target, golden).ends == [
        ("Torch.gather.0.backward.output.0", "Torch.embedding.0.backward.output.0")
    ]


@pytest.mark.parametrize(("calls", "pairs"), [(1, 1), (2, 0)])
def test_single_numbers_of_several_calls_are_not_told_apart(calls: int, pairs: int, tmp_path: Path) -> None:
    target = [op(f"Torch.x.{number}", [], [tensor([], 1.0)]) for number in range(2)]
    golden = [op(f"Torch.y.{number}", [], [tensor([], 2.0)]) for number in range(calls)]
    found = align(tmp_path, run(call("Torch.a.0"), *target), run(call("Torch.a.0"), *golden))
    assert len(found.ends) == pairs


@pytest.mark.parametrize("where", ["front", "end"])
def test_regions_at_either_end_of_a_run(where: str, tmp_path: Path) -> None:
    same = call("Torch.same.0")
    extra, missing = call("Torch.extra.0"), call("Torch.missing.0")
    ours, theirs = ([extra, same], [missing, same]) if where == "front" else ([same, extra], [same, missing])
    found = align(tmp_path, run(*ours), run(*theirs))
    assert found.regions == [(["Torch.extra.0.forward"], ["Torch.missing.0.forward"])]


def test_every_golden_row_of_a_region_is_shown_once(tmp_path: Path) -> None:
    target = run(call("Torch.same.0"), call("Torch.x.0"), call("Torch.same.1"))
    golden = run(call("Torch.y.0"), call("Torch.same.0"), call("Torch.y.1"), call("Torch.y.2"), call("Torch.same.1"))
    ours, theirs = opened(tmp_path / "t", target), opened(tmp_path / "g", golden)
    matching = AlignmentMatcher().match(ours, theirs, PLAN)
    order = RowOrder(matching, ours, theirs)
    shown = [pair.golden.name for pair in all_pairs(order) if pair.golden]
    assert sorted(shown) == sorted(f"{key}.{side}.0" for key in golden for side in ("input", "output"))
    assert order.row_count == len(all_pairs(order))
    lonely = [pair for pair in all_pairs(order) if not pair.matched]
    assert lonely and all(pair.match_kind is MatchKind.REGION for pair in lonely)
