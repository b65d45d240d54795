"""The recorder's config.json: each field in its meaning, each mistake in one sentence that names the field."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_matching.user_maps import create_api_entries
from probe_precheck.settings import parse_settings
from probe_pytorch.debugger import PrecisionDebugger
from probe_ranks.command.run_paths import COMPARE_FILE_KEYS, parse_run_paths
from probe_recording.settings.config import Config, ConfigWarning, load_config, parse
from support.cases import every

from probe_core.errors import UserError

API = ["Functional.linear.0.forward", "Functional.relu.2.backward"]
MODULE = ["Module.fc1.Linear.forward.0", "Module.block.0.fc2.Linear.backward.3"]
BOTH = {"forward", "backward"}
SIDES = {"input", "output"}


def parsed(**fields: Any) -> Config:
    """A configuration that nothing is wrong with, not even a little."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of what another test left to the collector
        return parse({"dump_path": "dump", **fields})


def warned(**fields: Any) -> tuple[Config, list[str]]:
    """A configuration, and the sentences that its author is told."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what another test left to the collector
        config = parse({"dump_path": "dump", **fields})
    assert all(issubclass(warning.category, ConfigWarning) for warning in caught)
    return config, [str(warning.message) for warning in caught]


def refused(**fields: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        parse({"dump_path": "dump", **fields})
    return caught.value


# -- what is left out ------------------------------------------------------------------------------


def test_defaults() -> None:
    config = parsed()
    assert (config.task, config.level, config.summary, config.precision) == (
        "statistics", "L1", "statistics", "low",
    )  # fmt: skip
    assert config.ranks == config.steps == frozenset()
    assert config.scope == config.names == config.tensor_names == ()
    assert (config.directions, config.sides, config.parameter_gradients) == (BOTH, SIDES, True)
    assert (config.asynchronous, config.extra_info, config.dataloader) == (False, True, False)
    assert (config.seed, config.deterministic, config.enabled) == (None, False, None)
    assert (config.store, config.compile, config.overflow_count) == ("packed", "eager", 1)
    assert (config.wrap_ops, config.path, config.acl_config) == (None, None, "")
    assert config.dump_path == Path.cwd() / "dump"
    assert config.shown_path == "dump"


@pytest.mark.parametrize("empty", ["", None])
@pytest.mark.parametrize(
    ("field", "attribute", "default"),
    [("task", "task", "statistics"), ("level", "level", "L1"), ("precision", "precision", "low"),
     ("store", "store", "packed"), ("compile", "compile", "eager")],
)  # fmt: skip
def test_an_empty_choice_is_the_default(field: str, attribute: str, default: str, empty: Any) -> None:
    assert getattr(parsed(**{field: empty}), attribute) == default


@pytest.mark.parametrize("empty", [{}, None])
def test_an_empty_section_is_one_left_out(empty: Any) -> None:
    assert parsed(statistics=empty) == parsed()


# -- fields and their meaning ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "attribute", "value"),
    [
        ({"task": "tensor"}, "task", "tensor"),
        ({"task": "overflow_check"}, "task", "overflow_check"),
        ({"task": "nan_check"}, "task", "overflow_check"),
        ({"task": "structure", "level": "mix"}, "task", "structure"),
        ({"rank": [3, 0]}, "ranks", {0, 3}),
        ({"rank": []}, "ranks", set()),
        ({"step": ["2-5", 9]}, "steps", {2, 3, 4, 5, 9}),
        ({"step": ["4-4"]}, "steps", {4}),
        ({"step": [" 0-1 ", "1-2"]}, "steps", {0, 1, 2}),
        ({"step": [1_000_000]}, "steps", {1_000_000}),
        ({"level": "L0"}, "level", "L0"),
        ({"level": "debug"}, "level", "debug"),
        ({"level": "L2", "task": "tensor"}, "level", "L2"),
        ({"async_dump": True}, "asynchronous", True),
        ({"precision": "high"}, "precision", "high"),
        ({"extra_info": False}, "extra_info", False),
        ({"risk_level": "ALL"}, "risk_level", "ALL"),
        ({"risk_level": "CORE"}, "risk_level", "CORE"),
        ({"risk_level": "FOCUS"}, "risk_level", "FOCUS"),
        ({"dump_enable": True}, "enabled", True),
        ({"dump_enable": False}, "enabled", False),
        ({"seed": 0}, "seed", 0),
        ({"seed": 2**32 - 1}, "seed", 2**32 - 1),
        ({"is_deterministic": True, "seed": 1}, "deterministic", True),
        ({"acl_config": "acl.json"}, "acl_config", "acl.json"),
        ({"store": "files"}, "store", "files"),
        ({"compile": "tap", "level": "L0"}, "compile", "tap"),
        ({"support_wrap_ops": "ops.yaml"}, "wrap_ops", Path("ops.yaml")),
        ({"statistics": {"list": ["relu", "Module.fc"]}}, "names", ("relu", "Module.fc")),
        ({"statistics": {"scope": API}}, "scope", tuple(API)),
        ({"statistics": {"tensor_list": ["relu"]}}, "tensor_names", ("relu",)),
        ({"statistics": {"summary_mode": "md5"}}, "summary", "md5"),
        ({"statistics": {"summary_mode": "xxh3"}}, "summary", "xxh3"),
        ({"statistics": {"summary_mode": "xor"}}, "summary", "xxh3"),
        ({"statistics": {"file_format": "npy"}}, "summary", "statistics"),
        ({"task": "tensor", "tensor": {"list": ["relu"]}}, "names", ("relu",)),
        ({"task": "tensor", "tensor": {"summary_mode": "md5"}}, "summary", "md5"),
        ({"task": "overflow_check", "overflow_check": {"overflow_nums": 3}}, "overflow_count", 3),
        ({"task": "overflow_check", "overflow_check": {"overflow_nums": -1}}, "overflow_count", -1),
        ({"task": "overflow_check", "overflow_check": {"check_mode": "all"}}, "overflow_count", 1),
        ({"task": "nan_check", "nan_check": {"overflow_nums": 3}}, "overflow_count", 3),
        ({"task": "nan_check", "overflow_check": {"overflow_nums": 3}}, "overflow_count", 3),
    ],
    ids=repr,
)
def test_field(fields: dict[str, Any], attribute: str, value: Any) -> None:
    found = getattr(parsed(**fields), attribute)
    assert found == value
    assert type(found) is not bool or type(value) is bool


@pytest.mark.parametrize(
    ("field", "written", "attribute", "value"),
    [("level", "l1", "level", "L1"), ("level", "MIX", "level", "mix"), ("level", "l0", "level", "L0"),
     ("level", "Debug", "level", "debug"), ("task", "Tensor", "task", "tensor"),
     ("task", "NAN_CHECK", "task", "overflow_check"), ("precision", "HIGH", "precision", "high"),
     ("risk_level", "core", "risk_level", "CORE"), ("store", "FILES", "store", "files")],
)  # fmt: skip
def test_letters_of_a_choice_may_be_large_or_small(field: str, written: str, attribute: str, value: str) -> None:
    assert getattr(parsed(**{field: written}), attribute) == value


def test_only_the_section_of_the_task_counts() -> None:
    sections = {"statistics": {"list": ["a"]}, "tensor": {"list": ["b"]}, "run_ut": {"white_list": ["c"]}}
    assert parsed(**sections).names == ("a",)
    assert parsed(task="tensor", **sections).names == ("b",)


@pytest.mark.parametrize(
    ("fields", "saves", "modules", "apis"),
    [
        ({}, False, False, True),
        ({"level": "L0"}, False, True, False),
        ({"level": "mix", "task": "tensor"}, True, True, True),
        ({"task": "overflow_check"}, True, False, True),
        ({"statistics": {"tensor_list": ["relu"]}}, True, False, True),
        ({"level": "debug", "task": "tensor"}, True, False, False),
        ({"level": "L2"}, False, False, False),
    ],
    ids=repr,
)
def test_what_follows(fields: dict[str, Any], saves: bool, modules: bool, apis: bool) -> None:
    config = parsed(**fields)
    assert (config.saves_tensors, config.modules, config.apis) == (saves, modules, apis)


def test_a_tensor_list_does_not_count_at_level_debug() -> None:
    assert parsed(level="debug", statistics={"tensor_list": ["x"]}).tensor_names == ()


@pytest.mark.parametrize("level", ["L1", "debug"])
def test_the_structure_needs_modules(level: str) -> None:
    config, texts = warned(task="structure", level=level)
    assert (config.task, config.level) == ("structure", "mix")
    assert len(texts) == 1 and "structure" in texts[0] and "mix" in texts[0]
    assert parsed(task="structure", level="L0").level == "L0"


MODES = ("forward", "backward", "input", "output")


@every("modes", [m for count in range(5) for m in itertools.combinations(MODES, count)], ids="+".join)
def test_data_mode_is_completed(modes: tuple[str, ...]) -> None:
    """Of a pair that is not named both are meant (docs/configuration.md#scope, the rule of 8.3)."""
    config = parsed(statistics={"data_mode": list(modes)})
    for found, pair in ((config.directions, BOTH), (config.sides, SIDES)):
        assert found == (pair & set(modes) or pair)
    assert config.parameter_gradients == ("forward" not in modes or "backward" in modes)


def test_all_is_everything() -> None:
    assert parsed(statistics={"data_mode": ["all"]}) == parsed()


# -- scope -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "scope"),
    [("L1", API), ("L0", MODULE), ("mix", API), ("mix", MODULE), ("mix", [API[0], MODULE[1]]),
     ("L1", ["Torch.linalg.norm.0.forward", "Tensor.__add__.12.forward"]),
     ("L1", ["Distributed.all_reduce.0.forward", "VF.lstm.0.backward"]),
     ("L1", ["NPU.npu_rms_norm.0.forward", "Aten.mm.0.forward"]),
     ("L1", ["my_package.attention.flash.0.forward", "MindSpeed.fused.0.forward"]),
     ("L0", ["Cell.fc.Dense.forward.0", "Module.0.fc.Linear.forward.11"]), ("L1", [])],
)  # fmt: skip
def test_scope_names_records_of_the_level(level: str, scope: list[str]) -> None:
    assert parsed(level=level, statistics={"scope": scope}).scope == tuple(scope)


