"""The first value that is not finite: its call, the way in which it arose, and its path over the ranks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from probe_watch.nan_analysis.command import iterate_analyses
from probe_watch.nan_analysis.findings import NonFiniteAnalysis, NonFiniteOrigin
from probe_watch.nan_analysis.marks import ValueMark
from support.runs.nan_dumps import load_cases, value_of, write_case, write_rank

from probe_core.plugins.manager import Manager

ORIGINS: dict[str, tuple[int, str, NonFiniteOrigin]] = {
    "all_reduce_spreads": (1, "Torch.log.0.forward", NonFiniteOrigin.COMPUTED),
    "after_the_last_communication": (1, "Torch.log.0.forward", NonFiniteOrigin.COMPUTED),
    "argument_nan": (0, "Tensor.masked_fill.0.forward", NonFiniteOrigin.ARGUMENT),
    "backward": (0, "Torch.sqrt.0.backward", NonFiniteOrigin.COMPUTED),
    "broadcast_from_root": (0, "Torch.log.0.forward", NonFiniteOrigin.COMPUTED),
    "data": (0, "Functional.linear.0.forward", NonFiniteOrigin.DATA),
    "gradient_from_outside": (0, "Functional.linear.0.backward", NonFiniteOrigin.GRADIENT),
    "keyword_input": (0, "Functional.linear.0.forward", NonFiniteOrigin.PARAMETER),
    "mask_hides_a_row": (0, "Functional.softmax.0.forward", NonFiniteOrigin.INFINITY),
    "missing_rank": (0, "Distributed.broadcast.0.forward", NonFiniteOrigin.UNRECORDED_RANK),
    "module_parameter": (0, "Module.fc.Linear.forward.0", NonFiniteOrigin.PARAMETER),
    "modules": (0, "Torch.log.0.forward", NonFiniteOrigin.COMPUTED),
    "nested_input": (0, "Torch.cat.0.forward", NonFiniteOrigin.DATA),
    "nested_output": (0, "Torch.split.0.forward", NonFiniteOrigin.COMPUTED),
    "overflow_in_all_reduce": (0, "Distributed.all_reduce.0.forward", NonFiniteOrigin.COMMUNICATION),
    "parameter": (0, "Functional.linear.0.forward", NonFiniteOrigin.PARAMETER),
    "parameters_grad": (0, "Module.fc.Linear.parameters_grad", NonFiniteOrigin.PARAMETER_GRADIENT),
    "scalar_output": (0, "Tensor.item.0.forward", NonFiniteOrigin.COMPUTED),
    "sign_of_an_infinity_changes": (0, "Functional.nll_loss.0.forward", NonFiniteOrigin.INFINITY),
}
SILENT = (
    "clean", "empty", "mask_and_softmax", "mask_as_input", "nan_is_dropped", "overflow_is_absorbed",
    "recv_buffer",
)  # fmt: skip


def analysis_of(case: dict[str, Any], directory: Path) -> NonFiniteAnalysis:
    return next(iter(iterate_analyses(write_case(case, directory / "step0"), Manager())))


@pytest.mark.parametrize("case", ORIGINS)
def test_first_value_and_its_origin(case: str, tmp_path: Path) -> None:
    first = analysis_of(load_cases()[case], tmp_path).first[0]
    assert (first.rank, first.op, first.origin) == ORIGINS[case]


@pytest.mark.parametrize("case", SILENT)
def test_harmless_values_are_no_finding(case: str, tmp_path: Path) -> None:
    analysis = analysis_of(load_cases()[case], tmp_path)
    assert not analysis.first and not analysis.further and not analysis.path


def test_path_follows_communication(tmp_path: Path) -> None:
    for case in ("pipeline_of_three", "nan_through_two_groups"):
        path = analysis_of(load_cases()[case], tmp_path / case).path
        assert [(arrival.rank, arrival.senders) for arrival in path] == [(0, ()), (1, (0,)), (2, (1,))]


def test_infinity_names_the_call_that_asked_for_it(tmp_path: Path) -> None:
    infinity = analysis_of(load_cases()["mask_hides_a_row"], tmp_path / "argument").first[0].infinity
    assert infinity is not None
    assert (infinity.op, infinity.is_argument) == ("Tensor.masked_fill.0.forward", True)
    lines = ["Torch.add.0.forward: f m -> j", "Functional.softmax.0.forward: j -> n"]
    infinity = analysis_of({"ranks": {0: lines}}, tmp_path / "outside").first[0].infinity
    assert infinity is not None
    assert (infinity.op, infinity.is_argument) == ("Torch.add.0.forward", False)


def test_mask_that_another_rank_sends_is_no_finding(tmp_path: Path) -> None:
    ranks = {
        0: [
            "Tensor.masked_fill.0.forward: f b s:-inf -> j",
            "Distributed.broadcast.0.forward: j src=s:0 -> j",
        ],
        1: ["Distributed.broadcast.0.forward: f src=s:0 -> j", "Functional.softmax.0.forward: j -> f"],
    }
    assert not analysis_of({"ranks": ranks}, tmp_path).first


@pytest.mark.parametrize(
    "lines, op",
    [
        (["Torch.log.0.forward: f -> n", "Torch.isnan.0.forward: n -> b"], "Torch.log.0.forward"),
        (["Torch.log.0.forward: f -> n", "Torch.argmax.0.forward: n -> s:3"], "Torch.log.0.forward"),
        (["Torch.log.0.forward: f -> n", "Torch.where.0.forward: b f n -> f", "Torch.mul.0.forward: n -> n"],
         "Torch.log.0.forward"),
        (["Torch.exp.0.forward: f -> i", "Torch.sub.0.forward: i i -> n"], "Torch.exp.0.forward"),
        (["Torch.exp.0.forward: f -> i"], "Torch.exp.0.forward"),
        (["Torch.log.0.forward: f -> n", "Torch.where.0.forward: b f n -> u"], "Torch.log.0.forward"),
        (["Torch.empty.0.forward: -> n", "Torch.log.0.forward: f -> n", "Tensor.view.0.forward: n s:6 -> n"],
         "Torch.log.0.forward"),
        (["Torch.log.0.forward: f -> j", "Torch.add.0.forward: f m -> m"], "Torch.log.0.forward"),
        (["Torch.mul.0.forward: f h -> h", "Torch.sum.0.backward: j -> n"], "Torch.sum.0.backward"),
    ],
)  # fmt: skip
def test_checks_and_later_uses_do_not_excuse(lines: list[str], op: str, tmp_path: Path) -> None:
    assert analysis_of({"ranks": {0: lines}}, tmp_path).first[0].op == op


def test_later_independent_value_is_listed(tmp_path: Path) -> None:
    lines = ["Torch.log.0.forward: f -> n", "Torch.exp.0.forward: f -> i", "Torch.mul.0.forward: i n -> n"]
    analysis = analysis_of({"ranks": {0: lines}}, tmp_path)
    assert [first.op for first in analysis.further] == ["Torch.exp.0.forward"]


def test_value_that_leaves_a_module_unrecorded_is_found_within_it(tmp_path: Path) -> None:
    case = {
        "head": {"level": "mix"},
        "modules": {"Torch.log.0.forward": "Module.Net.forward.0"},
        "ranks": {0: ["Torch.log.0.forward: f -> n", "Module.Net.forward.0: f -> f", "Torch.add.0.forward: f n -> n"]},
    }  # fmt: skip
    first = analysis_of(case, tmp_path).first[0]
    assert (first.op, first.modules) == ("Torch.log.0.forward", ("Module.Net.forward.0",))


def test_views_of_uninitialised_memory_are_no_finding(tmp_path: Path) -> None:
    lines = [
        "Torch.empty.0.forward: -> n", "Tensor.view.0.forward: n s:6 -> n", "Tensor.copy_.0.forward: n f -> f",
    ]  # fmt: skip
    analysis = analysis_of({"ranks": {0: lines}}, tmp_path)
    assert not analysis.first and analysis.ranks[0].marks[ValueMark.OVERWRITTEN] == 4


def test_marks_are_counted(tmp_path: Path) -> None:
    marks = analysis_of(load_cases()["mask_and_softmax"], tmp_path / "mask").ranks[0].marks
    assert marks[ValueMark.GIVEN] == 3 and not marks[ValueMark.HARMFUL]  # the argument, the output, the input
    marks = analysis_of(load_cases()["empty"], tmp_path / "empty").ranks[0].marks
    assert marks[ValueMark.OVERWRITTEN] == 2 and not marks[ValueMark.HARMFUL]


def test_inputs_without_statistics_are_counted(tmp_path: Path) -> None:
    first = analysis_of({"ranks": {0: ["Torch.mul.0.forward: f u -> n"]}}, tmp_path).first[0]
    assert first.unknown == 1


# -- random runs -----------------------------------------------------------------------------------


class RandomRun:
    """A run of random calls on several ranks; one call turns finite inputs into nan."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.world = source.randint(2, 4)
        self.records: list[dict[str, Any]] = [{} for _ in range(self.world)]
        self.pools: list[list[dict[str, Any]]] = [[self.tensor() for _ in range(3)] for _ in range(self.world)]
        self.counts: dict[tuple[int, str], int] = {}

    def tensor(self, *, is_bad: bool = False) -> dict[str, Any]:
        value = value_of("n" if is_bad else "f")
        if not is_bad:
            value |= {"Max": self.source.uniform(1, 2), "Min": self.source.uniform(-2, -1)}
        return value

    def is_bad(self, *values: dict[str, Any]) -> bool:
        return any(value["Max"] != value["Max"] for value in values)

    def add(self, rank: int, api: str, inputs: list[Any], outputs: list[Any], **keywords: Any) -> str:
        number = self.counts.get((rank, api), 0)
        self.counts[rank, api] = number + 1
        key = f"{api}.{number}.forward"
        self.records[rank][key] = {"input_args": inputs, "input_kwargs": keywords, "output": outputs}
        return key

    def compute(self, rank: int, *, is_fault: bool = False) -> str:
        inputs = self.source.sample([one for one in self.pools[rank] if not (is_fault and self.is_bad(one))], 1)
        output = self.tensor(is_bad=is_fault or self.is_bad(*inputs))
        self.pools[rank] = [*self.pools[rank][-2:], output]
        return self.add(rank, f"Torch.{self.source.choice(['mul', 'relu', 'exp'])}", inputs, [output])

    def mask(self, rank: int) -> None:
        hidden = value_of("j") | {"Max": self.source.uniform(1, 2)}
        self.add(rank, "Tensor.masked_fill", [self.tensor(), value_of("b"), value_of("s:-inf")], [hidden])
        self.add(rank, "Functional.softmax", [hidden], [self.tensor()])

    def communicate(self, _: int) -> None:
        """Let some ranks communicate, whichever rank is next."""
        ranks = sorted(self.source.sample(range(self.world), self.source.randint(2, self.world)))
        group = {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": "g"}
        given = {rank: self.source.choice(self.pools[rank]) for rank in ranks}
        kind = self.source.choice(["all_reduce", "broadcast", "send"])
        root = self.source.choice(ranks)
        if kind == "send":
            here, there = self.source.sample(ranks, 2)
            arrived = self.tensor(is_bad=self.is_bad(given[here]))
            self.add(here, "Distributed.send", [given[here]], [], dst=value_of(f"s:{there}"))
            self.add(there, "Distributed.recv", [given[there]], [arrived], src=value_of(f"s:{here}"))
            self.pools[there].append(arrived)
            return
        senders = ranks if kind == "all_reduce" else [root]
        is_bad = self.is_bad(*(given[rank] for rank in senders))
        keywords = {"group": group, **({"src": value_of(f"s:{root}")} if kind == "broadcast" else {})}
        for rank in ranks:
            output = self.tensor(is_bad=is_bad)
            self.add(rank, f"Distributed.{kind}", [given[rank]], [output], **keywords)
            self.pools[rank].append(output)

    def run(self, directory: Path) -> tuple[int, str]:
        """Write the run, and return the rank and the key of the call at fault."""
        count = self.source.randint(20, 60)
        fault_at, fault = self.source.randrange(count), (-1, "")
        for number in range(count):
            rank = self.source.randrange(self.world)
            if number == fault_at:
                fault = rank, self.compute(rank, is_fault=True)
            else:
                self.source.choice([self.compute, self.mask, self.communicate])(rank)
        head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        for rank, records in enumerate(self.records):
            write_rank(directory / f"rank{rank}", head, records)
        return fault


@pytest.mark.parametrize("seed", range(20))
def test_planted_nan_is_named_among_random_calls_of_several_ranks(seed: int, tmp_path: Path) -> None:
    rank, op = RandomRun(random.Random(seed)).run(tmp_path / "step0")
    analysis = next(iter(iterate_analyses(tmp_path / "step0", Manager())))
    assert [(first.rank, first.op) for first in analysis.first] == [(rank, op)]
    assert analysis.path[0].rank == rank
