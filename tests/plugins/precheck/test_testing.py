"""The kit for authors of runners, status rules and standards: it lets ours pass, and names what is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import probe_metrics.hooks
import probe_pytorch.hooks
import probe_sample.hooks
import pytest
from probe_precheck.api import (
    Array,
    Call,
    Judgement,
    Outcome,
    Output,
    Outputs,
    OutputVerdict,
    RunnerOptions,
    RunnerSpec,
    Skipped,
    StandardSpec,
    Status,
    StatusRuleSpec,
)
from probe_precheck.model import Numbers
from probe_precheck.testing import calls_of, check_runner, check_standard, check_status_rule
from probe_pytorch.reader import PyTorchReader
from support.runs.recorded import forward, scalar, tensor, write_run
from support.standins import standin_precheck

STANDARDS = [*probe_metrics.hooks.probe_standards(), *probe_sample.hooks.probe_standards()]
RULES = probe_metrics.hooks.probe_status_rules()


@pytest.mark.parametrize("spec", STANDARDS, ids=lambda spec: spec.name)
def test_standards_that_exist(spec: StandardSpec) -> None:
    check_standard(spec)


@pytest.mark.parametrize("spec", RULES, ids=lambda spec: spec.name)
def test_status_rules_that_exist(spec: StatusRuleSpec) -> None:
    check_status_rule(spec)


def test_the_runner_of_pytorch(tmp_path: Path) -> None:
    of_range = tensor([3, 4], Max=2.0, Min=-1.0, requires_grad=True)
    data = {
        "Torch.exp.0.forward": forward(of_range, output=[of_range]),
        "Torch.exp.0.backward": {"input": [of_range], "output": [of_range]},
        "Functional.softmax.0.forward": forward(of_range, dim=scalar(-1), output=[of_range]),
    }
    path = write_run(tmp_path / "run", data)
    errors = tmp_path / "errors"
    errors.mkdir()
    calls = calls_of(PyTorchReader().open(path))
    assert len(calls) == 2 and calls[0].backward is not None
    (spec,) = probe_pytorch.hooks.probe_runners()
    check_runner(spec, RunnerOptions(path, "cpu", error_directory=errors), calls)
    assert {one.name for one in errors.glob("*.py")} == {"Torch.exp.0.py", "Functional.softmax.0.py"}


# -- what is broken --------------------------------------------------------------------------------


class Standard:
    """A standard without fault; tests break it."""

    def measure(self, output: Output, release: str) -> Mapping[str, Any]:
        with np.errstate(all="ignore"):
            differ = np.count_nonzero(output.bench.values.astype(output.device.values.dtype) != output.device.values)
        return {"error_rate": differ / output.device.values.size}

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Any:
        rate = npu["error_rate"]
        return Judgement(Status.PASS if rate == 0 else Status.ERROR, {"error_rate": rate})


def standard(**members: Any) -> StandardSpec:
    made = type("Broken", (Standard,), members)
    return StandardSpec("mine", "a standard", made, "mine", "mine", judges="rest")


def writing(self: Any, output: Output, release: str) -> Mapping[str, float]:
    output.device.values[...] = 0
    return {"error_rate": 0.0}


def counting(self: Any, output: Output, release: str) -> Mapping[str, float]:
    self.count = getattr(self, "count", 0) + 1
    return {"error_rate": self.count}


def test_a_standard_without_fault() -> None:
    check_standard(standard())


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"measure": lambda self, output, release: {"mine": 1}}, "measures mine, which no column shows"),
        ({"measure": lambda self, output, release: {"error_rate": "0"}}, "something other than numbers"),
        ({"measure": lambda self, output, release: 1 / 0}, "raised ZeroDivisionError: division by zero for equal"),
        ({"measure": lambda self, output, release: {"error_rate": float(np.log(np.zeros(1))[0])}},
         "raised RuntimeWarning"),
        ({"measure": writing}, "assignment destination is read-only"),
        ({"measure": counting}, "another verdict on equal plain (guide) the second time"),
        ({"judge": lambda self, npu, gpu, release: "pass"}, "judge must return a Judgement, not str"),
        ({"judge": lambda self, npu, gpu, release: Judgement("pass", {})}, "no Status"),
        ({"judge": lambda self, npu, gpu, release: Judgement(Status.PASS, {"mine": 1})}, "fills the cells mine"),
        ({"judge": lambda self, npu, gpu, release: Judgement(Status.PASS, {}, ("text",))}, "tuple of messages"),
        ({"judge": lambda self, npu, gpu, release: Judgement(Status.ERROR, {})},
         "calls an output that equals its reference error"),
        ({"judge": lambda self, npu, gpu, release: Judgement(Status.PASS, {"error_rate": float(npu.text("error_rate"))})},
         "for a row of blank cells"),
    ],
)  # fmt: skip
def test_broken_standards(members: dict[str, Any], says: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_standard(standard(**members))
    assert str(caught.value).startswith('The standard "mine"') and says in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"judges": "listed"}, "judges no API"),
        ({"label": ""}, "must have a label"),
        ({"summary": ""}, "must have a summary"),
        ({"columns": (("key", "text"),)}, "a column is (key, Chinese header, English header)"),
        ({"columns": (("a", "b", "c"),) * 2}, "two columns with the same key"),
        ({"apis": "probe_metrics.standards:nothing.yaml"}, "cannot be read"),
        ({"apis": "probe_metrics.standards:apis.yaml", "judges": "listed"}, "lists no API for it"),
        ({"name": ""}, "a name and a summary must be texts"),
    ],
)
def test_broken_descriptions(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_standard(replace(standard(), **fields))
    assert says in str(caught.value)
    with pytest.raises(AssertionError, match="must return StandardSpec, not StatusRuleSpec"):
        check_standard(RULES[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (lambda self, output: OutputVerdict(Status.PASS), "lets unlike arrays pass"),
        (lambda self, output: OutputVerdict(Status.ERROR), "fails equal plain"),
        (lambda self, output: OutputVerdict(Status.SKIP, {"mine": 1}), "measures mine, which no column shows"),
        (lambda self, output: OutputVerdict(Status.SKIP, {}, "text"), "tuple of messages"),
        (lambda self, output: OutputVerdict("pass"), "no Status"),
        (lambda self, output: None, "judge must return Judged, not NoneType"),
        (lambda self, output: OutputVerdict(output.missing), "raised AttributeError"),
    ],
)  # fmt: skip
def test_broken_status_rules(judge: Callable[..., Any], says: str) -> None:
    spec = StatusRuleSpec("mine", "a rule", type("Rule", (), {"judge": judge}))
    with pytest.raises(AssertionError) as caught:
        check_status_rule(spec)
    assert str(caught.value).startswith('The status rule "mine"') and says in str(caught.value)


def test_a_rule_with_a_second_verdict_that_is_broken() -> None:
    (base,) = (spec.make() for spec in RULES if spec.name == "mint_stage")
    members = {"judge": lambda self, output: base.judge(output), "judge_alone": lambda self, *rest: "pass"}
    spec = StatusRuleSpec("mine", "a rule", type("Rule", (), members))
    with pytest.raises(AssertionError, match="judge must return Judged, not str"):
        check_status_rule(spec)


CALL = Call("Functional.good.0", 0, {})


def runner(**members: Any) -> RunnerSpec:
    made = type("Broken", (standin_precheck.Runner,), members)
    return RunnerSpec("mine", "a runner", made, "standin")


def outcome(bench: Any, device: Any) -> Callable[..., Outcome]:
    return lambda self, call: Outcome(Outputs(bench, device))


def test_a_runner_without_fault(tmp_path: Path) -> None:
    check_runner(runner(run=known), RunnerOptions(tmp_path, error_directory=tmp_path), [CALL])


def known(self: Any, call: Call) -> Outcome:
    if call.api not in self.apis():
        raise LookupError(call.api)
    return standin_precheck.Runner.run(self, call)


def random(self: Any, call: Call) -> Outcome:
    drawn = np.random.default_rng().random(3)
    return Outcome(Outputs(Array(drawn, "d"), Array(drawn, "d")))


ONES = Array(np.ones(3, np.float32), "mine.float32")


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({}, "runs Functional.no_such_api.0, which is not an API"),
        ({"run": lambda self, call: 1 / 0}, "raised ZeroDivisionError: division by zero for Functional.good.0"),
        ({"run": lambda self, call: None}, "run must return an Outcome, not NoneType"),
        ({"run": lambda self, call: Outcome(Skipped("no kernel"))}, "skips the forward of Functional.good.0: no kernel"),
        ({"run": outcome([ONES], [ONES, ONES])}, "different structures"),
        ({"run": outcome(np.ones(3), np.ones(3))}, "a ndarray: tensors are to be Arrays"),
        ({"run": outcome(ONES, Array(ONES.values.astype(np.float64), "d"))}, "in a narrower dtype"),
        ({"run": outcome(Array(np.array(["a"]), "d"), ONES)}, "numpy's own numbers"),
        ({"run": outcome(Array(ONES.values, ""), ONES)}, "must name the dtype"),
        ({"run": random}, "gives other outputs when Functional.good.0 is run again"),
        ({"run": lambda self, call: Outcome(Outputs(ONES, ONES), Outputs(ONES, ONES))},
         "a backward exactly where one was recorded"),
        ({"run": known, "apis": lambda self: ["good"]}, "apis must return a set of names"),
        ({"run": known, "open": lambda self, options: None}, "open must return the name of the device"),
        ({"run": known, "save": lambda self, call, outcome: "nowhere.py"}, "the path of the script it wrote"),
        ({"run": known, "save": lambda self, call, outcome: __file__}, "outside of"),
    ],
)  # fmt: skip
def test_broken_runners(members: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        check_runner(runner(**members), RunnerOptions(tmp_path, error_directory=tmp_path), [CALL])
    assert str(caught.value).startswith('The runner "mine"') and says in str(caught.value)


def test_a_runner_is_checked_with_calls(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="cannot be checked without a call"):
        check_runner(runner(), RunnerOptions(tmp_path), [])
    with pytest.raises(AssertionError, match="must name the framework"):
        check_runner(replace(runner(), framework=""), RunnerOptions(tmp_path), [CALL])