@pytest.mark.parametrize(
    ("level", "scope", "culprit"),
    [("L1", [API[0], "relu"], "relu"), ("L1", MODULE, MODULE[0]), ("L0", API, API[0]),
     ("L0", [MODULE[0], "Module.fc.Linear.0.forward"], "Module.fc.Linear.0.forward"),
     ("mix", [API[0], "Module.fc"], "Module.fc"), ("L1", [API[0], "Functional.relu.forward"], "Functional.relu.forward"),
     ("L1", ["Functional.relu.0.forward.input", API[0]], "Functional.relu.0.forward.input"),
     ("L1", [API[0], "Functional.relu.x.forward"], "Functional.relu.x.forward")],
)  # fmt: skip
def test_scope_refuses_what_is_no_name(level: str, scope: list[str], culprit: str) -> None:
    error = refused(level=level, statistics={"scope": scope})
    assert '"scope"' in error.what and f'"{culprit}"' in error.what and level in error.what
    assert len(error.choices) == 2


def test_scope_is_judged_at_the_level_that_is_used() -> None:
    config, _ = warned(task="structure", structure={"scope": MODULE})
    assert config.scope == tuple(MODULE)


# -- what is refused -------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"task": "statistic"}, "task"),
    ({"task": 3}, "task"),
    ({"task": ["tensor"]}, "task"),
    *(({"task": task}, "task")
      for task in ("run_ut", "acc_check", "exception_dump")),
    ({"task": "diff_check"}, "bench_path"),
    ({"task": "diff_check", "diff_check": {"bench_path": "golden", "diff_nums": 0}}, "diff_nums"),
    ({"statistics": {"bench_path": 3}}, "bench_path"),
    ({"statistics": {"bench_path": "golden"}, "level": "L2"}, "bench_path"),
    ({"level": "L3"}, "level"),
    ({"level": 1}, "level"),
    ({"precision": "medium"}, "precision"),
    ({"risk_level": "SOME"}, "risk_level"),
    ({"store": "zip"}, "store"),
    ({"compile": "no"}, "compile"),
    ({"rank": "2-5"}, "rank"),
    ({"rank": 3}, "rank"),
    ({"rank": {"0": 1}}, "rank"),
    ({"rank": [-1]}, "rank"),
    ({"rank": [1.0]}, "rank"),
    ({"rank": [True]}, "rank"),
    ({"rank": [None]}, "rank"),
    ({"rank": ["3"]}, "rank"),
    ({"rank": ["1-2-3"]}, "rank"),
    ({"rank": [1_000_001]}, "rank"),
    ({"step": ["5-2"]}, "step"),
    ({"step": ["0-1000001"]}, "step"),
    ({"step": ["-1-2"]}, "step"),
    ({"step": [[1]]}, "step"),
    ({"dump_path": ""}, "dump_path"),
    ({"dump_path": None}, "dump_path"),
    ({"dump_path": 5}, "dump_path"),
    ({"enable_dataloader": "yes"}, "enable_dataloader"),
    ({"async_dump": 1}, "async_dump"),
    ({"extra_info": "true"}, "extra_info"),
    ({"is_deterministic": 0}, "is_deterministic"),
    ({"dump_enable": "on"}, "dump_enable"),
    ({"acl_config": 3}, "acl_config"),
    ({"support_wrap_ops": ["ops.yaml"]}, "support_wrap_ops"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**32}, "seed"),
    ({"seed": True}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"seed": "1"}, "seed"),
    ({"statistics": ["list"]}, "statistics"),
    ({"statistics": 3}, "statistics"),
    ({"statistics": {"list": "relu"}}, "list"),
    ({"statistics": {"list": [""]}}, "list"),
    ({"statistics": {"list": ["relu", 3]}}, "list"),
    ({"statistics": {"tensor_list": ["relu", ""]}}, "tensor_list"),
    ({"statistics": {"scope": "a"}}, "scope"),
    ({"statistics": {"scope": [API[0]]}}, "scope"),
    ({"statistics": {"scope": [*API, API[0]]}}, "scope"),
    ({"statistics": {"data_mode": ["all", "forward"]}}, "data_mode"),
    ({"statistics": {"data_mode": ["forwards"]}}, "data_mode"),
    ({"statistics": {"data_mode": "forward"}}, "data_mode"),
    ({"statistics": {"summary_mode": "mean"}}, "summary_mode"),
    ({"statistics": {"summary_mode": 5}}, "summary_mode"),
    ({"task": "overflow_check", "overflow_check": {"overflow_nums": 0}}, "overflow_nums"),
    ({"task": "overflow_check", "overflow_check": {"overflow_nums": -2}}, "overflow_nums"),
    ({"task": "overflow_check", "overflow_check": {"overflow_nums": "1"}}, "overflow_nums"),
    ({"task": "overflow_check", "overflow_check": {"overflow_nums": True}}, "overflow_nums"),
    ({"async_dump": True, "statistics": {"summary_mode": "md5"}}, "async_dump"),
    ({"async_dump": True, "task": "tensor"}, "async_dump"),
    ({"level": "debug", "task": "overflow_check"}, "debug"),
    ({"compile": "tap"}, "compile"),
    ({"compile": "tap", "level": "mix"}, "compile"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "named"), REFUSED, ids=repr)
