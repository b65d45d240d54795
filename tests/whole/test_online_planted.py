"""Faults of operators as they happen are found while the training runs: the faults of ``planted_errors``, sent.

Rank 0 sends what torch computes, rank 1 the results of the implementations with a fault, for the same calls. The
dtypes are the steps. Faults that show in the gradient alone are not sent, for only forward calls are.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from probe_pytorch.precheck.apis import find_function
from probe_pytorch.precheck.raising import iterate_tensors
from support.faults.planted_errors import ALL, ASSIGNED, FAULTS, OPERATORS, Draw, Fault, Given
from support.runs.receiving import Client, receiver, result_rows, send_over
from support.runs.recording import recording
from support.runs.sent import call_frames

TWO_PARTY = ("absolute_threshold", "binary_consistency", "dual_thousandth")
UNSENT = ("Functional.batch_norm", "updates the running variance without the correction")
"""The fault in what is not sent: the running statistics."""
ALLOWED = ("Tensor.__mul__", "is one ulp too large", "float16")
"""The fault that is within the limit of its standard, 1e-3, if both sides are rounded; and found by a reference."""
LISTED = [(standard, fault) for standard, faults in FAULTS.items() for fault in faults]


class Planted(NamedTuple):
    """A call with a fault: its place, and the standard that judges it."""

    step: int
    name: str
    fault: Fault
    standard: str


def record(directory: Path, dtype: str, wrong: bool) -> tuple[Path, list[Planted]]:
    """Record one call for each fault of a dtype; with the fault's output in place of its own if ``wrong``."""
    made, outputs = [], {}
    counts: Counter[str] = Counter()
    with recording(directory, task="tensor", level="L1", store="files", tensor={"data_mode": ["forward"]}) as found:
        for seed, (standard, fault) in enumerate(LISTED):
            if dtype not in fault.dtypes or fault.seen != "forward":
                continue
            scope, _, api = fault.api.partition(".")
            arguments = fault.inputs(Draw(dtype, seed))
            function = OPERATORS.get(fault.api) or find_function(scope, api)
            found.start()
            function(*arguments.positional, **arguments.keywords)
            found.stop()
            name = f"{fault.api}.{counts[fault.api]}"
            counts[fault.api] += 1
            again = fault.inputs(Draw(dtype, seed))
            outputs[name] = list(iterate_tensors(computed(fault, again)))
            made.append(Planted(ALL.index(dtype), name, fault, standard))
        found.step()
    dump = found.directory() / "dump.json"
    if wrong:
        put(dump, outputs)
    return dump, made


def computed(fault: Fault, given: Given) -> Any:
    """Call the implementation with a fault."""
    positional, keywords = given
    if fault.api == "Functional.batch_norm":  # takes all behind the tensors by their names
        names = inspect.signature(torch.nn.functional.batch_norm).parameters
        keywords = {**dict(zip([*names][3:], positional[3:])), **keywords}
        positional = positional[:3]
    return fault.wrong(*positional, **keywords)


def put(dump: Path, outputs: dict[str, list[torch.Tensor]]) -> None:
    """Write other tensors as the outputs of recorded calls."""
    records = json.loads(dump.read_text())["data"]
    for name, tensors in outputs.items():
        leaves = records[f"{name}.forward"]["output"]
        assert len(leaves) == len(tensors), name
        for leaf, tensor in zip(leaves, tensors):
            path = dump.parent / "dump_tensor_data" / leaf["data_name"]
            before = torch.load(path)
            assert before.shape == tensor.shape and before.dtype == tensor.dtype, name
            torch.save(tensor.detach().clone(), path)


class Found(NamedTuple):
    """The rows of both ranks by step and call, and the first line."""

    rows: tuple[dict[tuple[int, str], dict[str, str]], ...]
    planted: list[Planted]
    first: str


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    home = tmp_path_factory.mktemp("planted")
    planted: list[Planted] = []
    frames: dict[int, list[bytes]] = {0: [], 1: []}
    for step, dtype in enumerate(ALL):
        for rank in (0, 1):
            dump, made = record(home / f"{dtype}{rank}", dtype, wrong=rank == 1)
            frames[rank] += call_frames(dump, step=step, rank=rank, first=len(frames[rank]))
        planted += made
    with receiver("--listen", "127.0.0.1:0", "--lang", "en", "-o", home / "out") as end:
        clients = {rank: Client(end.address, rank) for rank in (1, 0)}  # or it ends after the first
        for rank, client in clients.items():
            send_over(client, frames[rank])
        code, printed = end.end()
    assert code == 0, end.said
    rows: tuple[dict[tuple[int, str], dict[str, str]], ...] = ({}, {})
    for name, table in result_rows(home / "out").items():
        if "_result_" in name:
            for row in table:
                key = int(row["Step"]), row.get("API name") or row["API Name"]
                rows[int(name[-5])][key] = {**row, "file": name}
    yield Found(rows, planted, printed.splitlines()[0])


def test_what_is_right_is_no_error(found: Found) -> None:
    assert len(found.rows[0]) == len(found.planted) > 60
    wrong = {name: row for name, row in found.rows[0].items() if row["Forward Test Success"] != "pass"}
    assert not wrong


def test_every_fault_in_what_is_sent_is_an_error_by_its_standard(found: Found) -> None:
    seen, missed = set(), set()
    for one in found.planted:
        row = found.rows[1][one.step, one.name]
        is_error = row["Forward Test Success"] == "error"
        api = one.fault.api.partition(".")[2]
        is_listed = any(api in ASSIGNED[standard].split() for standard in TWO_PARTY)
        assert row["file"].startswith("accuracy" if is_listed else "api_precision")
        assert bool(row["Message"].strip()) >= is_error
        fault = one.fault.api, one.fault.name
        if is_error:
            seen.add(fault)
        else:
            missed.add(fault if fault == UNSENT else (*fault, ALL[one.step]))
    assert missed == {UNSENT, ALLOWED}
    assert len(seen) >= 40
    assert {one.standard for one in found.planted if (one.fault.api, one.fault.name) in seen} == FAULTS.keys()


def test_the_first_line_names_the_first_of_them(found: Found) -> None:
    errors = sum(row["Forward Test Success"] == "error" for row in found.rows[1].values())
    first = found.planted[0]
    assert found.rows[1][first.step, first.name]["Forward Test Success"] == "error"
    assert found.first == (
        f"probe: rank 1, step 0: {first.name} is the first of {errors} calls in error; "
        f"{2 * len(found.planted)} calls were judged"
    )
