"""Plugins: installed, removed, broken, of one name, chosen."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from probe_metrics.hooks import probe_metrics
from probe_sample.hooks import probe_metrics as sample_metrics
from support import ROOT, TESTS
from support.programs import preloaded

from probe_core.cli.main import run
from probe_core.errors import UserError
from probe_core.plugins import distributions, hookspecs
from probe_core.plugins.hookspecs import GROUP, HOOKSPECS, hookimpl, hookspec
from probe_core.plugins.manager import KINDS, Manager, PluginWarning
from probe_core.plugins.specs import MetricSpec, Spec
from probe_core.testing import MetricConformance, manager_of

SPECS = [*probe_metrics(), *sample_metrics()]


def install(source: Path, into: Path) -> None:
    """A real installation of the distribution in ``source``, without any index."""
    build = into.parent / f"build-{source.name}"
    shutil.copytree(source, build, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--no-build-isolation", "--target", str(into), str(build)],
        check=True,
    )  # fmt: skip


def probe(*arguments: str | Path, site: Path | None = None, **environment: str) -> Any:
    """``probe`` in a process of its own, with the packages in ``site`` besides the installed ones."""
    return preloaded.run(
        [sys.executable, "-m", "probe_core.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(site or ""), **environment},
    )


def header(directory: Path) -> list[str]:
    (path,) = directory.glob("*.csv")
    head = path.read_text("utf-8").splitlines()[0].split(",")
    path.unlink()
    return head


def test_a_real_plugin_comes_breaks_and_goes(runs: Any, tmp_path: Path) -> None:
    base, site, out = runs("tensor_L1_datamap"), tmp_path / "site", tmp_path / "out"
    source = tmp_path / "another"
    shutil.copytree(TESTS / "sample_plugin", source, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    (source / "probe_sample").rename(source / "probe_other")
    for file in (source / "pyproject.toml", *(source / "probe_other").glob("*.py")):
        text = file.read_text().replace("probe_sample", "probe_other").replace("probe-sample", "probe-other")
        file.write_text(text.replace("sign_flips", "flips").replace("sample =", "other ="))
    (source / "probe_other" / "sign_flips.py").rename(source / "probe_other" / "flips.py")
    command = ("compare", base / "npu_dump", base / "bench_dump", "-c", "-o", out, "--format", "csv")

    assert probe(*command, "--metric", "flips").returncode == 2, "not installed yet"
    install(source, site)
    done = probe(*command, "--metric", "flips", site=site)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert header(out)[-1] == "Sign flips"

    hooks = site / "probe_other" / "hooks.py"
    hooks.write_text("import a_module_that_is_not_there\n")
    done = probe(*command, site=site)
    assert done.returncode == 0
    assert done.stderr.count("warning") == 1
    assert "plugin other (probe-other 1.0) is left out: ModuleNotFoundError" in done.stderr
    assert "Sign flips" not in header(out)

    shutil.rmtree(site)
    done = probe(*command, "--metric", "flips", site=site)
    assert done.returncode == 2 and 'There is no metric called "flips"' in done.stderr


def test_a_broken_plugin_costs_one_warning(runs: Any, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(TESTS / "broken_plugin", site)
    base = runs("stat_L1_datamap")
    done = probe("compare", base / "npu_dump", base / "bench_dump", "-o", tmp_path / "o", site=site)
    assert done.returncode == 0
    assert done.stderr.count("warning:") == 1 and "libnothing.so.1" in done.stderr
    listed = json.loads(probe("plugins", "--json", site=site).stdout)
    (broken,) = [plugin for plugin in listed if plugin["name"] == "broken"]
    assert broken["status"] == "broken"
    assert broken["distribution"] == "probe-broken" and broken["version"] == "0.9"
    assert "uninstall probe-broken" in broken["fix"]


def test_probe_plugins_lists_what_each_gives() -> None:
    done = probe("plugins")
    assert done.returncode == 0 and done.stderr == ""
    for word in ("probe-core", "probe-pytorch", "probe-mindspore", "probe-metrics", "probe-reporters",
                 "sign_flips", "xlsx", "demo", "fuzzy"):  # fmt: skip
        assert word in done.stdout
    listed = {plugin["name"]: plugin for plugin in json.loads(probe("plugins", "--json").stdout)}
    assert listed["sample"]["contributes"]["metrics"] == {"sign_flips": "share of elements whose sign differs"}


def test_probe_plugins_chosen_by_the_environment() -> None:
    done = probe("plugins", "--json", PROBE_PLUGINS="metrics,reporters")
    assert {plugin["name"] for plugin in json.loads(done.stdout)} == {"core", "reporters", "metrics", "ranks"}
    done = probe("plugins", PROBE_PLUGINS="metrics,nonsense")
    assert "PROBE_PLUGINS names nonsense, and no installed plugin has that name. Installed: " in done.stderr
    done = probe("plugins", PROBE_PLUGINS="probe-metrics")
    assert "Did you mean metrics, the plugin of the distribution probe-metrics?" in done.stderr
    done = probe("compare", "a", "b", PROBE_PLUGINS="metrics")
    assert done.returncode == 2


# -- what is missing is named with the command that installs it ------------------------------------


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``only("pytorch")``: probe as it is where these plugins alone are installed."""

    def choose(*names: str) -> None:
        monkeypatch.setenv("PROBE_PLUGINS", ",".join(names))
        installed = {f"probe-{name}" for name in names}

        def version(name: str) -> str:
            if name not in installed:
                raise metadata.PackageNotFoundError(name)
            return "0.1.0"

        monkeypatch.setattr(distributions, "metadata", types.SimpleNamespace(
            version=version, PackageNotFoundError=metadata.PackageNotFoundError))  # fmt: skip

    return choose