def test_refused_in_a_sentence_that_names_the_field(fields: dict[str, Any], named: str) -> None:
    error = refused(**fields)
    assert f'"{named}"' in error.what
    assert error.what.startswith("The configuration") and error.what.endswith(".")
    assert "\n" not in error.what
    assert error.fix or error.choices


@every("value", [0, False, "", {}], ids=repr)
@every("named", ["rank", "step", "list", "scope"])
def test_nothing_but_a_list_is_a_list(named: str, value: Any) -> None:
    error = refused(**({named: value} if named in ("rank", "step") else {"statistics": {named: value}}))
    assert f'"{named}"' in error.what


def test_choices_are_shown() -> None:
    assert refused(level="L3").choices == ("L0", "L1", "mix", "L2", "debug")
    assert refused(statistics={"data_mode": ["x"]}).choices == ("all", *MODES)
    assert "statistics" in refused(task="run_ut").choices


def test_the_fix_of_a_data_mode_is_a_data_mode() -> None:
    assert "relu" not in refused(statistics={"data_mode": "forward"}).fix


def test_a_section_is_named_with_its_field() -> None:
    assert 'section "tensor"' in refused(task="tensor", tensor={"list": 3}).what


def test_asynchronous_recording_that_is_allowed() -> None:
    assert parsed(async_dump=True, task="tensor", tensor={"list": ["relu"]}).asynchronous
    assert parsed(async_dump=True, task="tensor", level="debug").asynchronous
    assert parsed(async_dump=True, statistics={"summary_mode": "statistics"}).asynchronous


