"""A training that sends its calls through faults, and what must hold in the end whatever they were."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from support.programs import models, training
from support.runs.receiving import result_rows
from support.runs.recording import Recording, recording

NAME, STEPS = "resnet", 3
ENDS_WITHIN = 120.0
"""Seconds in which a training that takes a tenth of one must end, on any machine and under any fault."""
Rows = dict[tuple[str, str], list[dict[str, str]]]


@dataclass(frozen=True)
class Truth:
    """The training without faults.

    Attributes:
        outcome: Its outcome without a recorder.
        rows: The rows of each call, by step and name, that a receiver wrote when nothing was wrong.
    """

    outcome: training.Outcome
    rows: Rows

    @property
    def made(self) -> int:
        """The number of calls."""
        return len(self.rows)

    @property
    def judged(self) -> int:
        """The number of calls with a verdict."""
        verdicts = [rows[0].get("Forward Test Success", "") for rows in self.rows.values()]
        return sum(verdict.strip() != "SKIP" for verdict in verdicts)

    def sentence(self, lost: int = 0) -> str:
        """Return the verdict on the training if ``lost`` of the judged calls are not known."""
        skipped = f"{self.made - self.judged} calls were skipped (reasons in the result file)"
        return f"probe: no call of {self.judged - lost} judged is in error; {skipped}"


@dataclass
class Paced:
    """A recorder around the steps, and something that happens after each of them."""

    inner: Recording
    between: Callable[[int], None]
    steps: int = 0

    def start(self, model: Any) -> None:
        self.inner.start(model)

    def stop(self) -> None:
        self.inner.stop()

    def step(self) -> None:
        self.inner.step()
        self.between(self.steps)
        self.steps += 1


@contextmanager
def one_thread() -> Any:
    """One thread in torch, for sums depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def bare(steps: int = STEPS) -> training.Outcome:
    """The outcome without a recorder."""
    with one_thread():
        return training.run(models.PROGRAMS[NAME], training.VARIANTS["plain"], steps)


def trained(
    path: Path, between: Callable[[int], None] = lambda step: None, steps: int = STEPS, **place: Any
) -> tuple[training.Outcome, dict[str, Any]]:
    """Train while the calls are sent; return the outcome and the sender's summary.

    Args:
        path: The dump path.
        between: Called after each step with its number.
        steps: The number of steps.
        place: Fields of the section ``tensor``.
    """
    section = {"online_run_ut": True, "host": "127.0.0.1", "online_drain": 60, **place}
    with one_thread(), recording(path, task="tensor", level="L1", tensor=section) as found:
        begin = time.monotonic()
        outcome = training.run(models.PROGRAMS[NAME], training.VARIANTS["plain"], steps, Paced(found, between))
        assert time.monotonic() - begin < ENDS_WITHIN
        begin = time.monotonic()
    assert time.monotonic() - begin < section["online_drain"] + 30
    return outcome, json.loads((path / "online_rank0.json").read_text())


def rows_in(*directories: Path, rank: int = 0, session: str = "") -> Rows:
    """Return the rows of each call of a rank without their session, the result first.

    No call has two results. With ``session`` the rows of that session alone are returned.
    """
    found: Rows = {}
    for directory in directories:
        tables = {
            name: [row for row in rows if row["Session"] == session or not session]
            for name, rows in result_rows(directory).items()
            if name.endswith(f"_rank{rank}.csv")
        }
        for rows in tables.values():
            for row in rows:
                assert len(row.pop("Session")) == 32
        results = [row for name, rows in tables.items() if "_result_" in name for row in rows]
        details = [row for name, rows in tables.items() if "_details_" in name for row in rows]
        for row in results:
            key = row["Step"], _name(row)
            assert key not in found, f"{key} was judged twice"
            found[key] = [row]
        for row in details:
            found[row["Step"], _name(row)].append(row)
    return found


def check(
    truth: Truth, outcome: training.Outcome, summary: dict[str, Any], *directories: Path,
    left: int = 0,
) -> dict[str, int]:  # fmt: skip
    """Check what must hold whatever happened; return the calls by what became of them.

    Args:
        truth: The training without faults.
        outcome: The outcome of the training.
        summary: What its sender wrote at the end.
        directories: Those of the receivers.
        left: The number of calls that the receiver's lists leave out.
    """
    assert training.differences(truth.outcome, outcome) == []
    rows = rows_in(*directories)
    wrong = {key: (found, truth.rows[key]) for key, found in rows.items() if found != truth.rows[key]}
    assert not wrong, next(iter(wrong.items()))
    sent = {key: sum(summary[key].values()) for key in ("queued", "acknowledged", "not_acknowledged")
            if key in summary}  # fmt: skip
    dropped: Counter[str] = Counter()
    for reason, by_api in summary["dropped"].items():
        dropped[reason] += sum(by_api.values())
    assert sent["queued"] + dropped.total() == truth.made, (sent, dropped)
    if "acknowledged" in sent:
        assert sent["acknowledged"] + sent["not_acknowledged"] == sent["queued"], sent
        assert sent["acknowledged"] <= len(rows) + left, (sent, len(rows))
    told: Counter[str] = Counter()
    for directory in directories:
        for path in directory.glob("online_*.json"):
            for rank in [one for one in json.loads(path.read_text())["ranks"] if one["rank"] == 0]:
                told["judged"] += rank["judged"]
                told["unknown"] += rank["unknown"]
                told["left_out"] += sum(rank["left_out"].values())
                told["dropped"] += sum(sum(sender["dropped"].values()) for sender in rank["sessions"].values())
    assert told["judged"] == len(rows)
    return {**told, "made": truth.made, "waiting": sent["not_acknowledged"], **{f"dropped: {key}": number for key, number in dropped.items()}}  # fmt: skip


def all_is_known(told: dict[str, int]) -> bool:
    """True if each call was judged once, or counted by the receiver as dropped, left out or unknown."""
    return told["judged"] + told["dropped"] + told["left_out"] + told["unknown"] == told["made"]


def until(condition: Callable[[], object], within: float = 60.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _name(row: dict[str, str]) -> str:
    return (row.get("API name") or row["API Name"]).strip().split(".forward")[0]