@pytest.mark.parametrize(
    "plugins, command, missing, install",
    [
        ("pytorch,metrics", "compare NPU BENCH -o OUT", 'The format "xlsx" comes with probe-reporters', "./plugins/reporters"),
        ("pytorch,reporters", "compare NPU BENCH -o OUT", 'The policy "accuracy" comes with probe-metrics', "./plugins/metrics"),
        pytest.param("pytorch,metrics", "demo OUT", 'The format "xlsx" comes with probe-reporters', "./plugins/reporters",
                     marks=pytest.mark.slow),
        ("metrics,reporters", "compare NPU BENCH -o OUT", 'The reader "pytorch" comes with probe-pytorch',
         "./plugins/pytorch ./plugins/recording"),
        ("metrics,reporters,precheck", "run_ut -api_info NPU", 'The reader "pytorch" comes with probe-pytorch', "./plugins/pytorch"),
        ("pytorch,reporters,precheck", "run_ut -api_info NPU -d cpu", "comes with probe-metrics", "./plugins/metrics"),
        ("metrics,reporters", "demo", 'The command "demo" comes with probe-pytorch', "./plugins/pytorch"),
        ("metrics,pytorch", "merge_result -h", 'The command "merge_result" comes with probe-reporters', "./plugins/reporters"),
        ("pytorch,metrics,reporters,ranks", "compare NPU BENCH -o OUT --executor dask --scheduler tcp://h:1",
         'The executor "dask" comes with probe-dask', "./plugins/dask"),
        *(
            ("pytorch,metrics,reporters", f"compare NPU BENCH -o OUT {options}", f"{what} comes with probe-matching", "./plugins/matching")
            for options, what in (
                ("-f", 'The option "-f"'), ("--match align", 'The matcher "align"'), ("-dm MAP", 'The option "-dm"'),
                ("-am", 'The option "-am"'), ("--cell_mapping", 'The option "--cell_mapping"'),
                ("-cm", 'The option "-cm"'), ("-lm MAP", 'The option "-lm"'),
            )
        ),
        ("pytorch,metrics,reporters", "-f mindspore compare NPU BENCH -o OUT",
         'The reader "mindspore" comes with probe-mindspore', "./plugins/mindspore"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_command(
    plugins: str, command: str, missing: str, install: str, only: Any, runs: Any, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    base = runs("tensor_L1_datamap")
    only(*plugins.split(","))
    (npu,), (bench,) = ((base / side).rglob("dump.json") for side in ("npu_dump", "bench_dump"))
    words = {"NPU": npu, "BENCH": bench, "OUT": tmp_path / "out"}
    assert run([str(words.get(word, word)) for word in command.split()]) == 2
    said = capsys.readouterr().err
    assert missing in said and "which is not installed" in said
    assert f"pip install {install}" in said
    assert all((ROOT / directory / "pyproject.toml").is_file() for directory in install.split())


def test_what_is_installed_and_left_out_is_not_to_be_installed_again(runs: Any, tmp_path: Path) -> None:
    base = runs("tensor_L1_datamap")
    runs_of_both = base / "npu_dump", base / "bench_dump"
    done = probe("compare", *runs_of_both, "-o", tmp_path / "o", PROBE_PLUGINS="pytorch,metrics")
    assert done.returncode == 2
    installed = f"probe-reporters {metadata.version('probe-reporters')}"
    assert f"comes with {installed}, which PROBE_PLUGINS leaves out." in done.stderr
    assert "Add reporters to PROBE_PLUGINS." in done.stderr and "pip install" not in done.stderr


def test_a_plugin_of_a_framework_asks_for_what_every_command_needs() -> None:
    for name in ("probe-pytorch", "probe-mindspore"):
        needs = metadata_of(ROOT / "plugins" / name.removeprefix("probe-") / "pyproject.toml")
        assert {"probe-core", "probe-matching", "probe-metrics", "probe-reporters"} <= needs


def metadata_of(path: Path) -> set[str]:
    (line,) = (line for line in path.read_text("utf-8").splitlines() if line.startswith("dependencies"))
    return set(re.findall(r'"([a-zA-Z_-]+)', line))


def module(name: str, **hooks: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    sys.modules[name] = made
    for hook, function in hooks.items():
        setattr(made, hook, hookimpl(function))
    return made


def spec(name: str = "mine") -> MetricSpec:
    return MetricSpec(name, "a metric", "nowhere:Nothing", ("Mine",))


def test_two_of_one_name_are_an_error_only_when_used() -> None:
    def one() -> list[MetricSpec]:
        return [spec("twice"), spec("once")]

    def two() -> list[MetricSpec]:
        return [spec("twice")]

    manager = manager_of(one=module("plugin_one", probe_metrics=one), two=module("plugin_two", probe_metrics=two))
    assert manager.find("metrics", "once", MetricSpec).name == "once"
    with pytest.raises(UserError) as caught:
        manager.find("metrics", "twice", MetricSpec)
    assert "Several plugins" in caught.value.what and len(caught.value.choices) == 2


@pytest.mark.parametrize(
    "hooks, says",
    [
        ({"probe_metrics": lambda: 1 / 0}, "ZeroDivisionError"),
        ({"probe_metrics": lambda: ["no spec"]}, "must return MetricSpec, not str"),
        ({"probe_metrics": lambda: 3}, "probe_metrics must return a list, not int"),
    ],
)
def test_hooks_that_fail_leave_their_plugin_out(hooks: dict[str, Any], says: str) -> None:
    manager = manager_of(bad=module("plugin_bad", **hooks))
    with pytest.warns(PluginWarning, match=says):
        assert manager.contributions("metrics") == []
    assert says.split()[-1] in manager.plugins["bad"].problem


def test_a_hook_name_mistyped_is_not_silent() -> None:
    with pytest.warns(PluginWarning, match="unknown hook 'probe_metric'.*; did you mean probe_metrics?"):
        manager = manager_of(typo=module("plugin_typo", probe_metric=lambda: []))
    assert manager.plugins["typo"].problem


def test_a_hook_that_is_not_marked_is_not_silent() -> None:
    plain = types.ModuleType("plugin_plain")
    plain.probe_metrics = lambda: []  # type: ignore[attr-defined]
    with pytest.warns(PluginWarning, match="probe_metrics is not marked with @hookimpl"):
        manager_of(plain=plain)
    helper = types.ModuleType("plugin_helper")
    helper.probe_table = lambda: []  # type: ignore[attr-defined]  # no hook of that name
    assert not manager_of(helper=helper).plugins["helper"].problem


def test_observers_that_fail_are_logged(runs: Any, tmp_path: Path) -> None:
    seen: list[str] = []

    def started(target: str, golden: str) -> None:
        seen.append(target)
        raise RuntimeError("no")

    manager = manager_of(watcher=module("plugin_watcher", probe_run_started=started))
    with pytest.warns(PluginWarning, match="probe_run_started of watcher failed: RuntimeError: no"):
        manager.notify("probe_run_started", target="t", golden="g")
    assert seen == ["t"]


def test_a_metric_that_raises_costs_its_cells(runs: Any, tmp_path: Path, rows_of: Any, monkeypatch: Any) -> None:
    from probe_sample.sign_flips import SignFlips

    def broken(self: Any, pair: Any) -> Any:
        raise ValueError("oh dear")

    monkeypatch.setattr(SignFlips, "measure", broken)
    base = runs("tensor_L1_datamap")
    rows = rows_of(base / "npu_dump", base / "bench_dump", "--metric", "sign_flips")
    measured = [row for row in rows if row["Cosine"] == 1]
    assert measured and all(row["Sign flips"] == "N/A" for row in measured)
    assert all("Metric sign_flips failed: ValueError: oh dear." in row["Err_message"] for row in measured)


def test_every_hook_is_documented_and_listed() -> None:
    manager = Manager()
    hooks = {name: getattr(module, name).__doc__ for module in manager.hookspecs for name in dir(module)
             if name.startswith("probe_")}  # fmt: skip
    for name, manual in hooks.items():
        assert "Example::" in manual and len(manual.split()) > 15, name
    assert {f"probe_{kind}" for kind in manager.kinds} <= set(hooks)
    assert {"probe_metrics", "probe_runners"} <= set(hooks)


# -- hooks that kits declare -----------------------------------------------------------------------


class ShapeSpec(Spec):
    """Requirements of the kit of these tests."""


@hookspec
def probe_shapes() -> Any:
    """Shapes, asked of plugins by the kit."""


def kit(name: str, distribution: str = "", **members: Any) -> metadata.EntryPoint:
    """The entry point of a module of hookspecs, of a distribution with a version."""
    made = types.ModuleType(name)
    sys.modules[name] = made
    for member, value in members.items():
        setattr(made, member, value)
    point = metadata.EntryPoint(name, name, HOOKSPECS)
    if distribution:
        dist = types.SimpleNamespace(metadata={"Name": distribution, "Version": "2.5"})
        vars(point).update(dist=dist)
    return point


def shapes(*names: str) -> metadata.EntryPoint:
    made = module("plugin_shapes", probe_shapes=lambda: [ShapeSpec(name, "a shape", "a:b") for name in names])
    return metadata.EntryPoint("shapes", made.__name__, GROUP)


def test_a_kit_declares_a_kind() -> None:
    point = kit("kit_of_shapes", KINDS={"shapes": ShapeSpec}, probe_shapes=probe_shapes)
    manager = Manager([shapes("round")], [point])
    assert manager.kinds == {**KINDS, "shapes": ShapeSpec}
    assert manager.find("shapes", "round", ShapeSpec).summary == "a shape"
    assert [one.__name__ for one in manager.hookspecs] == [hookspecs.__name__, "kit_of_shapes"]
    with pytest.raises(UserError, match='There is no shape called "square"'):
        manager.find("shapes", "square", ShapeSpec)


def test_a_kind_may_be_an_address_that_is_imported_when_it_is_asked_for() -> None:
    module("types_of_shapes", ShapeSpec=ShapeSpec)
    point = kit("kit_of_shapes", KINDS={"shapes": "types_of_shapes:ShapeSpec"}, probe_shapes=probe_shapes)
    manager = Manager([shapes("round")], [point])
    assert manager.kinds["shapes"] == "types_of_shapes:ShapeSpec"
    assert manager.find("shapes", "round", ShapeSpec).summary == "a shape"
    assert manager.kinds["shapes"] is ShapeSpec


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("no_such_types:ShapeSpec", "No module named 'no_such_types'"),
        ("types_of_shapes:Nothing", "has no attribute 'Nothing'"),
        ("builtins:str", "must be a subclass of Spec"),
    ],
)
def test_an_address_that_leads_nowhere_leaves_the_kit_out(where: str, says: str) -> None:
    module("types_of_shapes", ShapeSpec=ShapeSpec)
    point = kit("kit_of_shapes", "probe-shapes", KINDS={"shapes": where}, probe_shapes=probe_shapes)
    manager = Manager([shapes("round")], [point])
    with pytest.warns(PluginWarning, match=r"probe-shapes 2\.5") as warned:
        assert manager.contributions("shapes") == []
    assert says in str(warned[0].message)


def test_what_a_hook_of_a_kit_returns_is_checked() -> None:
    point = kit("kit_of_shapes", KINDS={"shapes": ShapeSpec}, probe_shapes=probe_shapes)
    made = module("plugin_no_shapes", probe_shapes=lambda: [spec()])
    manager = Manager([metadata.EntryPoint("bad", made.__name__, GROUP)], [point])
    with pytest.warns(PluginWarning, match="probe_shapes must return ShapeSpec, not MetricSpec"):
        assert manager.contributions("shapes") == []


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({}, "has no attribute 'KINDS'"),
        ({"KINDS": {"shapes": ShapeSpec}}, "did not find any 'probe' hooks"),
        ({"KINDS": {"forms": ShapeSpec}, "probe_shapes": probe_shapes, "probe_forms": len},
         'its kind "forms" has no hookspec probe_forms'),
        ({"KINDS": {"shapes": str}, "probe_shapes": probe_shapes}, "must be a subclass of Spec"),
        ({"KINDS": {"metrics": ShapeSpec}, "probe_metrics": probe_shapes},
         'its kind "metrics" is declared by probe-core'),
    ],
)  # fmt: skip
def test_a_broken_kit_costs_one_warning_and_no_plugin(members: dict[str, Any], says: str) -> None:
    """It names distribution, version and fix; plugins that give what the kit would ask for are loaded."""
    point = kit("kit_broken", "probe-shapes", **members)
    with pytest.warns(PluginWarning) as warned:
        manager = Manager([shapes("round")], [point])
    (message,) = (str(one.message) for one in warned if one.category is PluginWarning)
    assert "plugin kit_broken (probe-shapes 2.5) is left out" in message and says in message
    assert "pip uninstall probe-shapes" in message
    assert manager.contributions("shapes") == []
    assert [one.name for one in manager.plugins.values() if one.problem] == ["kit_broken"]


def test_a_kit_that_cannot_be_imported_costs_one_warning() -> None:
    with pytest.warns(PluginWarning, match="ModuleNotFoundError: No module named 'no_such_kit'"):
        manager = Manager([], [metadata.EntryPoint("kit", "no_such_kit", HOOKSPECS)])
    assert manager.names("commands") == []


def test_of_two_kits_with_one_kind_the_second_is_left_out() -> None:
    members = {"KINDS": {"shapes": ShapeSpec}, "probe_shapes": probe_shapes}
    points = kit("kit_first", "probe-first", **members), kit("kit_second", "probe-second", **members)
    with pytest.warns(PluginWarning) as warned:
        manager = Manager([shapes("round")], points)
    (message,) = (str(one.message) for one in warned)
    assert "plugin kit_second (probe-second 2.5)" in message
    assert 'its kind "shapes" is declared by probe-first 2.5 as well' in message
    assert manager.names("shapes") == ["round"]


def test_probe_plugins_lists_the_kinds_of_kits() -> None:
    listed = {plugin["name"]: plugin for plugin in json.loads(probe("plugins", "--json").stdout)}
    assert listed["pytorch"]["contributes"]["runners"]
    assert listed["metrics"]["contributes"]["standards"]
    assert listed["sample"]["contributes"]["standards"]


def test_the_manager_loads_what_is_installed() -> None:
    assert {"core", "pytorch", "mindspore", "metrics", "reporters", "sample"} <= set(Manager().plugins)


@pytest.mark.parametrize("given", [s for s in SPECS if s.needs.value == "tensor"], ids=lambda s: s.name)
class TestConformance:
    """Every metric that looks at tensors passes the kit that plugin authors use."""

    @pytest.mark.parametrize("check", [name for name in dir(MetricConformance) if name.startswith("test_")])
    def test_it(self, given: MetricSpec, check: str) -> None:
        conformance = type("Conformance", (MetricConformance,), {"spec": given})()
        getattr(conformance, check)()


def test_manager_loads_plugins_by_name_in_any_order_of_installation() -> None:
    points = list(metadata.entry_points().select(group=GROUP))
    names = list(Manager(points).plugins)
    assert names == list(Manager(points[::-1]).plugins) == ["core", *sorted(names[1:])]
