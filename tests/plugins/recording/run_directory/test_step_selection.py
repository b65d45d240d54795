"""The selection of steps by a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_recording.api import Config, Process
from probe_recording.messages import Notices
from probe_recording.run_directory.step_selection import check_later_steps, is_past_last_step, is_step_selected

from probe_core.errors import UserError


def make_config(path: Path, steps: set[int]) -> Config:
    return Config(dump_path=path, shown_path=str(path), steps=frozenset(steps))


def test_all_steps_are_selected_by_default(tmp_path: Path) -> None:
    config = make_config(tmp_path, set())
    assert is_step_selected(config, 7, Notices()) and not is_past_last_step(config, 7)


def test_the_end_of_the_selected_steps_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, notices = make_config(tmp_path, {0, 2}), Notices()
    assert [step for step in range(6) if is_step_selected(config, step, notices)] == [0, 2]
    assert not is_past_last_step(config, 2) and is_past_last_step(config, 3)
    shown = "".join(capsys.readouterr())
    assert shown.count("step 2 was the last step to record; later steps are not recorded.") == 1


def test_a_directory_that_cannot_be_written_is_an_error_only_if_a_later_step_is_selected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = make_config(tmp_path / "file", {0, 2})
    check_later_steps(config, 2, Process())
    with pytest.raises(UserError, match="file"):
        check_later_steps(config, 1, Process())
