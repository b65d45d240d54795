"""The example of the page on the monitor, run as it stands."""

from __future__ import annotations

import atexit
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_check.monitor.alert_settings import ALERT_FIELDS, RuleName
from probe_check.monitor.settings import COMMUNICATION_FIELDS, FIELDS, MonitorSettings, parse_settings
from probe_check.monitor.tasks import OPERATIONS, Task
from probe_check.monitor.verdict import FindingKind
from probe_pytorch import PrecisionDebugger
from test_pages import ROOT, blocks
from torch import nn

PAGE = ROOT / "docs" / "monitor.md"
STEPS, FAULTY_STEP = 75, 70


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the script of the page, with a gradient that explodes in a step."""
    directory = tmp_path_factory.mktemp("page")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    calls = iter(range(STEPS))
    model[2].weight.register_hook(lambda gradient: gradient * 1e4 if next(calls) == FAULTY_STEP else gradient)
    names: dict[str, Any] = {
        "model": model,
        "batches": [(torch.randn(6, 8), torch.randn(6, 4)) for _ in range(STEPS)],
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
        "loss_function": nn.functional.mse_loss,
    }
    PrecisionDebugger._instance = None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.delenv("MONITOR_OUTPUT_DIR", raising=False)
        Path("monitor_config.json").write_text(blocks(PAGE, "json")[0])
        exec(blocks(PAGE, "python")[0], names)
        atexit.unregister(names["monitor"].close)
        names["monitor"].close()
    PrecisionDebugger._instance = None
    return directory


def test_the_example_names_the_step_and_the_parameter(
    training: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(training)
    (command,) = blocks(PAGE, "bash")
    assert probe(*shlex.split(command)[1:]) == 0, probe.err
    shown = PAGE.read_text("utf-8").partition("```\nSUSPICIOUS:")[2].partition("\n")[0]
    first, *others = probe.out.splitlines()
    assert first.partition(": norm is")[0] == f"SUSPICIOUS:{shown}".partition(": norm is")[0]
    assert "In later steps: 2 other values." in others[1]
    text = PAGE.read_text("utf-8")
    answer = json.loads(Path("out/monitor_answer.json").read_text("utf-8"))
    for name in (*answer, *answer["finding"]):
        assert name == "schema" or f"`{name}`" in text, name


def test_the_alert_of_the_example_writes_an_event_and_records_the_next_step(
    training: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(training)
    assert len(list(Path("monitor_output").glob(f"*/recording/step{FAULTY_STEP + 1}/rank/dump.json"))) == 1
    assert probe("monitor-alerts", "-d", "monitor_output/anomaly_detected") == 0
    assert "0: Rule AnomalyTurbulence reports anomaly signal in ('0:2.weight/rank0/acc_grad'" in probe.out


def test_the_conversion_of_the_page_writes_a_database(training: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(training)
    exec(blocks(PAGE, "python")[1], {})
    assert Path("database/monitor_metrics.db").stat().st_size


def test_fields_tasks_and_rules_are_those_of_the_code() -> None:
    text = PAGE.read_text("utf-8")
    names = [*FIELDS, *COMMUNICATION_FIELDS, *ALERT_FIELDS, *OPERATIONS]
    names += [each.value for kind in (Task, RuleName, FindingKind) for each in kind]
    assert [name for name in names if f"`{name}`" not in text] == []
    settings = parse_settings({})
    assert settings == MonitorSettings()
    for value in (settings.epsilon, settings.digits, settings.collect_times, settings.steps_per_file):
        assert f"`{value:g}`" in text.replace("1e-8", "1e-08") or f"`{value}`" in text
