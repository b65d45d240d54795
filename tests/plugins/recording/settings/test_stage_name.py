"""Names of stages."""

from __future__ import annotations

import pytest
from probe_recording.settings.config import load_config
from probe_recording.settings.stage_name import check_stage, join_label

from probe_core.errors import UserError


@pytest.mark.parametrize("name", ["", "actor", "Reward-2", "ref_log_prob", "ranking"])
def test_check_stage_returns_valid_names(name: str) -> None:
    assert check_stage(name, "stage") == name


@pytest.mark.parametrize(
    "name", ["rank", "rank0", "proc12", "step3", "graph", "a/b", "..", "2nd", "é", "a" * 65, "a b"]
)
def test_check_stage_refuses_names_of_other_directories(name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of a stage"):
        check_stage(name, "stage")


def test_join_label_puts_the_stage_before_the_rank() -> None:
    assert [join_label(stage, "rank0") for stage in ("", "actor")] == ["rank0", "actor/rank0"]


def test_the_environment_replaces_the_stage_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_config(None, dump_path="run", stage="actor").stage == "actor"
    monkeypatch.setenv("PROBE_STAGE", "critic")
    assert load_config(None, dump_path="run").stage == "critic"
    monkeypatch.setenv("PROBE_STAGE", "rank1")
    with pytest.raises(UserError, match="\"stage\" is 'rank1'"):
        load_config(None, dump_path="run")