# -- dump_path -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a+b", "a b", "ä", "a\n", "a:b", "a*", "~/x", "a\\b", "a,b"])
def test_characters_of_the_path(name: str) -> None:
    error = refused(dump_path=name)
    bad = next(c for c in name if c in "+ ä\n:*~\\,")
    assert '"dump_path"' in error.what and repr(bad) in error.what


def test_the_working_directory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "c++"
    inside.mkdir()
    monkeypatch.chdir(inside)
    assert "'+'" in refused(dump_path="dump").what
    assert parsed(dump_path=str(tmp_path / "dump")).dump_path == tmp_path / "dump"


def test_the_path_is_absolute_and_kept_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = parsed(dump_path="./a_1/b-2.3")
    assert config.dump_path == tmp_path / "a_1" / "b-2.3"
    assert config.shown_path == "./a_1/b-2.3"


# -- what is warned about ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "name", "meant"),
    [({"leval": "L1"}, "leval", "level"), ({"steps": [1]}, "steps", "step"), ({"ranks": [1]}, "ranks", "rank"),
     ({"dump_dir": "x"}, "dump_dir", "dump_path"), ({"statistic": {}}, "statistic", "statistics"),
     ({"statistics": {"lists": ["a"]}}, "lists", "list"),
     ({"statistics": {"data_modes": ["all"]}}, "data_modes", "data_mode"),
     ({"task": "tensor", "tensor": {"summary": "md5"}}, "summary", "summary_mode"),
     ({"task": "overflow_check", "overflow_check": {"overflow_num": 2}}, "overflow_num", "overflow_nums")],
)  # fmt: skip
def test_unknown_fields_are_named_with_the_nearest(fields: dict[str, Any], name: str, meant: str) -> None:
    config, texts = warned(**fields)
    assert len(texts) == 1
    assert f'"{name}"' in texts[0] and f'did you mean "{meant}"?' in texts[0]
    plain = parsed(**{key: value for key, value in fields.items() if key == "task"})
    assert config == plain  # it is ignored


