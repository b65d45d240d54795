"""``TrainerMon``: steps, files, failures, and what it leaves unchanged."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_check import TrainerMon
from probe_check.monitor.csv_file import read_table
from support.runs.monitors import configuration, files, monitoring, network, rows, run_of, train
from torch import nn
from torch.utils.checkpoint import checkpoint

from probe_core.errors import UserError

EVERYTHING: dict[str, Any] = {
    "param_distribution": True, "wg_distribution": True, "mv_distribution": True, "xy_distribution": True,
    "mg_direction": True, "monitor_mbs_grad": True, "recording_l2_features": True,
    "l2_targets": {"linear_hook": []}, "ops": ["norm", "min", "max", "mean", "zeros", "nans"],
    "alert": {"rules": [{"rule_name": "AnomalyNan"}], "dump": True},
}  # fmt: skip


class Shared(nn.Module):
    """A model whose gradients are sums of many parts, in an order that hooks must not change."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Dropout(0.3))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + self.query(x) * self.key(x).sigmoid() + self.value(x) + self.inner(x) * 0.3
            x = self.norm(x)
            x += 0.1
        return x


def states(output: Path | None, config: dict[str, Any]) -> list[bytes]:
    """Train, and return the bytes of parameters, optimizer states and random states."""
    torch.manual_seed(0)
    model = Shared()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run() -> None:
        for _ in range(3):
            for _ in range(2):
                model(torch.randn(5, 8)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    if output is None:
        run()
    else:
        with monitoring(output, model, optimizer, grad_acc_steps=2, **config):
            run()
    tensors = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
    return [t.detach().numpy().tobytes() for t in tensors] + [torch.get_rng_state().numpy().tobytes()]


def test_a_monitored_training_has_the_same_bits(tmp_path: Path) -> None:
    assert states(tmp_path / "run", EVERYTHING) == states(None, {})
    assert {file.name.rpartition("_")[0] for file in run_of(tmp_path / "run").iterdir()} == {
        "actv", "actv_grad", "exp_avg", "exp_avg_sq", "grad_reduced", "grad_unreduced", "linear_hook", "other",
        "param_origin", "param_updated",
    }  # fmt: skip


def test_gradients_of_inputs_are_the_parts_of_their_module(tmp_path: Path) -> None:
    model = Shared()
    inputs = torch.randn(5, 8, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with monitoring(tmp_path / "run", model, optimizer, xy_distribution=True, ndigits=12):
        model(inputs).sum().backward()
        optimizer.step()
    assert inputs.grad is not None
    found = {row["name"]: float(row["norm"]) for row in rows(tmp_path / "run", "actv_grad_0-0.csv")}
    assert found[".input"] == pytest.approx(float(inputs.grad.norm()), rel=1e-6)
    last = found["query.output"]  # the second call of the step, as each module is called twice
    assert found["query.input"] == pytest.approx(last, rel=10)


def test_steps_are_selected_by_start_interval_and_count(tmp_path: Path) -> None:
    train(tmp_path / "a", steps=9, param_distribution=True, start_step=2, step_interval=3, collect_times=2)
    assert files(tmp_path / "a", "param_origin") == ["param_origin_2-2.csv", "param_origin_5-5.csv"]
    train(tmp_path / "b", steps=3, param_distribution=True, start_iteration=7)
    assert files(tmp_path / "b", "param_updated") == [f"param_updated_{n}-{n}.csv" for n in (7, 8, 9)]
    train(tmp_path / "c", steps=2, param_distribution=True, collect_times=0)
    assert not list((tmp_path).glob("c/*"))


def test_a_rank_that_is_not_selected_writes_nothing(tmp_path: Path) -> None:
    train(tmp_path / "run", param_distribution=True, module_ranks=[1])
    assert not (tmp_path / "run").exists()


def test_targets_select_parameters_and_modules(tmp_path: Path) -> None:
    train(
        tmp_path / "run",
        targets={"2": {"input": "tensor"}, "0:4.bias": {}},
        wg_distribution=True,
        xy_distribution=True,
    )
    names = {row["name"] for row in rows(tmp_path / "run", "grad_reduced_0-0.csv")}
    assert names == {"2.weight", "2.bias", "4.bias"}
    assert {row["name"] for row in rows(tmp_path / "run", "actv_0-0.csv")} == {"2.input"}


def test_recomputed_forwards_and_evaluation_are_not_observed(tmp_path: Path) -> None:
    for use_reentrant in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        output = tmp_path / str(use_reentrant)
        with monitoring(output, model, optimizer, grad_acc_steps=2, xy_distribution=True, forward_only=True):
            inputs = torch.randn(3, 4, requires_grad=True)
            checkpoint(model, inputs, use_reentrant=use_reentrant).sum().backward()
            model.eval()(inputs)
            model.train()
            optimizer.step()
        found = rows(output, "actv_0-0.csv")
        assert {row["micro_step"] for row in found} == {"0"} and len(found) == 12


def test_the_api_format_returns_figures_and_writes_nothing(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fields = {"format": "api", "wg_distribution": True, "xy_distribution": True}
    with monitoring(tmp_path / "run", model, optimizer, **fields) as monitor:
        model(torch.ones(1, 4)).sum().backward()
        reduced, unreduced = monitor.generate_wgrad_metrics()
        forward, backward = monitor.generate_xy_metrics()
        optimizer.step()
        assert monitor.generate_xy_metrics() == ({}, {})
    gradient = model[4].bias.grad
    assert gradient is not None
    for found in (reduced["0:4.bias/rank0/post_grad"], unreduced["0:4.bias/rank0/acc_grad"]):
        assert found.pop("norm") == pytest.approx(float(gradient.norm()))
        assert found == {"shape": [2], "dtype": "torch.float32"}
    assert "0:0.input:0/rank0/actv" in forward and "0:4.output:0/rank0/actv_grad" in backward
    assert not (tmp_path / "run").exists()


def test_print_struct_writes_the_structure_and_ends_the_program(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        train(tmp_path / "run", print_struct=True)
    assert ended.value.code == 0
    structure = json.loads((tmp_path / "run" / "module_struct" / "rank0" / "module_struct.json").read_text())
    assert structure["0:0"]["input"] == {"config": "tuple[1]", "0": "size=(16, 4), dtype=torch.float32"}
    assert structure["0:0"]["output"] == {
        "config": "tensor",
        "tensor": "size=(16, 8), dtype=torch.float32",
    }
    assert structure["0:2"]["output_grad"]["0"] == "size=(16, 8), dtype=torch.float32"


def test_stack_info_names_the_line_that_calls_each_module(tmp_path: Path) -> None:
    train(tmp_path / "run", stack_info=True, param_distribution=True)
    found = {row["module_name"]: row["stack_info"] for row in rows(tmp_path / "run", "stack_info.csv")}
    assert found.keys() == {"0:", *(f"0:{n}" for n in range(5))}
    assert "monitors.py" in found["0:"] and "probe_check" not in found["0:"]


def test_a_module_with_hooks_can_be_copied_and_pickled(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with monitoring(tmp_path / "run", model, optimizer, xy_distribution=True, wg_distribution=True):
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        for each in copies:
            assert torch.equal(each(torch.ones(1, 4)), model(torch.ones(1, 4)))
        optimizer.step()
    assert len(rows(tmp_path / "run", "actv_0-0.csv")) == 12


def test_hooks_are_removed_at_the_end(tmp_path: Path) -> None:
    model = network()
    with monitoring(tmp_path / "run", model, torch.optim.Adam(model.parameters()), **EVERYTHING, stack_info=True):
        assert model[0]._forward_hooks
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())


def test_the_optimizer_is_restored_at_the_end(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    alert = {"rules": [{"rule_name": "AnomalyNan"}], "record_steps": 1}
    with monitoring(tmp_path / "run", model, optimizer, wg_distribution=True, alert=alert):
        assert "step" in vars(optimizer) and optimizer._optimizer_step_pre_hooks
    assert "step" not in vars(optimizer)
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


# -- switching on and off ------------------------------------------------------------------------


def test_a_dynamic_monitor_follows_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    config = tmp_path / "run.json"
    clock = iter(range(1_000_000_000, 2_000_000_000, 10))

    def change(_: nn.Module, step: int) -> None:
        if step == 2:
            configuration(config, param_distribution=True, dynamic_on=True, collect_times=2)
        elif step == 5:
            config.write_text("{")
        elif step == 6:
            configuration(config, wg_distribution=True, dynamic_on=True, collect_times=1)
        if step in (2, 5, 6):
            time = next(clock)
            os.utime(config, (time, time))

    train(tmp_path / "run", change, steps=10, param_distribution=True)
    assert files(tmp_path / "run", "param_origin") == ["param_origin_3-3.csv", "param_origin_4-4.csv"]
    assert files(tmp_path / "run", "grad_reduced") == ["grad_reduced_7-7.csv"]
    assert json.loads(config.read_text())["dynamic_on"] is False


# -- errors ----------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = TrainerMon(configuration(tmp_path / "c.json", wg_distribution=True))
    for arguments in ((3, 1, optimizer), (model, 0, optimizer), (model, "1", optimizer), ([], 1, optimizer)):
        with pytest.raises(UserError):
            monitor.set_monitor(*arguments)
    with pytest.raises(UserError):
        monitor.set_monitor(model, 1, optimizer, start_iteration=-1)
    with pytest.raises(UserError):
        monitor.set_monitor(model, 1, object())
    assert monitor.generate_wgrad_metrics() == ({}, {})


def test_optimizers_that_hold_flat_partitions_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "run"))

    class DeepSpeedZeroOptimizer:
        def step(self) -> None: ...

    for field in ("wg_distribution", "mv_distribution", "mg_direction"):
        monitor = TrainerMon(configuration(tmp_path / "c.json", **{field: True}))
        with pytest.raises(UserError, match="DeepSpeedZeroOptimizer"):
            monitor.set_monitor(network(), 1, DeepSpeedZeroOptimizer())
    assert not (tmp_path / "run").exists()


def test_an_output_that_cannot_be_created_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "file"))
    monitor = TrainerMon(configuration(tmp_path / "c.json", wg_distribution=True))
    model = network()
    with pytest.raises(UserError):
        monitor.set_monitor(model, 1, torch.optim.SGD(model.parameters(), lr=0.1))
    assert not model[0].weight._post_accumulate_grad_hooks


def test_tensorboard_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match="tensorboard"):
        train(tmp_path / "run", format="tensorboard")


