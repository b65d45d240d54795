from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_recording.settings.config import SECTION_FIELDS, TOP_FIELDS, load_config
from probe_recording.settings.recorded_settings import (
    REPEATED_FIELDS,
    REPEATED_SECTION_FIELDS,
    RecordedSettings,
    read_settings,
)

from probe_core.errors import UserError

FIELDS: dict[str, Any] = {
    "task": "statistics", "dump_path": "run", "level": "L1", "step": [1], "rank": [0], "seed": 3, "async_dump": False,
    "statistics": {"list": ["linear"], "scope": [], "data_mode": ["forward"], "summary_mode": "md5"},
}  # fmt: skip
REPEATED = {"rank": [0], "seed": 3, "statistics": {"list": ["linear"], "data_mode": ["forward"], "summary_mode": "md5"}}


def write(directory: Path, own: Any, **head: Any) -> Path:
    """Write a record file with this section of probe."""
    path = directory / "dump.json"
    fields = {"task": "statistics", "level": "L1", "probe": own, **head}
    path.write_text(json.dumps(fields)[:-1] + ', "data": {\n' + "x" * 100)  # the data are not read
    return path


def test_the_fields_that_decide_what_is_recorded_are_stated() -> None:
    assert load_config(None, **FIELDS).repeated == {"config": REPEATED}
    assert load_config(None, dump_path="run", task="tensor").repeated == {}


def test_the_fields_are_fields_of_the_configuration() -> None:
    assert set(REPEATED_FIELDS) < TOP_FIELDS
    assert set(REPEATED_SECTION_FIELDS) < SECTION_FIELDS["statistics"] | SECTION_FIELDS["tensor"]


def test_the_options_of_probe_run_are_stated() -> None:
    config = load_config(None, dump_path="run")
    assert config.with_run_options(0, is_double=True).repeated == {"seed": 0, "double": True}
    assert config.with_run_options(None, is_double=False).repeated == {}


def test_settings_are_read_from_the_header(tmp_path: Path) -> None:
    path = write(tmp_path, {"settings": {"config": REPEATED, "seed": 0, "double": True}})
    settings = read_settings(path)
    assert settings == RecordedSettings("statistics", "L1", REPEATED, 0, double=True)
    assert settings.create_config([2, 5]) == {"task": "statistics", "level": "L1", "step": [2, 5], **REPEATED}
    assert read_settings(write(tmp_path, {"unrecorded": {}})) == RecordedSettings("statistics", "L1")


@pytest.mark.parametrize("own", [None, [], {"settings": []}, {"settings": {"config": 3}}])
def test_a_damaged_header_is_refused(own: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not state the settings"):
        read_settings(write(tmp_path, own))


def test_a_file_that_probe_did_not_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    for text in ("", "[]", '{"task": "tensor", "level": "L1", "data": {}}'):
        path.write_text(text)
        with pytest.raises(UserError, match="does not state the settings"):
            read_settings(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_settings(tmp_path / "missing.json")