@pytest.mark.parametrize("name", ["0", "device", "devices", "model", "mode", "verbose", "log", "comment", "framework"])
def test_a_field_like_no_other_is_named_alone(name: str) -> None:
    _, texts = warned(**{name: 1})
    assert texts == [f'The configuration: unknown field "{name}" is ignored']


@pytest.mark.parametrize("name", ["device", "dtype", "comment", "model"])
def test_a_field_like_no_other_of_a_section_is_named_alone(name: str) -> None:
    _, texts = warned(statistics={name: 1})
    assert texts == [f'The configuration: section "statistics": unknown field "{name}" is ignored']


def test_a_field_in_the_wrong_place_is_told_its_own() -> None:
    _, texts = warned(list=["relu"])
    assert texts == ['The configuration: unknown field "list" is ignored; it belongs in the section "statistics"']
    _, texts = warned(task="tensor", tensor={"level": "L0"})
    assert texts == [
        'The configuration: section "tensor": unknown field "level" is ignored; it belongs outside of the section'
    ]


@pytest.mark.parametrize("name", ["match", "version", "target", "inputs"])
def test_no_unrelated_name_is_suggested_anywhere(name: str) -> None:
    """Of a compare file, of the pre-check's configuration and of an API mapping."""
    refusals = (
        lambda: parse_run_paths({name: 1}, "it", {key: key for key in COMPARE_FILE_KEYS}),
        lambda: parse_settings({name: 1}, "it"),
        lambda: create_api_entries([{"ms_api": "a", "pt_api": "b", name: 1}], "it"),
    )
    for refuse in refusals:
        with pytest.raises(UserError) as caught:
            refuse()
        assert f'"{name}"' in caught.value.what and "mean" not in caught.value.fix


