"""Alignment (``--match align``): which calls pair, what is left over, and where a changed region is judged."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from probe_matching.aligned import Aligned
from probe_matching.likeness import place_of
from probe_recording.reading.run import DumpRun
from support.measuring import PROPERTY
from support.runs.recorded import forward, scalar, tensor, write_run

from probe_core.matching.matching import NONE, Matching, RowOrder
from probe_core.model import How
from probe_core.model.plan import Plan

PLAN = Plan(Path("t"), Path("g"), Path("o"), "0")
Data = dict[str, Any]
Pairs = list[tuple[str, str]]


class Found(NamedTuple):
    """The records that pair, outside of regions; the regions; the rows that are judged at their ends."""

    pairs: dict[str, str]
    regions: list[tuple[list[str], list[str]]]
    ends: Pairs


def opened(directory: Path, data: Data, parents: dict[str, str] | None = None) -> DumpRun:
    path = write_run(directory, data)
    if parents:
        (directory / "construct.json").write_text(json.dumps({key: parents.get(key) for key in data}))
    return DumpRun(path, "pytorch", lambda path: np.zeros(1))


def align(
    directory: Path,
    target: Data,
    golden: Data,
    our_parents: dict[str, str] | None = None,
    their_parents: dict[str, str] | None = None,
) -> Found:
    """Both runs aligned; what must hold of every matching is asserted."""
    ours = opened(directory / "t", target, our_parents)
    theirs = opened(directory / "g", golden, our_parents if their_parents is None else their_parents)
    matching = Aligned().match(ours, theirs, PLAN)
    found = look(matching, ours, theirs)
    ours.close()
    theirs.close()
    return found


def look(matching: Matching, ours: DumpRun, theirs: DumpRun) -> Found:
    used = [partner for partner in matching.partners if partner != NONE]
    assert len(used) == len(set(used)), "each golden row stands in one row"
    apart = [{index for region in matching.regions for index in region[side]} for side in (0, 1)]
    for side in (0, 1):
        assert sum(len(region[side]) for region in matching.regions) == len(apart[side])
    pairs: dict[str, str] = {}
    for index, name in enumerate(ours.names()):
        own = matching.partners[ours.starts[index] : ours.starts[index + 1]]
        partners = {bisect_right(theirs.starts, number) - 1 for number in own if number != NONE}
        if index not in apart[0]:
            assert len(partners) == 1, name
            (partner,) = partners
            assert partner not in apart[1]
            pairs[name] = theirs.names()[partner]
        else:
            assert partners <= apart[1], name
    assert len(set(pairs.values())) == len(pairs), "each golden call stands in one pair"
    assert apart[0] | {ours.find(name) for name in pairs} == set(range(len(ours)))
    assert apart[1] | {theirs.find(name) for name in pairs.values()} == set(range(len(theirs)))
    rows = [pair for op in RowOrder(matching, ours, theirs) for pair in op.pairs]
    regions = [
        (
            [ours.names()[index] for index in region.target],
            [theirs.names()[index] for index in region.golden],
        )
        for region in matching.regions
    ]
    ends = [
        (pair.target.name, pair.golden.name)
        for pair in rows
        if pair.target and pair.golden and pair.how is How.REGION
    ]
    return Found(pairs, regions, ends)


def call(name: str, value: float = 1.0, shape: list[int] | None = None, **fields: Any) -> Data:
    """A forward call; its input and its output hold ``value``."""
    return {
        f"{name}.forward": forward(tensor(shape, value, **fields), output=[tensor(shape, value, **fields)])
    }


def backward(name: str, value: float = 1.0) -> Data:
    return {f"{name}.backward": {"input": [tensor(value=value)], "output": [tensor(value=value)]}}


def module(path: str, kind: str = "Linear", number: int = 0, value: float = 1.0) -> Data:
    return {
        f"Module.{path}.{kind}.forward.{number}": forward(tensor(value=value), output=[tensor(value=value)])
    }


def run(*calls: Data) -> Data:
    return {key: record for one in calls for key, record in one.items()}


def inside(home: str, *calls: Data) -> dict[str, str]:
    return dict.fromkeys(run(*calls), home)


# -- what a call pairs on ----------------------------------------------------------------------------


def test_identical_runs_pair_one_to_one(tmp_path: Path) -> None:
    data = run(*(call(f"Torch.relu.{n}") for n in range(5)), *(backward(f"Torch.relu.{n}") for n in range(5)))
    found = align(tmp_path, data, data)
    assert found.pairs == {name: name for name in data} and not found.regions


@pytest.mark.parametrize("extra", range(5))
def test_an_extra_call_is_left_over_and_no_other(extra: int, tmp_path: Path) -> None:
    """All of one name and shape: what they hold tells which one is new."""
    values = [1.0, 2.0, 3.0, 4.0]
    golden = run(*(call(f"Torch.relu.{n}", value) for n, value in enumerate(values)))
    values.insert(extra, 9.0)
    target = run(*(call(f"Torch.relu.{n}", value) for n, value in enumerate(values)))
    new = f"Torch.relu.{extra}.forward"
    assert align(tmp_path / "a", target, golden).regions == [([new], [])]
    found = align(tmp_path / "b", golden, target)
    assert found.regions == [([], [new])]
    assert found.pairs == {
        f"Torch.relu.{n}.forward": f"Torch.relu.{n + (n >= extra)}.forward" for n in range(4)
    }


def test_one_call_more_and_another_one_less(tmp_path: Path) -> None:
    """As many calls of one name on both sides, which by their numbers would all be mispaired."""
    target = run(*(call(f"Torch.relu.{n}", value) for n, value in enumerate((9.0, 1.0, 2.0, 3.0))))
    golden = run(*(call(f"Torch.relu.{n}", value) for n, value in enumerate((1.0, 2.0, 3.0, 4.0))))
    found = align(tmp_path, target, golden)
    assert found.pairs == {f"Torch.relu.{n}.forward": f"Torch.relu.{n - 1}.forward" for n in (1, 2, 3)}
    assert found.regions == [(["Torch.relu.0.forward"], []), ([], ["Torch.relu.3.forward"])]


def test_renumbered_calls_pair(tmp_path: Path) -> None:
    target = run(*(call(f"Torch.relu.{n + 7}", 1.0 + n) for n in range(4)))
    golden = run(*(call(f"Torch.relu.{n}", 1.0 + n) for n in range(4)))
    found = align(tmp_path, target, golden)
    assert found.pairs == {f"Torch.relu.{n + 7}.forward": f"Torch.relu.{n}.forward" for n in range(4)}


def test_a_call_that_holds_other_values_still_pairs(tmp_path: Path) -> None:
    """Content is an anchor and no condition: a wrong value must be compared."""
    target = run(call("Torch.a.0"), call("Torch.b.0", 9.0), call("Torch.c.0"))
    golden = run(call("Torch.a.0"), call("Torch.b.0", 1.0), call("Torch.c.0"))
    assert not align(tmp_path, target, golden).regions


@pytest.mark.parametrize(
    "ours, theirs, pairs",
    [
        ("torch.float16", "torch.float32", True),
        ("torch.bfloat16", "torch.float64", True),
        ("torch.int32", "torch.int64", False),
        ("torch.bool", "torch.float32", False),
    ],
)
def test_the_sort_of_dtype_parts_calls(ours: str, theirs: str, pairs: bool, tmp_path: Path) -> None:
    target = run(call("Torch.a.0", dtype=ours), call("Torch.end.0"))
    golden = run(call("Torch.a.0", dtype=theirs), call("Torch.end.0"))
    found = align(tmp_path, target, golden)
    assert ("Torch.a.0.forward" in found.pairs) is pairs
    assert bool(found.regions) is not pairs


def test_another_shape_is_a_change(tmp_path: Path) -> None:
    target = run(call("Torch.a.0", shape=[3]), call("Torch.end.0"))
    golden = run(call("Torch.a.0", shape=[4]), call("Torch.end.0"))
    found = align(tmp_path, target, golden)
    assert found.regions == [(["Torch.a.0.forward"], ["Torch.a.0.forward"])] and not found.ends


def test_another_number_of_arguments_is_a_change(tmp_path: Path) -> None:
    target = run({"Torch.a.0.forward": forward(tensor(), scalar(2), output=[tensor()])}, call("Torch.end.0"))
    golden = run({"Torch.a.0.forward": forward(tensor(), output=[tensor()])}, call("Torch.end.0"))
    found = align(tmp_path, target, golden)
    assert len(found.regions) == 1
    assert found.ends == [(f"Torch.a.0.forward.{side}.0",) * 2 for side in ("input", "output")]


def test_checksums_are_anchors(tmp_path: Path) -> None:
    def summed(number: int, text: str) -> Data:
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "md5": text}
        return {f"Torch.relu.{number}.forward": forward(leaf, output=[leaf])}

    target = run(*(summed(n, text) for n, text in enumerate(("ff", "aa", "bb", "cc"))))
    golden = run(*(summed(n, text) for n, text in enumerate(("aa", "bb", "cc", "dd"))))
    found = align(tmp_path, target, golden)
    assert found.pairs == {f"Torch.relu.{n}.forward": f"Torch.relu.{n - 1}.forward" for n in (1, 2, 3)}


def test_what_holds_nothing_pairs_by_what_it_is(tmp_path: Path) -> None:
    def bare(name: str) -> Data:
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}
        return {f"{name}.forward": forward(leaf, output=[leaf])}

    target = run(bare("Torch.a.0"), bare("Torch.x.0"), bare("Torch.a.1"), bare("Torch.b.0"))
    golden = run(bare("Torch.a.0"), bare("Torch.a.1"), bare("Torch.b.0"))
    found = align(tmp_path, target, golden)
    assert found.regions == [(["Torch.x.0.forward"], [])]


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "nan", None, True, 0, -0.0])
def test_odd_statistics_do_no_harm(odd: Any, tmp_path: Path) -> None:
    target = run(call("Torch.a.0", odd), call("Torch.x.0", 5.0), call("Torch.a.1", odd))
    golden = run(call("Torch.a.0", odd), call("Torch.a.1", odd))
    assert align(tmp_path, target, golden).regions == [(["Torch.x.0.forward"], [])]


def test_a_rounding_of_float16_keeps_the_anchors(tmp_path: Path) -> None:
    """Three digits of a statistic are the same in float16, as long as they are not at the edge of a digit."""
    values = [1.0, 1.2345, 7.654, 3.14159]
    golden = run(*(call(f"Torch.relu.{n}", value) for n, value in enumerate(values)))
    half = [float(np.float16(value)) for value in (5.5, *values[:-1])]
    target = run(*(call(f"Torch.relu.{n}", value, dtype="torch.float16") for n, value in enumerate(half)))
    found = align(tmp_path, target, golden)
    assert found.pairs == {f"Torch.relu.{n}.forward": f"Torch.relu.{n - 1}.forward" for n in (1, 2, 3)}


def test_runs_without_anything_in_common_match_nothing(tmp_path: Path) -> None:
    ours = opened(tmp_path / "t", call("Torch.a.0", shape=[2]))
    theirs = opened(tmp_path / "g", call("Torch.b.0", shape=[3]))
    assert Aligned().match(ours, theirs, PLAN).matched == 0


# -- modules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, place",
    [
        ("Module.a.Linear.forward.0", ("a", "forward", 0)),
        ("Module.a.b.0.Linear.backward.2", ("a.b.0", "backward", 2)),
        ("Module.Net.forward.0", ("", "forward", 0)),
        ("Module.forward.Linear.forward.1", ("forward", "forward", 1)),
        ("Module.a.Linear.parameters_grad", ("a", "parameters_grad", 0)),
        ("Module.a.Linear.parameters_grad.0", ("a", "parameters_grad", 0)),
        ("Functional.linear.0.forward", None),
        ("Torch.Module.0.forward", None),
    ],
)
def test_a_module_has_a_place(key: str, place: Any) -> None:
    assert place_of(key) == place


def test_modules_pair_by_their_place_whatever_their_class(tmp_path: Path) -> None:
    target = run(module("a", "NpuLinear"), module("b", "Fast", value=2.0), module("b", "Fast", 1, 3.0))
    golden = run(module("a", "Linear"), module("b", "Slow", value=7.0), module("b", "Slow", 1, 8.0))
    found = align(tmp_path, target, golden)
    assert found.pairs == {
        "Module.a.NpuLinear.forward.0": "Module.a.Linear.forward.0",
        "Module.b.Fast.forward.0": "Module.b.Slow.forward.0",
        "Module.b.Fast.forward.1": "Module.b.Slow.forward.1",
    }


def test_calls_pair_inside_their_modules(tmp_path: Path) -> None:
    """Both modules call another API on either side; a pair across modules would be no answer."""
    relu, other = call("Torch.relu.0"), call("Torch.x.0")
    a, b = "Module.a.Linear.forward.0", "Module.b.Linear.forward.0"
    found = align(
        tmp_path,
        run(relu, module("a"), other, module("b")),
        run(other, module("a"), relu, module("b")),
        {**inside(a, relu), **inside(b, other)},
        {**inside(a, other), **inside(b, relu)},
    )
    assert set(found.pairs) == {a, b}
    assert found.regions == [
        (["Torch.relu.0.forward"], ["Torch.x.0.forward"]),
        (["Torch.x.0.forward"], ["Torch.relu.0.forward"]),
    ]


def test_equal_calls_of_two_modules_do_not_mix(tmp_path: Path) -> None:
    """Module a calls relu once more in the target; without modules the first relu of b would fill the gap."""
    ours = [call(f"Torch.relu.{n}") for n in range(3)]
    theirs = [call(f"Torch.relu.{n}") for n in range(2)]
    a, b = "Module.a.Linear.forward.0", "Module.b.Linear.forward.0"
    found = align(
        tmp_path,
        run(ours[0], ours[1], module("a"), ours[2], module("b")),
        run(theirs[0], module("a"), theirs[1], module("b")),
        {**inside(a, ours[0], ours[1]), **inside(b, ours[2])},
        {**inside(a, theirs[0]), **inside(b, theirs[1])},
    )
    assert found.pairs["Torch.relu.2.forward"] == "Torch.relu.1.forward"
    ((extra, missing),) = found.regions
    assert len(extra) == 1 and extra[0] in {"Torch.relu.0.forward", "Torch.relu.1.forward"} and not missing


def test_a_module_that_only_one_side_has_lends_its_calls_to_the_one_around_it(tmp_path: Path) -> None:
    """A block wrapped in another module, as of checkpointing or of a data parallel model."""
    inner = call("Torch.relu.0")
    outer, wrapped = "Module.a.Block.forward.0", "Module.a.inner.Wrapper.forward.0"
    target = run(inner, module("a.inner", "Wrapper"), module("a", "Block"))
    golden = run(inner, module("a", "Block"))
    found = align(tmp_path, target, golden, {**inside(wrapped, inner), wrapped: outer}, inside(outer, inner))
    assert found.pairs["Torch.relu.0.forward"] == "Torch.relu.0.forward"
    assert found.regions == [([wrapped], [])]


def test_gradients_of_parameters_pair_across_recorders(tmp_path: Path) -> None:
    target = run(call("Torch.a.0"), {"Module.x.New.parameters_grad.0": {"weight": [tensor()]}})
    golden = run(call("Torch.a.0"), {"Module.x.Old.parameters_grad": {"weight": [tensor()]}})
    found = align(tmp_path, target, golden)
    assert found.pairs["Module.x.New.parameters_grad.0"] == "Module.x.Old.parameters_grad"


def test_construct_files_that_are_damaged_cost_nothing(tmp_path: Path) -> None:
    data = run(call("Torch.a.0"), call("Torch.a.1"))
    for side, text in (("t", "{"), ("g", '["x"]')):
        write_run(tmp_path / side, data)
        (tmp_path / side / "construct.json").write_text(text)
    ours, theirs = (
        DumpRun(tmp_path / side / "dump.json", "pytorch", lambda path: np.zeros(1)) for side in "tg"
    )
    assert not look(Aligned().match(ours, theirs, PLAN), ours, theirs).regions


def test_cells_pair_by_their_place(tmp_path: Path) -> None:
    target = run({"Cell.a.NewDense.forward.0": forward(tensor(), output=[tensor()])}, call("Mint.x.0"))
    golden = run({"Cell.a.Dense.forward.0": forward(tensor(), output=[tensor()])}, call("Mint.x.0"))
    assert align(tmp_path, target, golden).pairs["Cell.a.NewDense.forward.0"] == "Cell.a.Dense.forward.0"


def test_an_extra_call_of_a_module_is_left_over_and_no_other(tmp_path: Path) -> None:
    """A level-0 run has modules only: one that is called once more shifts all its calls."""
    target = run(*(module("act", "ReLU", n, value) for n, value in enumerate((9.0, 1.0, 2.0, 3.0))))
    golden = run(*(module("act", "ReLU", n, value) for n, value in enumerate((1.0, 2.0, 3.0))))
    assert align(tmp_path, target, golden).regions == [(["Module.act.ReLU.forward.0"], [])]


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
    ours, theirs = (
        DumpRun(tmp_path / side / "debug.json", "pytorch", lambda path: np.zeros(1)) for side in "tg"
    )
    found = look(Aligned().match(ours, theirs, PLAN), ours, theirs)
    assert found.pairs == {"a.0.debug": "a.0.debug", "b.0.debug": "b.0.debug"}
    assert found.regions == [(["new.0.debug"], [])]


# -- regions -----------------------------------------------------------------------------------------


def op(key: str, inputs: list[Any], outputs: list[Any]) -> Data:
    return {f"{key}.forward": forward(*inputs, output=outputs)}


def test_fused_calls_are_judged_where_they_begin_and_end(tmp_path: Path) -> None:
    """silu(x) * y against one call: x goes in and the product comes out; what lies between has no partner."""
    x, y, inner, out = (tensor([4], value) for value in (1.0, 2.0, 3.0, 4.0))
    before, after = call("Torch.before.0"), call("Torch.after.0")
    target = run(
        before, op("Functional.silu.0", [x], [inner]), op("Tensor.__mul__.0", [inner, y], [out]), after
    )
    golden = run(before, op("NPU.npu_swiglu.0", [x, y], [out]), after)
    found = align(tmp_path / "1", target, golden)
    assert found.regions == [
        (["Functional.silu.0.forward", "Tensor.__mul__.0.forward"], ["NPU.npu_swiglu.0.forward"])
    ]
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
    """What flows in anywhere, and is made nowhere inside, pairs with what holds the same; so does what comes out."""
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
    golden = run(
        call("Torch.y.0"), call("Torch.same.0"), call("Torch.y.1"), call("Torch.y.2"), call("Torch.same.1")
    )
    ours, theirs = opened(tmp_path / "t", target), opened(tmp_path / "g", golden)
    matching = Aligned().match(ours, theirs, PLAN)
    order = RowOrder(matching, ours, theirs)
    shown = [pair.golden.name for one in order for pair in one.pairs if pair.golden]
    assert sorted(shown) == sorted(f"{key}.{side}.0" for key in golden for side in ("input", "output"))
    assert order.row_count == sum(len(one.pairs) for one in order)
    lonely = [pair for one in order for pair in one.pairs if not pair.matched]
    assert lonely and all(pair.how is How.REGION for pair in lonely)


# -- random streams ----------------------------------------------------------------------------------


class Made(NamedTuple):
    """A call of the stream that both runs are taken from."""

    name: str
    shape: int
    content: int
    sides: str
    home: int
    goes_back: bool


@st.composite
def streams(draw: Any, own_names: bool) -> list[Made]:
    """Calls with distinct contents; those of one side have names of their own, where that is asked for."""
    count = draw(st.integers(1, 25))
    made: list[Made] = []
    home = 0
    for content in range(count):
        sides = draw(st.sampled_from(["tg", "tg", "tg", "t", "g"]))
        name = draw(st.sampled_from(["add", "mul", "relu"]))
        prefix = sides if own_names and sides != "tg" else ""
        home += draw(st.sampled_from([0, 0, 0, 1]))
        made.append(Made(prefix + name, draw(st.integers(1, 2)), content, sides, home, draw(st.booleans())))
    return made


class Side(NamedTuple):
    """One of the two runs: its records, their parents, and what each call is called."""

    data: Data
    parents: dict[str, str]
    keys: dict[int, str]


def side_of(made: list[Made], side: str, first: dict[str, int], homes: set[int]) -> Side:
    """The run that has the calls of ``side``, numbered from ``first`` on, in the modules ``homes``."""
    counts = Counter(first)
    found = Side({}, {}, {})
    back: list[Data] = []
    for home, calls in itertools.groupby(made, key=lambda one: one.home):
        owner = f"Module.net.{home}.{'New' if side == 't' else 'Old'}.forward.0"
        for one in calls:
            if side not in one.sides:
                continue
            key = f"Torch.{one.name}.{counts[one.name]}"
            counts[one.name] += 1
            found.keys[one.content] = key
            found.data.update(call(key, (100 + one.content) / 100, [one.shape]))
            if home in homes:
                found.parents[f"{key}.forward"] = owner
            if one.goes_back:
                back.append(backward(key, (100 + one.content) / 100))
        if home in homes:
            found.data.update(module(f"net.{home}", "New" if side == "t" else "Old", value=50.0 + home))
    found.data.update(run(*reversed(back)))
    return found


def both_sides(made: list[Made], draw: Any) -> list[Side]:
    """The target and the golden, each with numbers and modules of its own."""
    sides = []
    homes = sorted({one.home for one in made})
    with_modules = draw(st.booleans())
    for side in "tg":
        first = {name: draw(st.integers(0, 3)) for name in sorted({one.name for one in made})}
        own = {home for home in homes if with_modules and draw(st.sampled_from([True, True, False]))}
        sides.append(side_of(made, side, first, own))
    return sides


def aligned_sides(target: Side, golden: Side) -> Found:
    with tempfile.TemporaryDirectory() as directory:
        return align(Path(directory), target.data, golden.data, target.parents, golden.parents)


@PROPERTY
@given(streams(own_names=True), st.data())
def test_exactly_the_surviving_calls_pair(made: list[Made], data: Any) -> None:
    target, golden = both_sides(made, data.draw)
    if not target.data or not golden.data:
        return
    wanted = {}
    for one in made:
        if one.sides == "tg":
            for phase in ("forward", "backward") if one.goes_back else ("forward",):
                wanted[f"{target.keys[one.content]}.{phase}"] = f"{golden.keys[one.content]}.{phase}"
    for key in target.data:
        other = key.replace(".New.", ".Old.")
        if key.startswith("Module.") and other in golden.data:
            wanted[key] = other
    assert aligned_sides(target, golden).pairs == wanted


@PROPERTY
@given(streams(own_names=False), st.data())
def test_surviving_calls_pair_whatever_stands_around_them(made: list[Made], data: Any) -> None:
    """Calls of one side may pair with alike calls of the other side, but never one that survives in both."""
    target, golden = both_sides(made, data.draw)
    if not target.data or not golden.data:
        return
    found = aligned_sides(target, golden)
    for one in made:
        if one.sides == "tg":
            assert found.pairs[f"{target.keys[one.content]}.forward"] == f"{golden.keys[one.content]}.forward"
            if one.goes_back:
                own, other = (f"{keys[one.content]}.backward" for keys in (target.keys, golden.keys))
                assert found.pairs[own] == other


@settings(PROPERTY, phases=[Phase.generate])
@given(streams(own_names=False), st.data())
def test_backward_calls_pair_only_behind_their_forward_calls(made: list[Made], data: Any) -> None:
    target, golden = both_sides(made, data.draw)
    if not target.data or not golden.data:
        return
    pairs = aligned_sides(target, golden).pairs
    for own, other in pairs.items():
        if own.endswith(".backward"):
            assert pairs.get(own.replace("backward", "forward")) == other.replace("backward", "forward")


def longest(ours: str, theirs: str) -> int:
    """The length of the longest common subsequence, of all there are."""

    @lru_cache(None)
    def best(i: int, j: int) -> int:
        if i == len(ours) or j == len(theirs):
            return 0
        skipped = max(best(i + 1, j), best(i, j + 1))
        return max(skipped, 1 + best(i + 1, j + 1)) if ours[i] == theirs[j] else skipped

    return best(0, 0)


def pairs_of_alike(ours: str, theirs: str) -> list[tuple[int, int]]:
    """The positions that pair in two streams of calls that all hold the same."""
    with tempfile.TemporaryDirectory() as directory:
        sides = []
        for text in (ours, theirs):
            keys = [f"Torch.{letter}.{number}" for number, letter in enumerate(text)]
            sides.append({f"{key}.forward": record for key in keys for record in call(key).values()})
        found = align(Path(directory), *sides)
    return sorted((int(a.split(".")[2]), int(b.split(".")[2])) for a, b in found.pairs.items())


words = st.text("ab", min_size=1, max_size=8)


@PROPERTY
@given(words, words)
def test_repeated_calls_pair_in_order_and_one_to_one(ours: str, theirs: str) -> None:
    pairs = pairs_of_alike(ours, theirs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert all(ours[i] == theirs[j] for i, j in pairs)


@PROPERTY
@given(words.map(lambda text: text + text), words.map(lambda text: text + text))
def test_repeated_calls_pair_as_many_as_can(ours: str, theirs: str) -> None:
    """Every call is there twice, so none is an anchor."""
    assert len(pairs_of_alike(ours, theirs)) == longest(ours, theirs)


@pytest.mark.parametrize("ours, theirs", [("abb", "bba"), ("abbbbb", "bbbbba"), ("bbab", "abbb")])
def test_a_call_that_moved_costs_no_other_pair(ours: str, theirs: str) -> None:
    assert len(pairs_of_alike(ours, theirs)) == longest(ours, theirs)


# -- size ----------------------------------------------------------------------------------------------


def large_run(path: Path, data: Data) -> DumpRun:
    path.write_text(json.dumps({"task": "statistics", "data": data}))
    return DumpRun(path, "pytorch", lambda path: np.zeros(1))


@pytest.mark.parametrize("contents", [pytest.param("distinct", marks=pytest.mark.slow), "alike"])
def test_many_calls_align_in_seconds(contents: str, tmp_path: Path) -> None:
    """20,000 calls, of which 5 % are inserted; where all hold the same, only what they are can tell."""
    random = np.random.default_rng(3)
    names = ["linear", "relu", "add", "mul", "softmax", "view", "permute", "dropout"]
    kinds = random.integers(len(names), size=19_000).tolist()
    golden, target = {}, {}
    counts: Counter[str] = Counter()
    inserted = set(random.choice(20_000, 1_000, replace=False).tolist())
    number = 0
    wanted = {}
    for place in range(20_000):
        if place in inserted:
            target.update(call(f"Torch.new.{place}", 5.0))
            continue
        name = names[kinds[number]]
        value = 1 + number / 7 if contents == "distinct" else 1.0
        own = f"Torch.{name}.{counts[name] + 3}"
        target.update(call(own, value))
        golden.update(call(f"Torch.{name}.{counts[name]}", value))
        wanted[f"{own}.forward"] = f"Torch.{name}.{counts[name]}.forward"
        counts[name] += 1
        number += 1
    ours, theirs = (large_run(tmp_path / f"{len(data)}.dump.json", data) for data in (target, golden))
    started = time.monotonic()
    matching = Aligned().match(ours, theirs, PLAN)
    assert time.monotonic() - started < 60
    found = look(matching, ours, theirs)
    assert found.pairs == wanted
    assert sum(len(one) for one, _ in found.regions) == 1_000
