"""Calls recorded live or written by hand, run on both sides in this process, and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from probe_precheck.assignment import Assignment
from probe_precheck.calls import RecordedCalls
from probe_precheck.checking import create_status_rule, run_call
from probe_precheck.judging import CallJudge
from probe_precheck.model import Array, Call, Outcome, Result, Status
from probe_precheck.runner_options import RunnerOptions
from probe_precheck.settings import Settings
from probe_pytorch.precheck.runner import PyTorchRunner

from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager
from support.runs.recorded import forward, write_run
from support.runs.recording import recording

PASS, WARNING, ERROR, SKIP = Status.PASS, Status.WARNING, Status.ERROR, Status.SKIP


class Checked(NamedTuple):
    """A call, what running it came to, and its rows."""

    call: Call
    outcome: Outcome
    result: Result

    @property
    def statuses(self) -> tuple[Status, Status | None]:
        """Forward and backward."""
        return self.result.forward, self.result.backward

    @property
    def text(self) -> str:
        """All that its details say, in English."""
        messages = [*self.result.messages]
        for detail in self.result.details:
            messages += detail.messages
        return " ".join(dict.fromkeys(message.text("en") for message in messages))

    def arrays(self, side: str = "device", phase: str = "forward") -> list[Any]:
        """The arrays of one side, as numpy holds them."""
        return [getattr(item, "values", item) for item in leaves(getattr(self._outputs(phase), side))]

    def dtypes(self, side: str = "device", phase: str = "forward") -> list[str]:
        """The dtypes of one side's arrays, without the name of torch."""
        return [item.kind for item in leaves(getattr(self._outputs(phase), side)) if isinstance(item, Array)]

    def _outputs(self, phase: str) -> Any:
        outputs = getattr(self.outcome, phase)
        assert hasattr(outputs, "bench"), outputs
        return outputs


def leaves(value: Any) -> Iterator[Any]:
    """Yield the items of lists and dicts, depth first."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


@cache
def judge() -> CallJudge:
    """The judge of PyTorch's calls, by the guide's thresholds."""
    manager = Manager()
    return CallJudge(create_status_rule(manager, "pytorch"), Assignment(manager, "seed"))


class Prechecked:
    """The calls of a run, each run when it is asked for by its name without direction.

    Args:
        dump: The run's ``dump.json``.
        runner: Another runner than the usual one.
        options: Further ``RunnerOptions``.
    """

    def __init__(self, dump: Path, runner: PyTorchRunner | None = None, **options: Any) -> None:
        self.runner = runner or PyTorchRunner()
        self.runner.open(RunnerOptions(dump, **{"device": "cpu", **options}))
        run = open_run(Manager(), dump)
        calls = RecordedCalls(run)
        self.calls = {name: calls.get_call(i, Settings()) for i, name in enumerate(calls.names)}
        run.close()

    def __getitem__(self, name: str) -> Checked:
        call = self.calls[name]
        outcome = run_call(self.runner, call)
        return Checked(call, outcome, judge().judge_call(call, outcome))

    def save(self, checked: Checked) -> Path:
        """Save the data of a call; the path of its script."""
        return Path(self.runner.save(checked.call, checked.outcome))


def record(path: Path, program: Callable[[], object], task: str = "tensor") -> Path:
    """Record what a program calls; the path of the run's ``dump.json``."""
    with recording(path, task=task, level="L1") as found:
        found.start()
        program()
        found.stop()
    return found.directory() / "dump.json"


def live(path: Path, program: Callable[[], object], task: str = "tensor", **options: Any) -> Prechecked:
    """Record what a program calls, to be run again."""
    return Prechecked(record(path, program, task), **options)


def written(path: Path, data: Mapping[str, Any], **options: Any) -> Prechecked:
    """Calls from records that were written by hand, tensors beside them if there are any."""
    return Prechecked(write_run(path, dict(data)), **options)


def call(name: str, *arguments: Any, backward: Any = None, **keywords: Any) -> Call:
    """A call that was recorded with these descriptions."""
    return Call(name, 0, forward(*arguments, **keywords), backward)


def leaf(tensor: torch.Tensor, **fields: Any) -> dict[str, Any]:
    """The description of a tensor in a statistics dump."""
    has_values = tensor.numel() and not tensor.is_complex()
    wide = tensor.double() if tensor.is_floating_point() else tensor
    return {
        "type": "torch.Tensor",
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "Max": wide.max().item() if has_values else None,
        "Min": wide.min().item() if has_values else None,
        "requires_grad": tensor.requires_grad,
        **fields,
    }


def value(item: Any) -> dict[str, Any]:
    """The description of a plain value."""
    return {"type": type(item).__name__, "value": item}
