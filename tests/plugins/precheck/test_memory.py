"""Limits of the memory that calls of a pre-check may use."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from probe_precheck import checking, memory
from probe_precheck.api import Array, Call, Outcome, Outputs, RunnerOptions, Status, Unbuildable
from probe_precheck.memory import get_max_call_bytes, get_max_input_bytes
from probe_precheck.rebuild import check_call_memory
from probe_precheck.supervisor import Job, LostJob, supervise
from support.programs import supervised


def test_limits_are_shares_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "get_machine_bytes", lambda: 1000)
    assert (get_max_input_bytes(), get_max_call_bytes()) == (250, 400)


def test_machine_bytes_is_the_limit_of_the_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    file = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "CGROUP_LIMITS", (str(tmp_path / "absent"), str(file)))
    for text, expected in (("12345678\n", 12345678), ("max\n", physical), (f"{physical * 2}\n", physical)):
        file.write_text(text)
        assert memory.get_machine_bytes() == expected


@pytest.mark.parametrize(
    ("needed", "most", "texts"),
    [(12_800_000_001, 10_100_000_000, ("12.8 GB", "10.1 GB")), (2_000_000, 999, ("2.0 MB", "999 bytes"))],
)
def test_limit_call_names_what_is_needed_and_allowed(needed: int, most: int, texts: tuple[str, str]) -> None:
    check_call_memory(most, most)
    with pytest.raises(Unbuildable) as refused:
        check_call_memory(needed, most)
    expected = "Its inputs and results need {} of memory, and one call may use {}. SKIP."
    assert str(refused.value) == expected.format(*texts)


def test_check_reports_a_judgement_that_runs_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is skipped with a sentence; the process goes on with the next call."""
    import numpy as np

    class Runner:
        def open(self, options: RunnerOptions) -> str:
            return "cpu"

        def run(self, call: Call) -> Outcome:
            value = Array(np.ones(3, np.float32), "torch.float32")
            return Outcome(Outputs(value, value))

    class Rule:
        def judge(self, output: Any) -> Any:
            raise MemoryError

    monkeypatch.setattr(checking, "find_runner_spec", lambda *_: type("Spec", (), {"make": staticmethod(Runner)}))
    monkeypatch.setattr(checking, "create_status_rule", lambda *_: Rule())
    check = checking.CheckSetup("pytorch", RunnerOptions(Path("dump.json")), ("cpu",), "guide")(0)
    result = check(Call("Torch.exp.0", 0, {}))
    assert result.forward is Status.SKIP and not result.lost
    assert [message.chinese for message in result.messages] == ["There is not enough memory to run it. SKIP."]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is set on Linux only")
def test_worker_cannot_allocate_more_than_its_share_of_the_memory() -> None:
    """Nothing is written to the mapped memory, so that the test takes none."""
    small, large = (int(memory.get_machine_bytes() * share) for share in (0.2, 0.7))
    jobs = [Job(number, ("map", size)) for number, size in enumerate((small, large, small))]
    finished = dict(supervise(supervised.plain, jobs, 1, 60.0))
    fits, exceeds, after = (finished[job] for job in jobs)
    assert fits == after == small
    assert isinstance(exceeds, LostJob) and "Cannot allocate memory" in exceeds.reason
