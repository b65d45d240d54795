"""Programs of older dumps recorded today, and how the tensors of both pair."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from probe_core.model import Kind, Slot
from support.probe import Probe
from support.runs.recording import Recording


def record(directory: Path, model: torch.nn.Module, step: Callable[[], torch.Tensor]) -> Path:
    """Record the forward and the backward pass of a step, with tensors, and return the run."""
    recording = Recording(directory, task="tensor", level="L1", rank=[], step=[])
    recording.start(model)
    step().backward()  # type: ignore[no-untyped-call]
    recording.stop()
    recording.finish()
    run: Path = recording.directory()
    return run


def floating_tensors(today: Path) -> Iterator[tuple[str, str, Slot]]:
    """Yield the call without its phase, the phase, and the slot of each floating tensor with a dimension."""
    from probe_pytorch.reader import PyTorchReader

    for call in PyTorchReader().open(today / "dump.json").records():
        name, _, phase = call.key.rpartition(".")
        for slot in call.slots:
            if slot.value.kind is Kind.TENSOR and "float" in slot.value.dtype and slot.value.shape:
                yield name, phase, slot


def paired(probe: Probe, older: Path, today: Path, out: Path, *way: str) -> dict[str, tuple[str, float]]:
    """Return the name in the older dump and the cosine for each value of today that has a partner."""
    assert probe("compare", older, today, "-o", out, "--format", "csv", *way) == 0, probe.err
    (table,) = out.glob("compare_result_*.csv")
    with table.open(newline="", encoding="utf-8-sig") as lines:
        rows = [row for row in csv.DictReader(lines) if "N/A" not in (row["NPU Name"], row["Bench Name"])]
    return {row["Bench Name"]: (row["NPU Name"], number(row["Cosine"])) for row in rows}


def number(cell: str) -> float:
    """Return the number in a cell; 1.0 for what has none, such as numbers and empty tensors."""
    try:
        return float(cell)
    except ValueError:
        return 1.0
