"""A run that is compared with itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.recorded import forward, tensor, write_run

from probe_core.cli.main import run

DATA = {"Torch.a.0.forward": forward(tensor(), output=[tensor()])}
STATEMENT = "the run was compared with itself"


@pytest.mark.parametrize("kind", ["path", "symlink", "hard link"])
def test_answer_states_that_a_run_was_compared_with_itself(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = golden = tmp_path / "target"
    record = write_run(target, DATA)
    if kind != "path":
        golden = tmp_path / "golden"
        golden.mkdir()
        link = golden / "dump.json"
        link.symlink_to(record) if kind == "symlink" else link.hardlink_to(record)
    run(["compare", str(target), str(golden), "-o", str(tmp_path / "out"), "--format", "html"])
    assert STATEMENT in capsys.readouterr().out.splitlines()[0]
    (page,) = (tmp_path / "out").rglob("compare_result*.html")
    assert STATEMENT in page.read_text()


def test_answer_does_not_call_equal_runs_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("target", "golden"):
        write_run(tmp_path / side, DATA)
    run(["compare", str(tmp_path / "target"), str(tmp_path / "golden"), "-o", str(tmp_path / "out")])
    assert STATEMENT not in capsys.readouterr().out
