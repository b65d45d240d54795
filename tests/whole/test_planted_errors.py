"""Faults planted in the device run are found by the standard that judges the API; what is right passes.

Every call is recorded with its data, run alone with the fault in place of torch's operator (the NPU) and without
(the GPU), written as details, and the details of both are compared.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from probe_precheck.assignment import Assignment
from probe_precheck.calls import RecordedCalls
from probe_precheck.checking import create_status_rule
from probe_precheck.comparison import DetailsComparison, compare_details
from probe_precheck.judging import CallJudge
from probe_precheck.model import Call, Outcome, Result, Skipped, Status
from probe_precheck.results import CheckFiles
from probe_precheck.runner_options import RunnerOptions
from probe_precheck.settings import Settings
from probe_precheck.tables import DETAILS
from probe_pytorch.precheck.apis import find_function
from probe_pytorch.precheck.raising import iterate_tensors, map_leaves
from probe_pytorch.precheck.runner import PyTorchRunner
from support.cases import every
from support.faults.planted_errors import ALL, ASSIGNED, FAULTS, OPERATORS, Draw, Fault, raised
from support.faults.right_operators import RIGHT
from support.runs.recording import recording
from support.sampling import SLOW, sampled

from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager

ALGORITHMS = {
    "benchmark_ratio": "标杆比对法",
    "binary_consistency": "二进制一致法",
    "absolute_threshold": "绝对阈值法",
    "ulp": "ULP误差比对法",
    "dual_thousandth": "双千指标法",
}
DIRECTIONS = ("forward", "backward")
LISTED = [(standard, fault) for standard, faults in FAULTS.items() for fault in faults]
PLANTED = [(fault, standard, dtype) for standard, fault in LISTED for dtype in fault.dtypes]
PLACES = {pair: place for place, pair in enumerate(LISTED)}
CHOSEN = [
    (fault, standard, dtype)
    for fault, standard, dtype in PLANTED
    if os.environ.get(SLOW) or dtype == fault.dtypes[PLACES[standard, fault] % len(fault.dtypes)]
]
"""Those that are tried: each fault in one of its dtypes, or in all of them together with the slow tests."""
IDS = [f"{fault.api}-{fault.name.replace(' ', '_')}-{dtype}" for fault, _, dtype in PLANTED]
planted = every("fault, standard, dtype", CHOSEN, ids=[IDS[PLANTED.index(one)] for one in CHOSEN])

Function = Callable[..., Any]
Instead = Callable[[Fault], Mapping[str, Function]]


def torch_function(fault: Fault) -> Function:
    """The function of torch in whose place the fault stands."""
    scope, _, api = fault.api.partition(".")
    return find_function(scope, api)


class Device(NamedTuple):
    """Results of a device: by call, and the file of the details."""

    results: dict[str, Result]
    details: Path


class Recorded:
    """A recorded run of one dtype, with a call for each fault that there is in it."""

    def __init__(self, directory: Path, dtype: str) -> None:
        self.names: dict[Fault, str] = {}
        self._directory = directory
        with recording(directory / "run", task="tensor", level="L1") as found:
            self._record(found, dtype)
        self._dump = found.directory() / "dump.json"
        manager = Manager()
        self.assignment = Assignment(manager, "seed")
        self._judge = CallJudge(create_status_rule(manager, "pytorch"), self.assignment)
        run = open_run(manager, self._dump)
        calls = RecordedCalls(run)
        self._calls = {name: calls.get_call(i, Settings()) for i, name in enumerate(calls.names)}
        run.close()

    def _record(self, found: Any, dtype: str) -> None:
        counts: Counter[str] = Counter()
        for seed, (standard, fault) in enumerate(LISTED):
            if (fault, standard, dtype) not in CHOSEN:
                continue
            draw = Draw(dtype, seed)
            arguments = fault.inputs(draw)
            function = OPERATORS.get(fault.api) or torch_function(fault)
            found.start()
            output = function(*arguments.positional, **arguments.keywords)
            for one in iterate_tensors(output):
                if one.requires_grad:
                    one.backward(draw.upstream(one, standard))
            found.stop()
            self.names[fault] = f"{fault.api}.{counts[fault.api]}"
            counts[fault.api] += 1
        found.step()

    def run(self, label: str, instead: Instead) -> Device:
        """Run each call with what is there instead for its fault."""
        results = {
            self.names[fault]: self._judge.judge_call(call, self._outcome(call, instead(fault)))
            for fault in self.names
            for call in [self._calls[self.names[fault]]]
        }
        files = CheckFiles.create(self._directory / label, "20240101000000", DETAILS, "zh", 14)
        for result in results.values():
            files.append(result)
        files.finish(list(results))
        return Device(results, files.details)

    def _outcome(self, call: Call, instead: Mapping[str, Callable[..., Any]]) -> Outcome:
        runner = PyTorchRunner(instead)
        runner.open(RunnerOptions(self._dump, device="cpu"))
        outcome = runner.run(call)
        assert not isinstance(outcome.forward, Skipped), outcome
        return outcome


class Checked(NamedTuple):
    """A recorded run, checked on a right device and on a wrong one, and the details of both compared."""

    recorded: Recorded
    gpu: Device
    npu: Device
    compared: DetailsComparison


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Checked]]:
    threads = torch.get_num_threads()

    @cache
    def check(dtype: str) -> Checked:
        recorded = Recorded(tmp_path_factory.mktemp(dtype), dtype)
        gpu = recorded.run("gpu", lambda fault: {})
        npu = recorded.run("npu", lambda fault: {fault.api: fault.wrong})
        return Checked(recorded, gpu, npu, compare_details(npu.details, gpu.details, recorded.assignment))

    yield check
    torch.set_num_threads(threads)  # a runner sets its own


# -- the table -------------------------------------------------------------------------------------


def test_the_table_is_large() -> None:
    assert len(set(IDS)) == len(IDS)
    for dtype in ALL:
        faults = [(standard, fault) for fault, standard, one in PLANTED if one == dtype]
        assert len(faults) >= 40
        assert len({fault.api for _, fault in faults}) >= 25
        assert min(Counter(standard for standard, _ in faults).values()) >= 5


@every("standard, fault", LISTED, ids=lambda one: getattr(one, "api", one))
def test_the_table_has_the_standard_of_the_facts(standard: str, fault: Fault) -> None:
    api = fault.api.rpartition(".")[2]
    listed = next((name for name, apis in ASSIGNED.items() if api in apis.split()), "benchmark_ratio")
    arguments = fault.inputs(Draw(fault.dtypes[0], 0))
    output = next(iterate_tensors(torch_function(fault)(*arguments.positional, **arguments.keywords)))
    assert standard == (listed if output.is_floating_point() else "binary_consistency")


def test_the_facts_are_those_of_the_release() -> None:
    counts = {name: len(apis.split()) for name, apis in ASSIGNED.items()}
    assert counts == {"absolute_threshold": 30, "binary_consistency": 61, "ulp": 17, "dual_thousandth": 2}
    assignment = Assignment(Manager(), "seed")
    for name, apis in ASSIGNED.items():
        for api in apis.split():
            chosen = assignment.find_standard(api, "torch.float16")
            assert chosen is not None and chosen.spec.name == name


# -- what is wrong is caught -----------------------------------------------------------------------


@planted
def test_a_fault_is_caught(fault: Fault, standard: str, dtype: str, checked: Any) -> None:
    found: Checked = checked(dtype)
    name = found.recorded.names[fault]
    verdicts = dict(zip(DIRECTIONS, found.compared.apis[name]))
    assert verdicts[fault.seen] is Status.ERROR
    if fault.seen == "backward":
        assert verdicts["forward"] is Status.PASS
    rows = [row for row in found.compared.rows if row.api == name and row.phase == fault.seen]
    caught = {row.algorithm.chinese for row in rows if row.judgement.status is Status.ERROR}
    assert caught == {ALGORITHMS[standard]}


@planted
def test_what_the_first_stage_makes_of_it(fault: Fault, standard: str, dtype: str, checked: Any) -> None:
    found: Checked = checked(dtype)
    result = found.npu.results[found.recorded.names[fault]]
    status = dict(zip(DIRECTIONS, (result.forward, result.backward)))[fault.seen]
    assert (status is not Status.ERROR) == (dtype in fault.hidden)


@pytest.mark.parametrize("dtype", ALL)
def test_the_files_of_the_comparison_say_so(dtype: str, checked: Any, probe: Any, tmp_path: Path) -> None:
    found: Checked = checked(dtype)
    sides = ("-npu", found.npu.details, "-gpu", found.gpu.details)
    assert probe("api_precision_compare", *sides, "-o", tmp_path) == 0, probe.err
    (path,) = tmp_path.glob("api_precision_compare_result_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = {row["API Name"]: row for row in csv.DictReader(file)}
    for fault, name in found.recorded.names.items():
        assert rows[name][f"{fault.seen.capitalize()} Test Success"] == "error"


# -- what is right passes --------------------------------------------------------------------------


def rounded_once(function: Function) -> Function:
    """The function in the dtype of the reference, every output rounded once, and every gradient."""

    def right(*positional: Any, **keywords: Any) -> Any:
        found = [one for one in iterate_tensors((positional, keywords)) if one.is_floating_point()]
        high, more = map_leaves(list(positional), raised), map_leaves(keywords, raised)
        output = function(*high, **more)
        for before, after in zip(positional, high):  # what the call writes into
            if isinstance(before, torch.Tensor) and before.is_floating_point() and not before.requires_grad:
                before.copy_(after)
        return map_leaves(output, lambda one: one.to(found[0].dtype) if one.dtype is raised(found[0]).dtype else one)

    return right


WAYS: dict[str, Instead] = {
    "again": lambda fault: {},
    "rounded once": lambda fault: {fault.api: rounded_once(torch_function(fault))},
    "another formula": lambda fault: {fault.api: RIGHT[fault.api]} if fault.api in RIGHT else {},
}


@pytest.mark.parametrize("way, dtype", sampled(itertools.product(WAYS, ALL), 0, lambda case: case in zip(WAYS, ALL)))
def test_what_is_right_passes(way: str, dtype: str, checked: Any) -> None:
    found: Checked = checked(dtype)
    device = found.recorded.run(way, WAYS[way])
    compared = compare_details(device.details, found.gpu.details, found.recorded.assignment)
    assert not compared.missing and set(compared.apis) == set(found.recorded.names.values())
    wrong = {
        name: verdict
        for name, (forward, backward, verdict) in compared.apis.items()
        if forward is not Status.PASS or backward not in (Status.PASS, None)
    }
    assert not wrong


def test_another_formula_is_another(checked: Any) -> None:
    assert set(RIGHT) <= {fault.api for _, fault in LISTED}
    found: Checked = checked("float32")
    device = found.recorded.run("compared", WAYS["another formula"])
    other = {
        name.rpartition(".")[0]
        for name, result in device.results.items()
        for ours, theirs in zip(result.details, found.gpu.results[name].details)
        if ours.numbers != theirs.numbers
    }
    assert len(other) >= (20 if os.environ.get(SLOW) else 6)
