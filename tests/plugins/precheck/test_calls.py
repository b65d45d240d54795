"""Calls of a run that are checked, and the configuration's say in it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from probe_precheck.calls import RecordedCalls
from probe_precheck.settings import Settings, check_names, parse_settings, read_settings
from probe_recording.reading.run import DumpRun
from support.cases import every
from support.runs.precheck_runs import backward as gradient
from support.runs.precheck_runs import call, drawn, some_calls
from support.runs.recorded import scalar, write_run

from probe_core.errors import UserError


def no_tensor(name: str) -> Any:
    raise AssertionError(f"{name} was opened")


def calls_of(directory: Path, data: dict[str, Any]) -> RecordedCalls:
    return RecordedCalls(DumpRun(write_run(directory, data), "pytorch", no_tensor))


def white(*names: str, black: tuple[str, ...] = ()) -> Settings:
    return Settings(frozenset(names), frozenset(black))


# -- calls -----------------------------------------------------------------------------------------


def test_forward_and_backward_are_one_call_in_the_order_of_the_forward(tmp_path: Path) -> None:
    calls = calls_of(tmp_path, some_calls())
    assert calls.names == [name.removesuffix(".forward") for name in some_calls() if name.endswith(".forward")]
    found = calls.get_call(calls.names.index("Torch.matmul.0"), Settings())
    assert found.forward == some_calls()["Torch.matmul.0.forward"]
    assert found.backward == some_calls()["Torch.matmul.0.backward"]
    assert calls.get_call(calls.names.index("Torch.add.0"), Settings()).backward is None


def test_modules_are_passed_over_and_cells_are_not_run(tmp_path: Path) -> None:
    one = call(drawn([2]))
    calls = calls_of(
        tmp_path,
        {
            "Module.fc.Linear.forward.0": one,
            "Torch.add.0.forward": one,
            "Cell.fc.Dense.forward.0": one,
            "Cell.fc.Dense.parameters_grad.0": one,
            "Cell.fc.Dense.backward.0": one,
            "Module.fc.Linear.backward.0": one,
        },
    )
    assert calls.names == ["Torch.add.0", "Cell.fc.Dense.0"]
    cell = calls.get_call(1, Settings())
    assert cell.backward is not None and "A Cell is not run alone" in cell.problem


@pytest.mark.parametrize("level", ["L0", "L2", ""])
def test_a_run_without_apis_says_what_level_it_is_of(level: str, tmp_path: Path) -> None:
    path = write_run(tmp_path, {"Module.fc.Linear.forward.0": call(drawn([2]))})
    path.write_text(path.read_text().replace('"L1"', json.dumps(level)))
    with pytest.raises(UserError) as caught:
        RecordedCalls(DumpRun(path, "pytorch", no_tensor))
    assert "contains no calls of APIs" in caught.value.what and "level L1 or mix" in caught.value.fix
    assert (f"(level {level})" in caught.value.what) == bool(level)


@pytest.mark.parametrize(
    "name, api, problem",
    [
        ("Torch.add.0", "add", ""),
        ("Torch.linalg.inv.0", "linalg.inv", ""),
        ("Functional.conv2d.123", "conv2d", ""),
        ("NPU.npu_swiglu.0", "npu_swiglu", ""),
        ("Distributed.all_reduce.0", "all_reduce", "Distributed APIs are not supported for run ut. SKIP."),
        ("MindSpeed.x.0", "x", "MindSpeed APIs are not supported for run ut. SKIP."),
        ("Torch.a.b.c.0", "a.b.c", "API Torch.a.b.c.0 not support for run ut. SKIP."),
        ("Torch.add", "", "API Torch.add not support for run ut. SKIP."),
        ("Torch.add.x", "add", "API Torch.add.x not support for run ut. SKIP."),
        ("add", "", "API add not support for run ut. SKIP."),
    ],
)
def test_names(name: str, api: str, problem: str, tmp_path: Path) -> None:
    found = calls_of(tmp_path, {f"{name}.forward": call(drawn([2]))}).get_call(0, Settings())
    assert (found.name, found.problem) == (name, problem)
    if api:
        assert found.api == api


def test_a_backward_alone_has_a_row_at_the_end(tmp_path: Path) -> None:
    data = {"Torch.log.0.backward": gradient([drawn([2])], []), "Torch.add.0.forward": call(drawn([2]))}
    calls = calls_of(tmp_path, data)
    assert calls.names == ["Torch.add.0", "Torch.log.0"]
    found = calls.get_call(1, Settings())
    assert "no forward record" in found.problem and found.backward is not None


def test_costly_calls_are_told_by_their_elements(tmp_path: Path) -> None:
    calls = calls_of(
        tmp_path,
        {
            "Torch.a.0.forward": call(drawn([2, 3])),
            "Torch.b.0.forward": call(drawn([1000, 1000])),
            "Torch.c.0.forward": call(drawn([1000, 1000])),
            "Torch.c.0.backward": gradient([drawn([2])], []),
        },
    )
    a, b, c = (calls.estimate_cost(i) for i in range(3))
    assert a < b < c == 3 * b


# -- -f --------------------------------------------------------------------------------------

BASE: dict[str, Any] = {
    "input_args": [drawn([2, 3]), scalar(1)],
    "input_kwargs": {"dim": scalar(0), "out": drawn([4])},
}
SAME: dict[str, Any] = {
    "Max": 9.0, "Min": -9.0, "Mean": 3.0, "Norm": 7.0, "md5": "ab", "data_name": "Torch.x.1.forward.input.0.pt",
}  # fmt: skip
OTHER: dict[str, Any] = {
    "type": "torch.nn.parameter.Parameter",
    "dtype": "torch.float16",
    "shape": [3, 2],
    "requires_grad": True,
}


def distinct(directory: Path, *records: dict[str, Any]) -> list[int]:
    data = {f"Torch.x.{i}.forward": {**record, "output": []} for i, record in enumerate(records)}
    return list(calls_of(directory, data).iterate_distinct())


def changed(part: str, field: str, value: Any) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(json.dumps(BASE))
    target = {"args": record["input_args"][0], "kwargs": record["input_kwargs"]["out"]}[part]
    target[field] = value
    return record


@pytest.mark.parametrize("part, field", list(product(["args", "kwargs"], SAME)))
def test_statistics_do_not_make_a_call_another(part: str, field: str, tmp_path: Path) -> None:
    assert distinct(tmp_path, BASE, changed(part, field, SAME[field])) == [0]


@pytest.mark.parametrize("part, field", list(product(["args", "kwargs"], OTHER)))
def test_what_makes_a_call_another(part: str, field: str, tmp_path: Path) -> None:
    assert distinct(tmp_path, BASE, changed(part, field, OTHER[field])) == [0, 1]


def test_plain_values_and_their_number_make_a_call_another(tmp_path: Path) -> None:
    value = {**BASE, "input_args": [drawn([2, 3]), scalar(2)]}
    true = {**BASE, "input_args": [drawn([2, 3]), scalar(True)]}
    fewer = {**BASE, "input_args": [drawn([2, 3])]}
    keyword = {**BASE, "input_kwargs": {"dim": scalar(1), "out": drawn([4])}}
    nested = {**BASE, "input_args": [[drawn([2, 3]), scalar(1)]]}
    assert distinct(tmp_path, BASE, value, true, fewer, keyword, nested, BASE, keyword) == [0, 1, 2, 3, 4, 5]


def test_keywords_in_another_order_are_the_same(tmp_path: Path) -> None:
    keywords = dict(reversed(BASE["input_kwargs"].items()))
    assert distinct(tmp_path, BASE, {**BASE, "input_kwargs": keywords}) == [0]


def test_calls_of_other_apis_are_others(tmp_path: Path) -> None:
    data = {f"{name}.forward": {**BASE, "output": []} for name in ("Torch.x.0", "Tensor.x.0", "Torch.y.0", "Torch.x.1")}
    assert list(calls_of(tmp_path, data).iterate_distinct()) == [0, 1, 2]


# -- lists -----------------------------------------------------------------------------------------


@every("whites, blacks", list(product([(), ("a",), ("a", "b")], [(), ("b",), ("c",), ("a", "b")])))
def test_what_both_lists_let_through(whites: tuple[str, ...], blacks: tuple[str, ...]) -> None:
    """Run what is white, or everything where nothing is, and never what is black."""
    settings = white(*whites, black=blacks)
    run = {api for api in "abc" if settings.selects(api)}
    assert run == (set(whites) or set("abc")) - set(blacks)


def test_a_call_that_a_list_leaves_out_says_so(tmp_path: Path) -> None:
    data = {f"Torch.{api}.0.forward": call(drawn([2])) for api in ("add", "linalg.inv", "inv")}
    calls = calls_of(tmp_path, data)
    settings = white(black=("linalg.inv",))
    problems = [calls.get_call(i, settings).problem for i in range(3)]
    assert problems == ["", "API Torch.linalg.inv.0 in black list or not in white list. SKIP.", ""]


@pytest.mark.parametrize(
    "name, nearest",
    [("conv2", "conv2d"), ("Functional.conv2d.0", "conv2d"), ("linalg.inw", "linalg.inv"), ("qqqqqq", "")],
)
def test_names_that_are_no_api_show_the_nearest(name: str, nearest: str) -> None:
    known = {"conv2d", "conv1d", "linalg.inv", "relu"}
    for settings in (white(name), white(black=(name,))):
        with pytest.raises(UserError) as caught:
            check_names(settings, known)
        assert "which is not a recorded API" in caught.value.what and name in caught.value.what
        assert caught.value.choices[:1] == ((nearest,) if nearest else ())
    check_names(white("conv2d", black=("relu",)), known)


# -- the configuration -----------------------------------------------------------------------------


def test_what_holds_without_a_configuration(tmp_path: Path) -> None:
    assert read_settings(None) == Settings(frozenset(), frozenset(), Path(), 14)
    (tmp_path / "empty.yaml").write_text("")
    assert read_settings(tmp_path / "empty.yaml") == Settings()


FIELDS: dict[str, Any] = {
    "white_list": ["relu"],
    "black_list": ["conv1d"],
    "error_data_path": "data",
    "precision": 6,
}
PARSED = Settings(frozenset({"relu"}), frozenset({"conv1d"}), Path("data"), 6)


@pytest.mark.parametrize("section", ["run_ut", "acc_check"])
def test_json_and_yaml_say_the_same(section: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": section, "dump_path": "x", section: FIELDS}))
    assert read_settings(tmp_path / "config.json") == replace(PARSED, dump_path=Path("x"))
    for name in ("config.yaml", "config.yml"):
        (tmp_path / name).write_text("\ufeff" + json.dumps(FIELDS), "utf-8")
        assert read_settings(tmp_path / name) == PARSED


def test_fields_of_msprobe_that_have_no_use_here() -> None:
    online = {"is_online": False, "nfs_path": "", "host": "", "port": -1, "rank_list": [0], "tls_path": ""}
    assert parse_settings({**FIELDS, **online}, "it") == PARSED
    assert parse_settings(dict.fromkeys(["white_list", "black_list", "is_online"]), "it") == Settings()


@pytest.mark.parametrize("digits", [0, 14, 100])
def test_as_many_digits_as_may_be(digits: int) -> None:
    assert parse_settings({"precision": digits}, "it").precision == digits


def test_an_unknown_field_shows_the_nearest() -> None:
    with pytest.raises(UserError) as caught:
        parse_settings({"blacklist": []}, "it")
    assert 'unknown field "blacklist"' in caught.value.what and "black_list" in caught.value.fix
    assert set(caught.value.choices) == {"white_list", "black_list", "error_data_path", "precision"}
