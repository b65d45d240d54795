"""Agreement of one step of runs that hold several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.runs.recorded import forward, tensor, write_run


def test_agreement_of_one_step_names_the_other_steps(probe: Any, tmp_path: Path) -> None:
    for side, largest in (("t", 1.0), ("g", 2.0)):
        write_run(tmp_path / f"my {side}/step0/rank", {"Torch.a.0.forward": forward(tensor())})
        changed = {"Torch.a.0.forward": forward(tensor(Max=largest))}
        write_run(tmp_path / f"my {side}/step1/rank", changed)
    runs = [tmp_path / f"my {side}" for side in "tg"]
    out = tmp_path / "o"
    for given in (
        [run / "step0" for run in runs],
        [run / "step0/rank" for run in runs],
        [*runs, "--step", "0"],
    ):
        assert probe("compare", *given, "-o", out, "--format", "csv") == 0
        assert probe.out.startswith("AGREE: ")
        assert "; only step0 was compared, and both runs also hold step1" in probe.out.splitlines()[0]
        assert f"next: probe compare '{runs[0]}' '{runs[1]}' -o {out}  # compares all steps" in probe.out
    assert probe("compare", *runs, "-o", out, "--format", "csv") == 0
    assert "was compared, and both" not in probe.out and probe.out.startswith("DIVERGED")


def test_agreement_of_runs_of_one_step_names_no_other(probe: Any, tmp_path: Path) -> None:
    for side in "tg":
        write_run(tmp_path / side / "step0/rank", {"Torch.a.0.forward": forward(tensor())})
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "--format", "csv") == 0
    assert "also hold" not in probe.out
