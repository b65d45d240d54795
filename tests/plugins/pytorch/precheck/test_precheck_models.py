"""Whole training programs recorded and checked: what runs, what is skipped and why, what is an error."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.precheck.preparing import list_recorded_dtypes
from probe_pytorch.precheck.raising import iterate_tensors
from probe_pytorch.precheck.rules import rules
from support.programs.models import PROGRAMS
from support.programs.training import VARIANTS, Program, lstm_runs_in_bf16, run
from support.runs.prechecked import ERROR, SKIP, Checked, Prechecked
from support.runs.recording import recording
from support.sampling import sampled

DOCUMENTED = [
    r"in black list or not in white list",  # `to` and the like, whose output is where it lies or nothing
    r"Distributed APIs are not supported",
    r"Max and Min of an input were not recorded",  # torch.func, memory that nothing was written to
    r"complex\d+ is not supported for random inputs",
    r"complex\d+: not supported",
    r"Tensors of layout .* cannot be rebuilt",
    r"No gradient of its outputs was recorded",
    r"None of its outputs has a gradient",
    r"Bench output is None",
    r"function backward result is None",
    r"no elements",
    r"API type Autograd is not supported",  # a function of the script, which the pre-check does not have
]
"""Reasons for which a direction may be skipped, as the tables say them."""

UNDOCUMENTED_SHARE = 0.02

CASES = [
    (program, variant, task)
    for program in PROGRAMS.values()
    for variant in ("plain", "bf16")
    if (program.name, variant) != ("lstm", "bf16") or lstm_runs_in_bf16()
    for task in ("tensor", "statistics")
]

ALWAYS = {program.name: [("plain", "tensor")] for program in PROGRAMS.values() if not program.needs} | {
    "llama": [("plain", "tensor")],
    "bert": [("bf16", "tensor")],
    "gemma2": [("bf16", "statistics")],
    "whisper": [("plain", "statistics")],
}
"""Variants and tasks that always run: all programs written for the tests, and each pair for one of transformers."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recorded(program: Program, variant: str, task: str, path: Path) -> Prechecked:
    """The calls of one training step."""
    if program.needs and importlib.util.find_spec(program.needs) is None:
        pytest.skip(f"{program.needs} is not installed")
    with recording(path, task=task, level="L1", step=[0]) as found:
        run(program, VARIANTS[variant], 1, found)
    return Prechecked(found.directory() / "dump.json")


def checked(calls: Prechecked) -> list[Checked]:
    """All of them, run."""
    return [calls[name] for name in calls.calls]


def undocumented(found: list[Checked]) -> Counter[str]:
    """Count the reasons, other than the documented ones, for skipped directions."""
    counts: Counter[str] = Counter()
    for one in found:
        if SKIP in one.statuses and not any(re.search(reason, one.text) for reason in DOCUMENTED):
            counts[f"{one.call.name.rpartition('.')[0]}: {one.text}"] += 1
    return counts


def other_dtypes(found: list[Checked]) -> list[str]:
    """Calls whose device gave out another floating-point dtype than the recorded run."""
    names = []
    for one in found:
        if hasattr(one.outcome.forward, "device"):
            recorded = [str(dtype).removeprefix("torch.") for dtype in list_recorded_dtypes(one.call)]
            given = [dtype for dtype in one.dtypes() if "float" in dtype]
            if recorded != given[: len(recorded)]:
                names.append(f"{one.call.name}: {given}, not {recorded}")
    return names


def described(value: Any) -> Iterator[dict[str, Any]]:
    """The descriptions of dense tensors with data, depth first."""
    if isinstance(value, dict) and "data_name" in value and "layout" not in value:
        yield value
    elif isinstance(value, (dict, list)) and "type" not in value:
        for item in value.values() if isinstance(value, dict) else value:
            yield from described(item)


def is_what_was_recorded(calls: Prechecked, one: Checked) -> bool:
    """Did the device give out what the run did, forward and backward, as far as that can be told?

    Backward records are those of autograd's nodes: a weight's gradient may be transposed, the order another,
    and after a hook or a second backward pass the values differ; so every gradient is looked for among them.
    """
    kept, api = one.outcome.kept, one.call.api
    if kept is None or one.outcome.is_random or "dropout" in api or api in rules("hf32") or one.outcome.notes:
        return True

    def tensors(fields: Any) -> list[torch.Tensor]:
        return [calls.runner._rebuilder.rebuild_tensor(leaf, "") for leaf in described(fields["output"])]

    given = list(iterate_tensors(kept.device.output))
    if not all(map(near, given, tensors(one.call.forward))):
        return False
    wanted = tensors(one.call.backward) if kept.device_gradients else []
    gradients = [tensor for tensor in kept.device_gradients or [] if tensor is not None]
    if not wanted or len(wanted) != len(gradients):
        return True
    return all(any(near(tensor, other) for tensor in gradients) for other in wanted)


def near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal in dtype and, to float32's rounding, in value, if need be transposed."""
    if one.dtype != other.dtype or one.layout is not torch.strided:
        return False
    ours, theirs = one.detach(), other
    if not theirs.is_complex():
        ours, theirs = ours.double(), theirs.double()
    scale = float(theirs.abs().nan_to_num(0, 0, 0).max()) if theirs.numel() else 0.0
    return any(
        found.shape == theirs.shape and torch.allclose(found, theirs, 1e-5, 1e-5 * scale, equal_nan=True)
        for found in ((ours, ours.T) if ours.ndim == 2 else (ours,))
    )


@pytest.mark.parametrize(
    "program, variant, task",
    sampled(CASES, 0, lambda case: case[0].name in ALWAYS and case[1:] in ALWAYS[case[0].name]),
    ids=lambda value: getattr(value, "name", value),
)
def test_a_training_step_is_checked(program: Program, variant: str, task: str, tmp_path: Path) -> None:
    """Hardly a call is lost, and no exception escapes: what a call raises is its reason, all else fails here."""
    calls = recorded(program, variant, task, tmp_path / "run")
    found = checked(calls)
    lost = undocumented(found)
    assert sum(lost.values()) <= UNDOCUMENTED_SHARE * len(found), lost
    assert any(one.statuses[1] not in (None, SKIP) for one in found), "no backward was run"
    if variant == "plain":
        assert not other_dtypes(found)
        if task == "tensor":
            assert not [(one.call.name, one.text) for one in found if one.result.forward is ERROR]
            assert not [one.call.name for one in found if not is_what_was_recorded(calls, one)]


@pytest.mark.parametrize("name", ["resnet", "mlp_sgd"])
def test_dtypes_under_autocast_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    """Guide 5.2: also where autocast raises a call, such as ``cross_entropy``, to float32."""
    assert not other_dtypes(checked(recorded(PROGRAMS[name], "bf16", "tensor", tmp_path / "run")))