@pytest.mark.parametrize(
    ("task", "section"),
    [("statistics", {"file_format": "bin"}), ("tensor", {"backward_input": ["x.pt"]}),
     ("tensor", {"online_run_ut_recompute": True}), ("tensor", {"host": "h"})],
)  # fmt: skip
def test_known_fields_of_no_use_are_warned_about(task: str, section: dict[str, Any]) -> None:
    _, texts = warned(task=task, **{task: section})
    assert len(texts) == 1 and f'"{next(iter(section))}"' in texts[0]


@pytest.mark.parametrize("section", [{"slice": [{"dim": 0}]}, {"request_id": "x"}])
def test_slices_need_a_level_of_calls_or_modules(section: dict[str, Any]) -> None:
    config, texts = warned(task="statistics", level="debug", statistics=section)
    assert len(texts) == 1 and "need level L0, L1 or mix" in texts[0] and not (config.slices or config.request)
    assert warned(task="statistics", level="mix", statistics=section)[1] == []


def test_slices_are_refused_for_calls_that_are_sent() -> None:
    with pytest.raises(UserError, match="cannot be combined with"):
        parsed(task="tensor", tensor={"slice": [{"dim": 0}], "online_run_ut": True, "nfs_path": "shared"})


def test_the_same_fields_asking_for_nothing_are_not() -> None:
    parsed(task="tensor", tensor={"backward_input": [], "online_run_ut": False, "host": "", "port": None})


# -- files and arguments ---------------------------------------------------------------------------

PEER_8 = """{
 "task": "statistics", "dump_path": "./npu_dump", "rank": [], "step": [], "level": "L1", "async_dump": false,
 "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "md5"},
 "tensor": {"scope": [], "list": [], "data_mode": ["all"]}
}"""
PEER_26 = """{
 "task": "tensor", "dump_path": "./npu_dump", "rank": [], "step": [], "level": "mix", "async_dump": false,
 "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
 "tensor": {"scope": [], "list": [], "data_mode": ["all"]}, "risk_level": "ALL"
}"""
PEER_DEFAULT = """{
    "task": "statistics", "dump_path": "/home/data_dump", "rank": [], "step": [], "level": "L1",
    "async_dump": false, "precision": "low", "extra_info": true,
    "statistics": {"scope": [], "list": [], "tensor_list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    "tensor": {"scope": [], "list":[], "data_mode": ["all"], "summary_mode": "statistics", "file_format": "npy",
               "online_run_ut": false, "nfs_path": "", "host": "", "port": -1},
    "run_ut": {"white_list": [], "black_list": [], "error_data_path": "./"},
    "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"},
    "overflow_check": {"overflow_nums": 1}, "nan_check": {"overflow_nums": 1},
    "free_benchmark": {"scope": [], "list": [], "fuzz_device": "npu", "pert_mode": "improve_precision",
        "handler_type": "check", "fuzz_level": "L1", "fuzz_stage": "forward", "if_preheat": false,
        "preheat_step": 15, "max_sample": 20},
    "grad_probe": {"grad_level": "L1", "param_list": [], "bounds": [-1, 0, 1]},
    "structure": {"scope": [], "list": []}, "exception_dump": {}
}"""


