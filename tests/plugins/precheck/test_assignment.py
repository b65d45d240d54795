"""Standards assigned to outputs: lists of the standards, of third parties, and of the user (docs/standards.md#methods)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import probe_metrics.hooks
import probe_sample.hooks
import pytest
import yaml
from probe_precheck.assignment import Assignment
from probe_precheck.specs import StandardSpec
from support import ROOT

from probe_core.errors import UserError
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager, PluginWarning
from probe_core.testing import manager_of

FACTS = ROOT / "plugins/metrics/probe_metrics/standards/apis.yaml"
SINGLE, HALF, BRAIN = "torch.float32", "torch.float16", "torch.bfloat16"


@pytest.fixture(scope="module")
def manager() -> Manager:
    """The standards of probe-metrics, and that of the sample plugin."""
    return manager_of(metrics=probe_metrics.hooks, sample=probe_sample.hooks)


def chosen(manager: Manager, api: str, dtype: str = SINGLE, release: str = "guide", path: Path | None = None) -> str:
    found = Assignment(manager, release, path).find_standard(api, dtype)
    return "" if found is None else found.spec.name


@pytest.mark.parametrize(
    "api, name",
    [
        ("matmul", "ulp"),
        ("__matmul__", "ulp"),
        ("linear", "ulp"),
        ("mul", "absolute_threshold"),
        ("rsqrt", "absolute_threshold"),
        ("relu", "binary_consistency"),
        ("topk", "binary_consistency"),
        ("conv1d", "dual_thousandth"),
        ("conv2d", "dual_thousandth"),
        ("conv3d", "benchmark_ratio"),
        ("softmax", "benchmark_ratio"),
        ("no_such_api", "benchmark_ratio"),
        ("linalg.matmul", "benchmark_ratio"),
        ("npu_linear", "benchmark_ratio"),
        ("arcsinh", "same_signs"),
    ],
)
@pytest.mark.parametrize("dtype", [SINGLE, HALF, BRAIN, "Float32"])
def test_real_numbers_are_judged_by_the_list_that_names_their_api(
    api: str, name: str, dtype: str, manager: Manager
) -> None:
    """Names with a prefix are looked up whole."""
    assert chosen(manager, api, dtype) == name


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "bool", "float8_e4m3fn"])
@pytest.mark.parametrize("api", ["conv2d", "matmul", "mul", "softmax", "arcsinh"])
def test_the_dtype_comes_first(api: str, dtype: str, manager: Manager) -> None:
    """Outputs of other dtypes than the three floats are judged exactly, for any API."""
    assert chosen(manager, api, f"torch.{dtype}") == "binary_consistency"


@pytest.mark.parametrize("dtype", ["float64", "double", "complex64", "complex128"])
def test_dtypes_without_a_standard(dtype: str, manager: Manager) -> None:
    """They have none in any list of APIs."""
    assert {chosen(manager, api, f"torch.{dtype}") for api in ("relu", "conv2d", "softmax")} == {""}


def test_names_that_a_release_adds(manager: Manager) -> None:
    assert chosen(manager, "histc") == "benchmark_ratio"
    assert chosen(manager, "histc", release="8.3") == "binary_consistency"


def test_no_api_is_in_two_lists() -> None:
    lists = yaml.safe_load(FACTS.read_text("utf-8"))
    names: list[str] = []
    for listed in lists.values():
        for item in listed:
            names += [item] if isinstance(item, str) else [name for inner in item.values() for name in inner]
    assert len(names) == len(set(names)) > 80


# -- a file of the user's --------------------------------------------------------------------------


def lists(directory: Path, text: str) -> Path:
    path = directory / "lists.yaml"
    path.write_text(text, "utf-8")
    return path


def test_the_users_list_comes_before_all_others(manager: Manager, tmp_path: Path) -> None:
    path = lists(tmp_path, "benchmark_ratio: [matmul]\nulp: [softmax, linalg.matmul]\nsame_signs: [relu]\n")
    wanted = {"matmul": "benchmark_ratio", "softmax": "ulp", "linalg.matmul": "ulp", "relu": "same_signs",
              "bmm": "ulp", "arcsinh": "same_signs"}  # fmt: skip
    assert {api: chosen(manager, api, path=path) for api in wanted} == wanted
    assert chosen(manager, "relu", "torch.int32", path=path) == "binary_consistency"


def test_a_release_in_the_users_list(manager: Manager, tmp_path: Path) -> None:
    path = lists(tmp_path, '\ufeffulp: [tanh, {"8.3": [erf]}]\nabsolute_threshold: [{guide: [sin]}, {seed: [cos]}]\n')
    found = {
        release: [chosen(manager, api, release=release, path=path) for api in ("tanh", "erf", "sin", "cos")]
        for release in ("seed", "guide", "8.3")
    }
    assert found == {
        "seed": ["ulp", "benchmark_ratio", "absolute_threshold", "absolute_threshold"],
        "guide": ["ulp", "benchmark_ratio", "absolute_threshold", "absolute_threshold"],
        "8.3": ["ulp", "ulp", "absolute_threshold", "absolute_threshold"],
    }


@pytest.mark.parametrize(
    "text, says, fix",
    [
        ("ulp: [", "is not valid YAML", "Correct"),
        ("", "must map standards to APIs", "ulp: [matmul"),
        ("- ulp", "must map standards to APIs", "ulp: [matmul"),
        ("upl: [tanh]", 'a standard "upl" that is not installed', "Use these"),
        ("3: [tanh]", 'a standard "3" that is not installed', "Use these"),
        ("ulp: tanh", "ulp must be a list of APIs", "[matmul, linear]"),
        ("ulp:", "ulp must be a list of APIs", "[matmul, linear]"),
        ("ulp: [1.5]", "1.5, which is not an API", "bare name"),
        ("ulp: [{8.3: [erf]}]", "which is not an API", "quotes around 8.3"),
        ('ulp: [{"9.1": [erf]}]', "which is not an API", "bare name"),
        ('ulp: [{"8.3": erf}]', "which is not an API", "bare name"),
        ('ulp: [{"8.3": [3]}]', "which is not an API", "bare name"),
        ("&a [*a]", "must map|not valid YAML", ""),
        ("[" * 5000, "is not valid YAML", "Correct"),
    ],
)
def test_lists_that_are_none(text: str, says: str, fix: str, manager: Manager, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says.replace("[", r"\[")) as caught:
        Assignment(manager, "guide", lists(tmp_path, text))
    assert fix in caught.value.fix and "lists.yaml" in caught.value.what
    if fix == "Use these":
        assert "ulp" in caught.value.choices and "same_signs" in caught.value.choices


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_files_that_cannot_be_read(content: bytes | None, manager: Manager, tmp_path: Path) -> None:
    path = tmp_path / "lists.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
        Assignment(manager, "guide", path)


# -- third parties ---------------------------------------------------------------------------------


def hooks(name: str, *specs: Any) -> ModuleType:
    module = ModuleType(name)
    implementation = hookimpl(lambda: list(specs))
    module.probe_standards = implementation  # type: ignore[attr-defined]
    return module


class Never:
    """A standard that is not asked."""


def test_a_third_party_may_take_an_api_from_our_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "stranger_lists"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "apis.yaml").write_text("mine: [matmul]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = StandardSpec("mine", "", Never, "我的", "Mine", "stranger_lists:apis.yaml")
    plugins = {"probe-metrics": probe_metrics.hooks, "stranger": hooks("stranger_hooks", spec)}
    with pytest.warns(PluginWarning) as warned:
        assert chosen(manager_of(**plugins), "matmul") == "mine"
    text = 'stranger assigns matmul to the standard "mine", and probe-metrics to "ulp". "mine" judges it'
    assert [str(item.message).startswith(text) for item in warned] == [True]
    with pytest.warns(PluginWarning):
        assert chosen(manager_of(**plugins), "bmm") == "ulp"


@pytest.mark.parametrize("name", ["a_first", "z_last"])
def test_assignment_prefers_the_list_of_a_plugin_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"lists_{name}").mkdir()
    (tmp_path / f"lists_{name}/__init__.py").touch()
    (tmp_path / f"lists_{name}/apis.yaml").write_text(f"{name}: [matmul]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = StandardSpec(name, "", Never, "我的", "Mine", f"lists_{name}:apis.yaml")
    plugins = {"probe-metrics": probe_metrics.hooks, "stranger": hooks(f"hooks_{name}", spec)}
    with pytest.warns(PluginWarning):
        assert chosen(manager_of(**plugins), "matmul") == name


def test_assignment_refuses_an_api_that_two_plugins_assign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "two_lists"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = {}
    for name in ("mine", "yours"):
        (package / f"{name}.yaml").write_text(f"{name}: [my_api]\n")
        spec = StandardSpec(name, "", Never, "", name, f"two_lists:{name}.yaml")
        plugins[name] = hooks(f"hooks_of_{name}", spec)
    manager = manager_of(**plugins)
    assert chosen(manager, "other_api") == ""
    with pytest.raises(UserError) as caught:
        chosen(manager, "my_api")
    assert caught.value.what == ('mine assigns my_api to the standard "mine", and yours to "yours".')
    assert chosen(manager, "my_api", path=lists(tmp_path, "mine: [my_api]")) == "mine"


def test_two_standards_of_one_name(manager: Manager) -> None:
    spec = StandardSpec("ulp", "", Never, "", "")
    twice = manager_of(metrics=probe_metrics.hooks, double=hooks("double_hooks", spec))
    with pytest.raises(UserError, match='Several plugins provide a standard called "ulp"'):
        Assignment(twice, "guide")


def test_no_standard_at_all() -> None:
    with pytest.raises(UserError) as caught:
        Assignment(manager_of(), "guide")
    assert "A precision standard comes with probe-metrics" in caught.value.what


def test_without_a_standard_for_the_rest_the_rest_is_not_judged() -> None:
    alone = manager_of(sample=probe_sample.hooks)
    assert [chosen(alone, api) for api in ("arcsinh", "matmul")] == ["same_signs", ""]
    assert chosen(alone, "arcsinh", "torch.int32") == ""
