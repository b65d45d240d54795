"""Alignment of calls by their contents, and of modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_matching.aligned import AlignmentMatcher
from probe_matching.likeness import parse_module_call
from probe_recording.reading.run import DumpRun
from support.runs.recorded import forward, scalar, tensor, write_run
from support.runs.streams import PLAN, Data, align, backward, call, look, module, opened, run


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
    assert found.pairs == {f"Torch.relu.{n}.forward": f"Torch.relu.{n + (n >= extra)}.forward" for n in range(4)}


def test_one_call_more_and_another_one_less(tmp_path: Path) -> None:
    """Equal counts of calls of one name, which by their numbers would all be mispaired."""
    target = run(*(call(f"Torch.relu.{n}", value) for n, value in enumerate((9.0, 1.0, 2.0, 3.0))))
    golden = run(*(call(f"Torch.relu.{n}", value) for n, value in enumerate((1.0, 2.0, 3.0, 4.0))))
    found = align(tmp_path, target, golden)
    assert found.pairs == {f"Torch.relu.{n}.forward": f"Torch.relu.{n - 1}.forward" for n in (1, 2, 3)}
    assert found.regions == [(["Torch.relu.0.forward"], []), ([], ["Torch.relu.3.forward"])]


def test_calls_in_another_order_pair_by_what_they_hold(tmp_path: Path) -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    golden = run(*(call(f"Torch.relu.{n}", value) for n, value in enumerate(values)))
    order = [2, 0, 3, 1]
    target = run(*(call(f"Torch.relu.{n}", values[place]) for n, place in enumerate(order)))
    found = align(tmp_path, target, golden)
    assert found.pairs == {f"Torch.relu.{n}.forward": f"Torch.relu.{place}.forward" for n, place in enumerate(order)}
    assert not found.regions


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
    assert AlignmentMatcher().match(ours, theirs, PLAN).matched_count == 0


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
    assert parse_module_call(key) == place


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
    ours, theirs = (DumpRun(tmp_path / side / "dump.json", "pytorch", lambda path: np.zeros(1)) for side in "tg")
    assert not look(AlignmentMatcher().match(ours, theirs, PLAN), ours, theirs).regions


def test_cells_pair_by_their_place(tmp_path: Path) -> None:
    target = run({"Cell.a.NewDense.forward.0": forward(tensor(), output=[tensor()])}, call("Mint.x.0"))
    golden = run({"Cell.a.Dense.forward.0": forward(tensor(), output=[tensor()])}, call("Mint.x.0"))
    assert align(tmp_path, target, golden).pairs["Cell.a.NewDense.forward.0"] == "Cell.a.Dense.forward.0"


def test_an_extra_call_of_a_module_is_left_over_and_no_other(tmp_path: Path) -> None:
    """A level-0 run has modules only: one that is called once more shifts all its calls."""
    target = run(*(module("act", "ReLU", n, value) for n, value in enumerate((9.0, 1.0, 2.0, 3.0))))
    golden = run(*(module("act", "ReLU", n, value) for n, value in enumerate((1.0, 2.0, 3.0))))
    assert align(tmp_path, target, golden).regions == [(["Module.act.ReLU.forward.0"], [])]


def with_gradient(data: Data) -> Data:
    """Return calls whose outputs require a gradient."""
    return {key: {**record, "output": [{**leaf, "requires_grad": True} for leaf in record["output"]]}
            for key, record in data.items()}  # fmt: skip


@pytest.mark.parametrize("value", [1.0, 2.0])
def test_an_evaluation_before_the_training_does_not_pair_with_it(value: float, tmp_path: Path) -> None:
    """The evaluation computes what the golden's training computes, and another ``value`` may come of the training."""
    target = run(call("Torch.relu.0"), with_gradient(call("Torch.relu.1", value)))
    golden = with_gradient(call("Torch.relu.0"))
    found = align(tmp_path, target, golden)
    assert found.pairs == {"Torch.relu.1.forward": "Torch.relu.0.forward"}
    assert found.regions == [(["Torch.relu.0.forward"], [])]


def test_a_call_that_lost_its_gradient_still_pairs(tmp_path: Path) -> None:
    target, golden = call("Torch.relu.0"), with_gradient(call("Torch.relu.0"))
    assert align(tmp_path, target, golden).pairs == {"Torch.relu.0.forward": "Torch.relu.0.forward"}


def test_modules_pair_within_the_modules_around_them(tmp_path: Path) -> None:
    """Both calls of the inner module hold the same values; the outer one shows which is new."""
    inner = [module("a.b", number=number) for number in (0, 1)]
    outer = [module("a", "Block", number, value) for number, value in ((0, 5.0), (1, 1.0))]
    names = [next(iter(data)) for data in outer]
    target = run(inner[0], outer[0], inner[1], outer[1])
    golden = run(inner[0], module("a", "Block"))
    parents = {next(iter(data)): name for data, name in zip(inner, names)}
    found = align(tmp_path, target, golden, parents, inside(names[0], inner[0]))
    assert found.pairs == {"Module.a.b.Linear.forward.1": "Module.a.b.Linear.forward.0", names[1]: names[0]}