@pytest.mark.parametrize(
    ("text", "task", "level", "summary"),
    [(PEER_8, "statistics", "L1", "md5"), (PEER_26, "tensor", "mix", "statistics"),
     (PEER_DEFAULT, "statistics", "L1", "statistics")],
    ids=["8.3", "26", "default"],
)  # fmt: skip
def test_files_of_msprobe_work_unchanged(text: str, task: str, level: str, summary: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = load_config(path)
    assert (config.task, config.level, config.summary) == (task, level, summary)
    assert (config.names, config.scope, config.directions, config.sides) == ((), (), BOTH, SIDES)
    assert config.path == path


def test_arguments_come_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(PEER_8)
    config = load_config("config.json", task="tensor", dump_path="other", level="mix", step=["1-2"])
    assert (config.task, config.level, config.steps) == ("tensor", "mix", {1, 2})
    assert config.dump_path == tmp_path / "other"
    assert config.path == tmp_path / "config.json"
    kept = load_config("config.json", task=None, dump_path=None, level=None, step=None)
    assert (kept.task, kept.level, kept.dump_path) == ("statistics", "L1", tmp_path / "npu_dump")


def test_without_a_file_the_arguments_are_all(tmp_path: Path) -> None:
    config = load_config(None, dump_path=str(tmp_path / "dump"), level="L0")
    assert (config.level, config.task, config.path) == ("L0", "statistics", None)
    with pytest.raises(UserError, match="dump_path"):
        load_config(None)


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read"), (b"{", "not valid JSON"), (b"", "not valid JSON"), (b"[]", "one JSON object"),
     (b"\xff\xfe", "not valid JSON"), (b'"x"', "one JSON object"), (b"{'task': 1}", "not valid JSON")],
    ids=repr,
)  # fmt: skip
def test_a_file_that_is_none(content: bytes | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert says in caught.value.what and str(path) in caught.value.what and caught.value.fix


def test_a_mistake_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dump_path": "x", "level": "L7"}))
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert str(path) in caught.value.what and '"level"' in caught.value.what


# -- through the debugger ----------------------------------------------------------------------------


@pytest.fixture
def no_debugger() -> Iterator[None]:
    PrecisionDebugger._instance = None
    yield
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._recorder.finish()
    PrecisionDebugger._instance = None


@pytest.mark.usefixtures("no_debugger")
def test_arguments_of_the_constructor_come_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dump_path": str(tmp_path / "a"), "step": [9]}))
    debugger = PrecisionDebugger(path, task="tensor", dump_path=tmp_path / "b", level="L0", step=[1, "3-4"])
    config = debugger._recorder.config
    assert (config.task, config.level, config.steps, config.dump_path) == (
        "tensor", "L0", {1, 3, 4}, tmp_path / "b",
    )  # fmt: skip


@pytest.mark.usefixtures("no_debugger")
def test_a_refused_construction_leaves_none_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="level"):
        PrecisionDebugger(dump_path=tmp_path / "a", level="L9")
    second = PrecisionDebugger(dump_path=tmp_path / "a", level="L0")
    assert second._recorder.config.level == "L0"


@pytest.mark.usefixtures("no_debugger")
def test_determinism_does_not_need_a_seed(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dump_path": str(tmp_path / "a"), "is_deterministic": True}))
    try:
        PrecisionDebugger(path)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_regular_expressions_in_a_list_are_checked() -> None:
    assert parsed(statistics={"list": ["name-regex(relu|linear)"]}).names == ("name-regex(relu|linear)",)
    with pytest.raises(UserError, match=r"not a valid regular expression") as caught:
        parse({"dump_path": "dump", "statistics": {"list": ["name-regex(()"]}})
    assert "name-regex(linear|relu)" in caught.value.fix


@pytest.mark.parametrize("value", [{"path": "run"}, {"path": "run", "modules": ["fc"]}])
def test_load_is_refused_until_it_works(value: object) -> None:
    with pytest.raises(UserError, match='"load" is not supported'):
        parse({"dump_path": "dump", "load": value})


def test_an_empty_load_asks_for_nothing() -> None:
    assert warned(task="statistics", load={})[1] == []
