"""Both runs of a comparison stay open only if they can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probe_core.errors import UserError
from probe_core.flow import opening
from probe_core.flow.opening import open_runs
from probe_core.model import Mode
from probe_core.model.plan import Plan
from probe_core.model.run import Header
from probe_core.plugins.manager import Manager


class Opened:
    def __init__(self, path: Path, mode: Mode = Mode.TENSOR, is_debug: bool = False, count: int = 1) -> None:
        self.path, self.mode, self.is_debug, self.starts = path, mode, is_debug, [0, count]
        self.header = Header("tensor", "L1", "pytorch")
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


PLAN = Plan(Path("target"), Path("golden"), Path("out"), "20260101000000")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The runs by name, which the test gives; a name without one cannot be read."""
    runs: dict[str, Any] = {}

    def find(manager: Manager, path: Path, framework: str | None) -> Any:
        if path.name not in runs:
            raise UserError(f"{path} is empty.", "Record it again.")
        return runs[path.name]

    monkeypatch.setattr(opening, "open_run", find)
    return runs


@pytest.mark.parametrize(
    ("golden", "says"),
    [
        (None, "is empty"),
        ({"is_debug": True}, "same kind of records"),
        ({"mode": Mode.MD5}, "holds checksums"),
        ({"count": 0}, "holds no values"),
    ],
)
def test_a_refusal_closes_what_was_opened(opened: dict[str, Any], golden: dict[str, Any] | None, says: str) -> None:
    opened["target"] = Opened(Path("target"))
    if golden is not None:
        opened["golden"] = Opened(Path("golden"), **golden)
    with pytest.raises(UserError, match=says):
        open_runs(PLAN, Manager(), Path("target"), Path("golden"))
    assert [run.is_open for run in opened.values()] == [False] * len(opened)


def test_runs_that_can_be_compared_stay_open(opened: dict[str, Any]) -> None:
    opened |= {name: Opened(Path(name)) for name in ("target", "golden")}
    assert open_runs(PLAN, Manager(), Path("target"), Path("golden")) == (opened["target"], opened["golden"])
    assert all(run.is_open for run in opened.values())
