"""The section free_benchmark of config.json, and its errors of one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from probe_recording.fields import ConfigWarning
from probe_recording.settings import config
from probe_watch.free_benchmark.settings import BenchmarkSettings, ChangeMode, Handler, Stage
from support.cases import every

from probe_core.errors import UserError


def parsed(**section: Any) -> BenchmarkSettings:
    """Return the settings of a section."""
    fields = {"dump_path": "run", "task": "free_benchmark", "free_benchmark": section}
    settings = config.parse(fields).settings
    assert isinstance(settings, BenchmarkSettings)
    return settings


def test_defaults_are_those_of_msprobes_file() -> None:
    assert parsed() == BenchmarkSettings(
        ChangeMode.IMPROVE_PRECISION, Handler.CHECK, Stage.FORWARD, False, 15, 20, (), frozenset()
    )


def test_all_fields_are_read() -> None:
    settings = parsed(
        scope=["Functional.relu.0.forward", "Torch.exp.3"], fuzz_device="cpu", pert_mode="to_cpu",
        handler_type="check", fuzz_level="L1", fuzz_stage="backward", if_preheat=True, preheat_step=3, max_sample=2,
    )  # fmt: skip
    assert settings == BenchmarkSettings(
        ChangeMode.TO_CPU, Handler.CHECK, Stage.BACKWARD, True, 3, 2, (),
        frozenset({"Functional.relu.0", "Torch.exp.3"}),
    )  # fmt: skip
    assert settings.selects("Torch.exp.3") and not settings.selects("Torch.exp.30")
    assert parsed(list=["relu"]).selects("Functional.relu_.1") and not parsed(list=["relu"]).selects("Torch.exp.0")


@every("section,field", [
    ({"fuzz_device": "cpu"}, "fuzz_device"),
    ({"pert_mode": "to_cpu"}, "fuzz_device"),
    ({"fuzz_device": "gpu"}, "fuzz_device"),
    ({"pert_mode": "noise"}, "pert_mode"),
    ({"handler_type": "auto_fix"}, "handler_type"),
    ({"handler_type": "fix", "pert_mode": "add_noise"}, "handler_type"),
    ({"handler_type": "fix", "fuzz_stage": "backward", "list": ["relu"]}, "handler_type"),
    ({"handler_type": "fix", "if_preheat": True}, "if_preheat"),
    ({"fuzz_stage": "both"}, "fuzz_stage"),
    ({"fuzz_stage": "backward"}, "list"),
    ({"fuzz_level": "L0"}, "fuzz_level"),
    ({"if_preheat": "yes"}, "if_preheat"),
    ({"preheat_step": 0}, "preheat_step"),
    ({"max_sample": -1}, "max_sample"),
    ({"max_sample": "many"}, "max_sample"),
    ({"list": "relu"}, "list"),
    ({"scope": [1]}, "scope"),
    ({"list": ["relu"], "scope": ["Functional.relu.0"]}, "list"),
])  # fmt: skip
def test_an_invalid_section_is_one_sentence(section: dict[str, Any], field: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(**section)
    what = str(caught.value.what)
    assert f'"{field}"' in what and 'section "free_benchmark"' in what and what.count(". ") == 0
    assert caught.value.fix or caught.value.choices


def test_an_unknown_field_is_named() -> None:
    with pytest.warns(ConfigWarning, match='"pert_mod" is ignored; did you mean "pert_mode"'):
        parsed(pert_mod="add_noise")
