"""Names of records and their parts."""

from __future__ import annotations

import pytest

from probe_core.store.names import (
    format_key,
    get_api_name,
    get_phase,
    has_module_scope,
    is_backward,
    is_forward,
    is_module,
    parse_api_key,
    parse_module_key,
)

MODULE_KEYS: dict[str, tuple[str, str, str, int | None]] = {
    "Cell.net.0.fc.Dense.forward.0": ("net.0.fc", "Dense", "forward", 0),
    "Module.Net.backward.2": ("", "Net", "backward", 2),
    "Module.forward.Linear.forward.1": ("forward", "Linear", "forward", 1),
    "Cell.fc.Dense.parameters_grad.0": ("fc", "Dense", "parameters_grad", 0),
    "Module.fc.Linear.parameters_grad": ("fc", "Linear", "parameters_grad", None),
}
API_KEYS: dict[str, tuple[str, int, str]] = {
    "Mint.add.3.forward": ("Mint.add", 3, "forward"),
    "Primitive.conv2d.Conv2D.0.backward": ("Primitive.conv2d.Conv2D", 0, "backward"),
    "Mint.special.erfc.0.forward": ("Mint.special.erfc", 0, "forward"),
    "Torch.Module.0.forward": ("Torch.Module", 0, "forward"),
}
OTHER_KEYS = ("x.0.debug", "loss", "Functional.relu.forward", "")


@pytest.mark.parametrize("key", [*MODULE_KEYS, *API_KEYS, *OTHER_KEYS])
def test_parse_returns_the_parts_of_a_name(key: str) -> None:
    assert parse_module_key(key) == MODULE_KEYS.get(key)
    assert parse_api_key(key) == API_KEYS.get(key)
    assert is_module(key) is has_module_scope(key) is (key in MODULE_KEYS)


@pytest.mark.parametrize(
    ("key", "phase"),
    [
        ("Functional.relu.0.forward", "forward"),
        ("Torch.backward.0.forward", "forward"),
        ("Module.forward.Linear.backward.1", "backward"),
        ("Module.fc.Linear.parameters_grad", ""),
        ("forward.0.debug", ""),
    ],
)
def test_phase_is_the_last_part_but_for_the_count(key: str, phase: str) -> None:
    assert get_phase(key) == phase
    assert (is_forward(key), is_backward(key)) == (phase == "forward", phase == "backward")


def test_format_key_reverses_parsing() -> None:
    def check(key: str) -> None:
        module, api = parse_module_key(key), parse_api_key(key)
        if module is not None and module.number is not None and module.phase != "parameters_grad":
            path = ".".join(part for part in (key.partition(".")[0], module.path, module.class_name) if part)
            assert format_key(path, module.number, module.phase) == key
            assert key.endswith(module.suffix)
        elif api is not None:
            assert format_key(api.api, api.number, api.phase) == key

    for key in (*MODULE_KEYS, *API_KEYS):
        check(key)


def test_api_name_is_the_part_before_the_number_or_the_class() -> None:
    names = ("Mint.special.erfc.0.forward", "Cell.fc.Dense.backward.0", "Module.Net.forward.2", "x.0.debug")
    assert [*map(get_api_name, names)] == ["erfc", "Dense", "Net", "x.0.debug"]