def test_a_failure_ends_the_monitoring_and_not_the_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def fault(_: nn.Module, step: int) -> None:
        if step == 1:
            run_of(tmp_path / "run").rename(tmp_path / "moved")

    model = train(tmp_path / "run", fault, wg_distribution=True)
    error = capfd.readouterr().err
    assert error.count("the monitoring ends in step 1") == 1 and "Traceback" not in error
    assert not model[0]._forward_hooks


def test_an_error_in_a_hook_ends_the_monitoring_and_not_the_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    for name in ("values.measure", "features.compute_linear_features"):
        monkeypatch.setattr(f"probe_check.monitor.pytorch.{name}", broken)
    model = train(tmp_path / "run", **EVERYTHING, stack_info=True)
    plain = network()
    assert capfd.readouterr().err.count("the monitoring ends in step 0: RuntimeError: broken.") == 1
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not torch.equal(model[0].weight, plain[0].weight)


# -- optimizers ------------------------------------------------------------------------------------


def test_wrapped_optimizers_and_main_gradients_are_observed(tmp_path: Path) -> None:
    class Wrapper:
        """An optimizer in the form of Megatron's, with float32 copies of half parameters."""

        def __init__(self, model: nn.Module) -> None:
            self.parameters = list(model.parameters())
            copies = [parameter.detach().float() for parameter in self.parameters]
            self.float16_groups, self.fp32_from_float16_groups = [self.parameters], [copies]
            self.optimizer = torch.optim.Adam(copies)

        def step(self) -> None:
            for parameter, copied in zip(self.parameters, self.fp32_from_float16_groups[0]):
                copied.grad = parameter.main_grad  # type: ignore[attr-defined]
            self.optimizer.step()

    model = nn.Linear(3, 2).bfloat16()
    for parameter in model.parameters():
        parameter.main_grad = torch.full_like(parameter, 2.0, dtype=torch.float32)  # type: ignore[attr-defined]
    optimizer = Wrapper(model)
    with monitoring(tmp_path / "run", model, optimizer, wg_distribution=True, mv_distribution=True):
        for _ in range(2):
            model(torch.ones(1, 3).bfloat16()).sum().backward()
            optimizer.step()
    (first,) = [r for r in rows(tmp_path / "run", "grad_reduced_0-0.csv") if r["name"] == "bias"]
    assert (float(first["norm"]), first["dtype"]) == (2.828427, "torch.float32")
    assert {row["name"] for row in rows(tmp_path / "run", "grad_unreduced_0-0.csv")} == {"weight", "bias"}
    assert {row["name"] for row in rows(tmp_path / "run", "exp_avg_1-1.csv")} == {"weight", "bias"}


