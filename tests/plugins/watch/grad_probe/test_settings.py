"""The section grad_probe of config.json."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from probe_recording.settings.config import load_config
from probe_watch.grad_probe.settings import FIELDS, GradSettings
from probe_watch.hooks import probe_tasks

from probe_core.errors import UserError


def parsed(**fields: Any) -> GradSettings:
    from probe_recording.settings.config import parse

    settings: GradSettings = parse({"task": "grad_probe", "dump_path": "run", "grad_probe": fields}).settings
    return settings


def test_defaults() -> None:
    assert parsed() == GradSettings("L1", (), (-1, 0, 1), "both")
    assert (parsed().writes_npy, parsed().writes_packed) == (True, True)


def test_all_fields() -> None:
    fields = {"grad_level": "l2", "param_list": ["a.b"], "bounds": [-0.5, 2], "direction_files": "packed"}
    assert parsed(**fields) == GradSettings("L2", ("a.b",), (-0.5, 2), "packed")
    assert (parsed(**fields).writes_npy, parsed(**fields).writes_packed) == (False, True)
    assert fields.keys() == {*FIELDS} == {*probe_tasks()[0].fields}


def test_level_l0_writes_no_signs() -> None:
    settings = parsed(grad_level="L0")
    assert not settings.writes_npy and not settings.writes_packed and settings.has_checksum


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grad_level": "L3"}, '"grad_level" must be one of the choices'),
        ({"grad_level": 1}, '"grad_level" must be one of the choices'),
        ({"direction_files": "pt"}, '"direction_files" must be one of the choices'),
        ({"param_list": "fc.weight"}, '"param_list" must be a list of names'),
        ({"param_list": [""]}, '"param_list" must be a list of names'),
        ({"param_list": [3]}, '"param_list" must be a list of names'),
        ({"bounds": 3}, '"bounds" must be a list of numbers, not 3'),
        ({"bounds": ["a"]}, "\"bounds\" must hold numbers only, not 'a'"),
        ({"bounds": [True]}, '"bounds" must hold numbers only, not True'),
        ({"bounds": [math.nan]}, '"bounds" must hold numbers only, not nan'),
        ({"bounds": [1, 0]}, '"bounds" must ascend without duplicates, but 0 follows 1'),
        ({"bounds": [0, 0.0]}, '"bounds" must ascend without duplicates, but 0.0 follows 0'),
        ({"bounds": [2**63]}, "range of int64"),
        ({"bounds": [-1e30]}, "range of int64"),
        ({"bounds": [math.inf]}, "range of int64"),
    ],
)
def test_a_wrong_value_is_one_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(**fields)
    assert message in caught.value.what and caught.value.what.startswith('The configuration: section "grad_probe"')
    assert ". " not in caught.value.what and (caught.value.fix or caught.value.choices)


def test_an_unknown_field_is_named() -> None:
    with pytest.warns(UserWarning, match='unknown field "grad_levle" is ignored; did you mean "grad_level"'):
        parsed(grad_levle="L1")


def test_the_section_of_msprobes_file_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(
        '{"task": "grad_probe", "dump_path": "run", "rank": [], "step": [], "level": "L1", "grad_probe": '
        '{"grad_level": "L1", "param_list": [], "bounds": [-1, 0, 1]}, "tensor": {"scope": []}}'
    )
    assert load_config(file).settings == GradSettings()
