"""Alerts: their rules, the file of events, the earliest events, and the recording of the next steps."""

from __future__ import annotations

import atexit
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_check.monitor.alert_settings import RuleName, RuleSettings
from probe_check.monitor.alerts import AlertScanner
from probe_check.monitor.events import AlertEvent, EventFile, read_events, write_events
from probe_check.monitor.figures import Figures, create_empty_figures
from probe_check.monitor.tasks import Task
from probe_pytorch import PrecisionDebugger
from support.runs.monitors import run_of, train
from torch import nn

TURBULENCE = RuleSettings(RuleName.TURBULENCE, 0.5)
NOT_A_NUMBER = RuleSettings(RuleName.NAN)


def fired(rules: list[RuleSettings], values: list[float], operation: str = "norm") -> list[tuple[int, str]]:
    scanner = AlertScanner(rules)
    steps = [
        scanner.scan(Figures(Task.GRADIENT_REDUCED, 0, "w", None, (v,), (1,), "f"), [operation], step, 0)
        for step, v in enumerate(values)
    ]
    return [(alert.step, alert.rule.value) for alerts in steps for alert in alerts]


def test_turbulence_compares_with_the_mean_of_the_values_before() -> None:
    assert fired([TURBULENCE], [1.0, 1.5, -1.6, 1.0]) == [(2, "AnomalyTurbulence")]
    assert fired([TURBULENCE], [100.0, 0.0, 0.0]) == []  # only upward
    assert fired([TURBULENCE], [1.0, 9.0], "max") == []  # only norm and mean
    mean = 0.99 * 1.0 + 0.01 * 9.0
    assert fired([TURBULENCE], [1.0, 9.0, mean * 1.5, mean * 1.52]) == [
        (1, "AnomalyTurbulence"),
        (3, "AnomalyTurbulence"),
    ]


def test_a_nan_fires_and_does_not_end_turbulence() -> None:
    rules = [TURBULENCE, NOT_A_NUMBER]
    assert fired(rules, [1.0, math.nan, 2.0]) == [(1, "AnomalyNan"), (2, "AnomalyTurbulence")]
    assert fired([NOT_A_NUMBER], [math.inf, -1e30]) == []
    assert fired([RuleSettings(RuleName.NAN, 10.0)], [10.0, -10.5, math.inf]) == [
        (1, "AnomalyNan"),
        (2, "AnomalyNan"),
    ]


def test_the_first_rule_that_fires_names_the_event() -> None:
    limit = RuleSettings(RuleName.NAN, 10.0)
    assert fired([limit, TURBULENCE], [1.0, 20.0]) == [(1, "AnomalyNan")]
    assert fired([TURBULENCE, limit], [1.0, 20.0]) == [(1, "AnomalyTurbulence")]


def test_values_that_are_no_tensors_cause_no_alert() -> None:
    scanner = AlertScanner([NOT_A_NUMBER])
    assert scanner.scan(create_empty_figures(Task.ACTIVATION, 0, "x.input", 0, 1), ["norm"], 0, 0) == []


def event(tag: str, step: int = 0, micro_step: int = 0, pp: int = 0, vpp: int = 0, call: int = 0) -> AlertEvent:
    return AlertEvent(0, step, micro_step, pp, vpp, call, f"{vpp}:w/rank0/{tag}", "m")


def test_events_are_sorted_by_step_stage_and_pipeline(tmp_path: Path) -> None:
    expected = [
        event("param_origin", call=9),  # of no known part of the step
        event("actv", pp=0, call=5),
        event("actv", pp=1, call=1),
        event("actv_grad", pp=1),
        event("post_grad", pp=0, call=1),
        event("acc_grad", pp=0, call=2),
        event("exp_avg_sq", call=1),
        event("actv", micro_step=1),
        event("actv", step=1),
    ]
    write_to = tmp_path / "rank0"
    write_to.mkdir()
    write_events(write_to / "anomaly.json", reversed(expected))
    assert read_events(tmp_path) == expected
    assert read_events(tmp_path, [1]) == expected[-1:]


def test_the_command_writes_the_earliest_events(tmp_path: Path, probe: Any) -> None:
    for rank in (0, 3):
        EventFile(tmp_path, rank).add([event("actv", step=step, call=rank) for step in range(6)])
    assert probe("monitor-alerts", "-d", tmp_path, "-k", 3, "-s", "[1, 2]") == 0, probe.err
    written = json.loads((tmp_path / "anomaly_analyse.json").read_text("utf-8"))
    assert [(value["step"], value["call_id"]) for value in written.values()] == [(1, 0), (1, 3), (2, 0)]
    assert probe("anomaly-processor", "--data_path", tmp_path, "-o", tmp_path / "out") == 0
    assert len(json.loads((tmp_path / "out" / "anomaly_analyse.json").read_text("utf-8"))) == 8


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a": 1}', '{"a": {"rank": "x"}}', '{"a": {"rank": 1e400, "step": null}}']
)
def test_damaged_events_are_refused(content: str, tmp_path: Path, probe: Any) -> None:
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / "anomaly.json").write_text(content)
    assert probe("monitor-alerts", "-d", tmp_path) == 2
    assert probe("monitor-alerts", "-d", tmp_path / "none") == 2


def test_the_file_of_events_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe_check.monitor.events.MAX_EVENTS", 3)
    file = EventFile(tmp_path, 0)
    file.add([event("actv", step=step) for step in range(5)])
    assert file.is_full and [e.step for e in read_events(tmp_path)] == [0, 1, 2]


# -- recording -------------------------------------------------------------------------------------


def explode(model: nn.Module, step: int) -> None:
    if step in (2, 5):
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(1e3)


ALERT = {"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 20}}], "record_steps": 2}


@pytest.fixture
def no_debugger() -> Any:
    PrecisionDebugger._instance = None
    yield
    PrecisionDebugger._instance = None


def test_an_alert_records_the_next_steps_once(
    tmp_path: Path, no_debugger: None, capsys: pytest.CaptureFixture[str], probe: Any
) -> None:
    recorded = train(tmp_path / "run", explode, steps=8, wg_distribution=True, alert=ALERT)
    plain = train(tmp_path / "plain", explode, steps=8, wg_distribution=True)
    assert all(map(torch.equal, recorded.parameters(), plain.parameters()))
    recording = run_of(tmp_path / "run") / "recording"
    assert sorted(path.name for path in recording.iterdir() if path.is_dir()) == ["step3", "step4"]
    for step in (3, 4):
        dump = json.loads((recording / f"step{step}" / "rank" / "dump.json").read_text("utf-8"))
        assert {"Functional.linear.2.forward", "Module.4.Linear.backward.0"} <= dump["data"].keys()
    assert capsys.readouterr().err.count("starts the recording of steps 3 to 4") == 1
    steps = [recording / f"step{step}" / "rank" / "dump.json" for step in (3, 4)]
    assert probe("compare", *steps, "-o", tmp_path / "out") == 0, probe.err


def test_a_program_with_a_debugger_is_not_recorded_twice(
    tmp_path: Path, no_debugger: None, capfd: pytest.CaptureFixture[str]
) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "own"), task="statistics")
    atexit.unregister(debugger._recorder.finish)
    train(tmp_path / "run", explode, steps=4, wg_distribution=True, alert=ALERT)
    assert capfd.readouterr().err.count("the steps after the alert are not recorded") == 1
    assert not (run_of(tmp_path / "run") / "recording").exists()
