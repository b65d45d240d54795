"""Pairing: exact, fuzzy, by mapping; and the order of the rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_matching import alignment
from probe_matching.alignment import CallCodes, align
from probe_matching.fuzzy import FuzzyMatcher
from probe_matching.mapping import MappingMatcher
from probe_recording.reading.run import DumpRun
from support.runs.orders import all_pairs
from support.runs.recorded import forward, scalar, tensor, write_run
from support.sampling import examples

from probe_core.matching.exact import ExactMatcher
from probe_core.matching.row_order import RowOrder
from probe_core.model import MatchKind
from probe_core.model.plan import Plan
from probe_core.store.names import canonicalize, drop_count

PLAN = Plan(Path("t"), Path("g"), Path("o"), "0")
Rows = list[tuple[str | None, str | None]]


def open_run(directory: Path, data: dict[str, Any]) -> DumpRun:
    return DumpRun(write_run(directory, data), "pytorch", lambda path: np.zeros(1))


def rows(tmp_path: Path, target: dict[str, Any], golden: dict[str, Any], matcher: Any = None, plan: Any = None) -> Rows:
    ours, theirs = open_run(tmp_path / "t", target), open_run(tmp_path / "g", golden)
    matching = (matcher or ExactMatcher()).match(ours, theirs, plan or PLAN)
    order = RowOrder(matching, ours, theirs)
    found = [
        (pair.target.name if pair.target else None, pair.golden.name if pair.golden else None)
        for pair in all_pairs(order)
    ]
    assert len(found) == order.row_count
    return found


def call(name: str, shape: list[int] | None = None) -> dict[str, Any]:
    return {f"{name}.forward": forward(tensor(shape))}


@pytest.mark.parametrize(
    "name, short",
    [
        ("Functional.conv2d.1.forward", "Functional.conv2d.forward"),
        ("Tensor.__mul__.12.backward", "Tensor.__mul__.backward"),
        ("Module.a.0.Linear.forward.3", "Module.a.0.Linear.forward"),
        ("Module.forward.Linear.backward.0", "Module.forward.Linear.backward"),
        ("Module.x.Linear.parameters_grad.0", "Module.x.Linear.parameters_grad"),
        ("Module.x.Linear.parameters_grad", "Module.x.Linear.parameters_grad"),
        ("hidden.3.debug", "hidden.debug"),
        ("strange", "strange"),
    ],
)
def test_the_count_goes_and_the_class_stays(name: str, short: str) -> None:
    assert drop_count(name) == short


def test_only_the_count_behind_parameters_grad_goes() -> None:
    assert canonicalize("Module.x.L.parameters_grad.0") == "Module.x.L.parameters_grad"
    assert canonicalize("Module.x.0.L.forward.0") == "Module.x.0.L.forward.0"


class TestExact:
    def test_shape_and_dtype_do_not_part_names(self, tmp_path: Path) -> None:
        found = rows(tmp_path, call("Torch.neg.0", [3, 4]), call("Torch.neg.0", [4, 3]))
        assert found == [("Torch.neg.0.forward.input.0",) * 2]

    def test_golden_rows_stand_behind_the_row_before_them(self, tmp_path: Path) -> None:
        """Golden order a b c d e, target order e x a: b c d follow a, wherever a is."""
        golden = {k: v for n in "abcde" for k, v in call(f"Torch.{n}.0").items()}
        target = {k: v for n in "exa" for k, v in call(f"Torch.{n}.0").items()}
        names = [(a or b or "").split(".")[1] + ("" if a else "'") for a, b in rows(tmp_path, target, golden)]
        assert names == ["e", "x", "a", "b'", "c'", "d'"]

    def test_golden_rows_before_all_others_come_first(self, tmp_path: Path) -> None:
        golden = {**call("Torch.a.0"), **call("Torch.b.0")}
        assert rows(tmp_path, call("Torch.b.0"), golden)[0] == (None, "Torch.a.0.forward.input.0")

    def test_a_golden_row_within_an_op_follows_the_row_before_it(self, tmp_path: Path) -> None:
        target = {"Torch.a.0.forward": forward(tensor(), output=[tensor()])}
        golden = {"Torch.a.0.forward": forward(tensor(), scalar(2), output=[tensor()])}
        assert rows(tmp_path, target, golden) == [
            ("Torch.a.0.forward.input.0",) * 2,
            (None, "Torch.a.0.forward.input.1"),
            ("Torch.a.0.forward.output.0",) * 2,
        ]

    def test_the_kth_of_a_repeated_name_pairs_with_the_kth(self, tmp_path: Path) -> None:
        key = "Module.x.L.parameters_grad"
        target = {key: {"weight": [tensor([1]), tensor([2])]}}
        golden = {key: {"weight": [tensor([1]), tensor([2]), tensor([3])]}}
        name = f"{key}.weight"
        assert rows(tmp_path, target, golden) == [(name, name), (name, name), (None, name)]

    def test_values_pair_by_place_where_versions_name_them_differently(self, tmp_path: Path) -> None:
        named = tensor(data_name="Torch.a.0.forward.kwargs.x.pt")
        found = rows(tmp_path, {"Torch.a.0.forward": forward(x=named)}, {"Torch.a.0.forward": forward(x=tensor())})
        assert found == [("Torch.a.0.forward.kwargs.x", "Torch.a.0.forward.input.x")]

    def test_parameter_gradients_of_26_pair_with_those_of_8(self, tmp_path: Path) -> None:
        found = rows(
            tmp_path,
            {"Module.x.L.parameters_grad.0": {"weight": [tensor()]}},
            {"Module.x.L.parameters_grad": {"weight": [tensor()]}},
        )
        assert found == [("Module.x.L.parameters_grad.0.weight", "Module.x.L.parameters_grad.weight")]


class TestFuzzy:
    def test_identical_runs_pair_one_to_one(self, tmp_path: Path) -> None:
        data = {k: v for n in range(5) for k, v in call(f"Torch.relu.{n}").items()}
        assert all(a == b for a, b in rows(tmp_path, data, data, FuzzyMatcher()))

    def test_a_call_more_shifts_the_rest(self, tmp_path: Path) -> None:
        target = {**call("Torch.relu.0", [9]), **call("Torch.relu.1", [2]), **call("Torch.relu.2", [3])}
        golden = {**call("Torch.relu.0", [2]), **call("Torch.relu.1", [3])}
        found = rows(tmp_path, target, golden, FuzzyMatcher())
        assert [(a and a[:12], b and b[:12]) for a, b in found] == [
            ("Torch.relu.0", None),
            ("Torch.relu.1", "Torch.relu.0"),
            ("Torch.relu.2", "Torch.relu.1"),
        ]

    def test_modules_lose_their_count_and_not_their_class(self, tmp_path: Path) -> None:
        target = {"Module.a.Linear.forward.1": forward(tensor())}
        golden = {
            "Module.a.Linear.forward.0": forward(tensor()),
            "Module.a.Conv.forward.1": forward(tensor()),
        }
        assert rows(tmp_path, target, golden, FuzzyMatcher())[0][1] == "Module.a.Linear.forward.0.input.0"

    def test_left_overs_of_one_name_pair_by_name(self, tmp_path: Path) -> None:
        """Other shapes: no fuzzy pair, but one full name; message 9 says the rest."""
        found = rows(tmp_path, call("Torch.neg.0", [3]), call("Torch.neg.0", [4]), FuzzyMatcher())
        assert found == [("Torch.neg.0.forward.input.0",) * 2]

    def test_whole_calls_pair_and_not_rows(self, tmp_path: Path) -> None:
        target = {"Torch.add.1.forward": forward(tensor([2]), tensor([3]))}
        golden = {"Torch.add.0.forward": forward(tensor([2]), tensor([4]))}
        matching = FuzzyMatcher().match(open_run(tmp_path / "t", target), open_run(tmp_path / "g", golden), PLAN)
        assert matching.matched_count == 0


class TestMapping:
    def write(self, tmp_path: Path, text: str) -> Path:
        path = tmp_path / "map.yaml"
        path.write_text(text)
        return path

    def test_names_of_the_file_pair_and_the_rest_by_name(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "Tensor.mm.0.forward.input.0: Torch.mm.0.forward.input.0\n")
        target = {**call("Tensor.mm.0"), **call("Torch.exp.0")}
        golden = {**call("Torch.mm.0"), **call("Torch.exp.0")}
        assert rows(tmp_path, target, golden, MappingMatcher(), PLAN.with_options(mapping=path)) == [
            ("Tensor.mm.0.forward.input.0", "Torch.mm.0.forward.input.0"),
            ("Torch.exp.0.forward.input.0",) * 2,
        ]

    def test_one_golden_row_may_stand_in_several_rows(self, tmp_path: Path) -> None:
        names = {f"Torch.{n}.0.forward.input.0": "Torch.c.0.forward.input.0" for n in "ab"}
        found = rows(
            tmp_path,
            {**call("Torch.a.0"), **call("Torch.b.0")},
            call("Torch.c.0"),
            MappingMatcher(),
            PLAN.with_options(mapping=names),
        )
        assert [golden for _, golden in found] == ["Torch.c.0.forward.input.0"] * 2

    def test_what_the_file_does_not_name_may_pair_fuzzily(self, tmp_path: Path) -> None:
        target = {**call("Tensor.mm.0"), **call("Torch.exp.3")}
        golden = {**call("Torch.mm.0"), **call("Torch.exp.1")}
        names = {"Tensor.mm.0.forward.input.0": "Torch.mm.0.forward.input.0"}
        plan = replace(PLAN.with_options(mapping=names), matcher="fuzzy")
        ours, theirs = open_run(tmp_path / "t", target), open_run(tmp_path / "g", golden)
        order = RowOrder(MappingMatcher().match(ours, theirs, plan), ours, theirs)
        assert [pair.match_kind for pair in all_pairs(order)] == [MatchKind.MAPPED, MatchKind.FUZZY]


# -- the alignment against every alignment there is -------------------------------------------


def best_by_brute_force(ours: str, theirs: str, our_names: list[int], their_names: list[int]) -> tuple[int, int]:
    @lru_cache(None)
    def best(i: int, j: int) -> tuple[int, int]:
        if i == len(ours) or j == len(theirs):
            return (0, 0)
        found = max(best(i + 1, j), best(i, j + 1))
        if ours[i] == theirs[j]:
            pairs, names = best(i + 1, j + 1)
            found = max(found, (pairs + 1, names + (our_names[i] == their_names[j])))
        return found

    return best(0, 0)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.text("ab", max_size=9), st.text("ab", max_size=9), st.data(), st.sampled_from([1, 6, alignment.MAX_TABLE_CELLS])
)  # fmt: skip
def test_most_pairs_then_most_equal_names(ours: str, theirs: str, data: Any, small: int) -> None:
    names = [data.draw(st.lists(st.integers(0, 3), min_size=len(s), max_size=len(s))) for s in (ours, theirs)]
    saved, alignment.MAX_TABLE_CELLS = alignment.MAX_TABLE_CELLS, small  # small tables make it divide
    try:
        codes = (CallCodes([ord(c) for c in s], [str(x) for x in n]) for s, n in zip((ours, theirs), names))
        pairs = list(align(*codes))
    finally:
        alignment.MAX_TABLE_CELLS = saved
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert all(ours[i] == theirs[j] for i, j in pairs)
    equal = sum(names[0][i] == names[1][j] for i, j in pairs)
    assert (len(pairs), equal) == best_by_brute_force(ours, theirs, *names)


def test_equal_arguments_count_more_than_equal_names() -> None:
    """Of two divisions, the one by the same number is the partner."""
    target, golden = CallCodes([7], ["div.0"]), CallCodes([7, 7], ["div.0", "div.1"])
    assert list(align(target, golden)) == [(0, 0)]
    assert list(align(target._replace(arguments=[1]), golden._replace(arguments=[2, 1]))) == [(0, 1)]


def test_equal_contents_count_more_than_equal_arguments() -> None:
    target = CallCodes([7], ["div.0"], contents=[5], arguments=[1])
    golden = CallCodes([7, 7], ["div.0", "div.1"], contents=[5, 6], arguments=[2, 1])
    assert list(align(target, golden)) == [(0, 0)]


def test_equal_modes_count_more_than_equal_contents() -> None:
    target = CallCodes([7], ["div.0"], modes=[1], contents=[5])
    golden = CallCodes([7, 7], ["div.0", "div.1"], modes=[0, 1], contents=[5, 6])
    assert list(align(target, golden)) == [(0, 1)]