def test_arguments_may_have_the_order_of_the_code_of_msprobe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "run"))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = TrainerMon(configuration(tmp_path / "c.json", param_distribution=True))
    monitor.set_monitor(model, optimizer, 1)  # type: ignore[arg-type]
    optimizer.step()
    monitor.close()
    assert files(tmp_path / "run", "param_origin") == ["param_origin_0-0.csv"]


def test_output_is_appended_to_the_directory_of_an_earlier_run(tmp_path: Path) -> None:
    train(tmp_path / "run", wg_distribution=True, step_count_per_record=10)
    time = run_of(tmp_path / "run").name.partition("-rank")[0]
    with (run_of(tmp_path / "run") / "grad_reduced_0-9.csv").open("a") as file:
        file.write("0,2.we")  # as a killed process may leave it
    fields = {"append_output": [time, time], "wg_distribution": True, "step_count_per_record": 10}
    train(tmp_path / "run", start_iteration=3, **fields)
    found = rows(tmp_path / "run", "grad_reduced_0-9.csv")
    assert [row["step"] for row in found] == [str(step) for step in range(6) for _ in range(6)]


KILLED = """
import os, sys
os.environ["MONITOR_OUTPUT_DIR"] = sys.argv[1]
import torch
from torch import nn
from probe_check import TrainerMon
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
TrainerMon(sys.argv[2]).set_monitor(model, 1, optimizer)
step = 0
while True:
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    step += 1
    if step == 20:
        print("ready", flush=True)
"""


@pytest.mark.parametrize("steps_per_file", [1, 1000])
def test_a_killed_training_leaves_readable_files(tmp_path: Path, steps_per_file: int) -> None:
    config = configuration(tmp_path / "c.json", wg_distribution=True, step_count_per_record=steps_per_file)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "run"), str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    written = list(run_of(tmp_path / "run").glob("grad_reduced_*.csv"))
    found = [row for file in written for row in read_table(file).rows]
    assert len(found) >= 2 * 20 and all(len(row) == 6 and row[2].isdigit() for row in found)
