"""The configuration of the monitor: defaults, errors, warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_check.monitor.alert_settings import RuleName, RuleSettings
from probe_check.monitor.settings import FIELDS, MonitorSettings, load_settings, parse_settings
from probe_recording.settings.config import ConfigWarning

from probe_core.errors import UserError


def test_an_empty_configuration_has_the_defaults() -> None:
    assert parse_settings({}) == MonitorSettings()


def test_fields_are_parsed() -> None:
    settings = parse_settings(
        {
            "targets": {"fc": {"input": "tuple[2]:0", "output": "tensor"}},
            "wg_distribution": True,
            "ops": ["max", "shape", "max", "norm"],
            "sa_order": "b, s, h, d",
            "module_ranks": [0, 3],
            "l2_targets": {"linear_hook": [], "attention_hook": []},
            "alert": {"rules": [{"rule_name": "AnomalyNan"}], "dump": True, "record_steps": 2},
            "append_output": ["Dec03_21-34-40", "Dec03_21-34-41"],
        }
    )
    assert settings.targets == {"fc": {"input": 0, "output": None}}
    assert settings.operations == ("max", "norm") and settings.dimension_order == "b,s,h,d"
    assert settings.is_on("wg_distribution") and not settings.is_on("mv_distribution")
    assert settings.feature_targets == {"linear_hook": ()} and settings.ranks == {0, 3}
    assert settings.alert.rules == (RuleSettings(RuleName.NAN),) and settings.alert.recorded_steps == 2


WRONG: list[dict[str, Any]] = [
    {"wg_distribution": 1},
    {"targets": []},
    {"targets": {"fc": "tensor"}},
    {"targets": {"fc": {"inputs": "tensor"}}},
    {"targets": {"fc": {"input": "tuple[2]:2"}}},
    {"targets": {"fc": {"input": 3}}},
    {"ops": "norm"},
    {"eps": "1e-8"},
    {"eps": -1},
    {"ndigits": 0},
    {"ndigits": 21},
    {"ndigits": True},
    {"format": "xlsx"},
    {"start_step": -1},
    {"step_interval": 0},
    {"collect_times": 1.5},
    {"step_count_per_record": 0},
    {"module_ranks": ["a"]},
    {"append_output": ["Dec03_21-34-40"]},
    {"append_output": ["Dec03_21-34-41", "Dec03_21-34-40"]},
    {"sa_order": "h,s,b,d"},
    {"cc_distribution": {"cc_codeline": ["("]}},
    {"l2_targets": {"linear_hook": "fc"}},
    {"alert": {"rules": {}}},
    {"alert": {"rules": [{"rule_name": "AnomalyOther"}]}},
    {"alert": {"rules": [{"rule_name": "AnomalyTurbulence"}]}},
    {"alert": {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": -1}}]}},
    {"alert": {"record_steps": -1}},
]


@pytest.mark.parametrize("values", WRONG, ids=str)
def test_a_wrong_value_is_refused_with_the_name_of_its_field(values: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        parse_settings(values)
    name, value = next(iter(values.items()))
    inner = next(iter(value), name) if isinstance(value, dict) and name not in ("targets",) else name
    assert f'"{inner}"' in caught.value.what and (caught.value.fix or caught.value.choices)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"wg_distributions": True}, "wg_distribution"),
        ({"ops": ["norm", "id"]}, "'id'"),
        ({"ur_distribution": True}, "tensorboard"),
        ({"xy_distribution": True, "forward_only": True, "backward_only": True}, "no activations"),
        ({"monitor_mbs_grad": True}, "wg_distribution"),
    ],
)
def test_a_field_without_effect_causes_a_warning(values: dict[str, Any], words: str) -> None:
    with pytest.warns(ConfigWarning, match=words):
        settings = parse_settings(values)
    assert not settings.is_on("ur_distribution")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"ops": [}', "nul\0"])
def test_a_damaged_file_is_refused_in_one_sentence(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(UserError):
        load_settings(path)
    with pytest.raises(UserError):
        load_settings(tmp_path / "missing.json")


def test_all_fields_are_in_the_set_of_fields() -> None:
    assert {"targets", "wg_distribution", "alert", "append_output", "dynamic_on"} <= FIELDS
