"""Test kit for authors of runners, first stages and standards: pass a check the specification of a hook.

Each check raises an AssertionError whose message states the problem::

    from probe_precheck.testing import check_standard
    from my_package.hooks import probe_standards

    def test_my_standard():
        check_standard(probe_standards()[0])
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from importlib.resources import files
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from probe_core.errors import describe_error
from probe_core.files.user_files import parse_yaml
from probe_core.plugins.specs import Spec, find_spec_problem
from probe_core.testing import EDGES
from probe_precheck.calls import RecordedCalls
from probe_precheck.csvfile import format_number
from probe_precheck.judging import pair_leaves
from probe_precheck.model import (
    BACKWARD,
    FORWARD,
    Array,
    Call,
    Judgement,
    Message,
    Numbers,
    Outcome,
    Output,
    Outputs,
    OutputVerdict,
    Skipped,
    Status,
    UnusableCell,
)
from probe_precheck.protocols import RecordedRun, Runner, SoloRule, Standard, StatusRule
from probe_precheck.releases import RELEASES
from probe_precheck.runner_options import RunnerOptions
from probe_precheck.settings import PRECISION, Settings
from probe_precheck.specs import JudgedOutputs, ReferenceSpec, RunnerSpec, StandardSpec, StatusRuleSpec
from probe_precheck.tables import COMPARE_DETAILS, DETAILS, NUMBERS

T = TypeVar("T")
API = "Mine.op"
"""Name of the API whose outputs are judged."""


def check_standard(spec: StandardSpec) -> None:
    """Check a standard: it must measure every output, and judge the numbers that it measured.

    Args:
        spec: A specification that ``probe_standards`` returns.

    Raises:
        AssertionError: The standard breaks a rule; the text says which.
    """
    title = _check_spec(spec, StandardSpec)
    _require(spec.label, f"{title} must have a label, which the column of the algorithm shows.")
    _require(spec.apis or spec.judges is not JudgedOutputs.LISTED, f"{title} judges no API: name a yaml file in apis.")
    _check_columns(spec.columns, title)
    _check_lists(spec, title)
    standard: Standard = spec.make()
    column_keys = {column.key for column in NUMBERS} | {key for key, _, _ in spec.columns}
    shown = {column.key for column in COMPARE_DETAILS}
    for release in RELEASES:
        for what, output in _iterate_measurable(spec.judges is JudgedOutputs.EXACT):
            what = f"{what} ({release})"
            numbers = _judge_twice(title, what, lambda item: dict(standard.measure(item, release)), output)  # noqa: B023
            _require(set(numbers) <= column_keys,
                  f"{title} measures {_format_keys(set(numbers) - column_keys)}, which no column shows.")  # fmt: skip
            _require(all(isinstance(number, Real) for number in numbers.values()),
                  f"{title} measures something other than numbers of {what}: {numbers}.")  # fmt: skip
            row = Numbers(_build_cells(numbers, output))
            judgement = _call_checked(title, f"the row of {what}", standard.judge, row, row, release)
            _check_judgement(judgement, shown, title, what)
            is_plain = what.startswith("equal plain")
            _require(not is_plain or judgement.status is Status.PASS,
                  f"{title} calls an output that equals its reference {judgement.status.value}.")  # fmt: skip
        _check_blank_row(standard, release, shown, title)


def _check_blank_row(standard: Standard, release: str, shown: set[str], title: str) -> None:
    """Check that a standard judges a row of blank cells, or raises ``UnusableCell``."""
    try:
        blank = standard.judge(Numbers({}), Numbers({}), release)
    except UnusableCell:
        return
    except Exception as error:
        raise AssertionError(
            f"{title} raised {describe_error(error)} for a row of blank cells: read cells with [] or get."
        ) from error
    _check_judgement(blank, shown, title, "a row of blank cells")


def check_status_rule(spec: StatusRuleSpec) -> None:
    """Check a first stage: it must judge every output that a call may have.

    Args:
        spec: A specification that ``probe_status_rules`` returns.

    Raises:
        AssertionError: The first stage breaks a rule; the text says which.
    """
    title = _check_spec(spec, StatusRuleSpec)
    _check_columns(spec.result, title)
    _check_columns(spec.details, title)
    shown = {column.key for column in DETAILS} | {key for key, _, _ in spec.details}
    rule: StatusRule = spec.make()
    for what, output in _iterate_outputs():
        judged = _judge_twice(title, what, rule.judge, output)
        _check_judged(judged, shown, title, what)
        fails = judged.status in (Status.ERROR, Status.WARNING)
        _require(not (fails and what.startswith("equal")), f"{title} fails {what}.")
        _require(fails or not what.startswith("unlike"), f"{title} lets {what} pass.")
        if isinstance(rule, SoloRule):
            for direction in (FORWARD, BACKWARD):
                alone = _call_checked(title, what, rule.judge_alone, output, "", {}, direction)
                _check_judged(alone, shown, title, f"{what}, alone")


def check_reference(spec: ReferenceSpec) -> None:
    """Check that a reference names its API and has the method ``forward``.

    Args:
        spec: A specification that ``probe_references`` returns.

    Raises:
        AssertionError: The reference breaks a rule; the text says which.
    """
    title = _check_spec(spec, ReferenceSpec)
    _require("." in spec.api, f"{title} must name its API with its scope, such as NPU.npu_rms_norm.")
    _require(callable(getattr(spec.make(), "forward", None)), f"{title} must have the method forward.")


def check_closed_runner(spec: RunnerSpec) -> Runner:
    """Check what a runner does before it is opened, for which its framework is not needed.

    Args:
        spec: A specification that ``probe_runners`` returns.

    Returns:
        The runner.

    Raises:
        AssertionError: The runner breaks a rule; the text says which.
    """
    title = _check_spec(spec, RunnerSpec)
    _require(spec.framework, f"{title} must name the framework whose calls it runs.")
    runner: Runner = spec.make()
    apis = _call_checked(title, "apis()", runner.apis)
    _require(isinstance(apis, Set) and all(isinstance(name, str) for name in apis),
          f"{title}: apis must return a set of names.")  # fmt: skip
    missing = [name for name in ("open", "run", "save") if not callable(getattr(runner, name, None))]
    _require(not missing, f"{title} lacks the methods {_format_keys(set(missing))}.")
    return runner


def check_runner(spec: RunnerSpec, options: RunnerOptions, calls: Sequence[Call]) -> None:
    """Check a runner with calls that it can run.

    Args:
        spec: A specification that ``probe_runners`` returns.
        options: The options to open the runner with; if they have an ``error_directory``, saving is checked
            too.
        calls: Calls of the run that ``options`` names, such as those of ``calls_of(run)``.

    Raises:
        AssertionError: The runner breaks a rule; the text says which.
    """
    runner = check_closed_runner(spec)
    title = spec.title
    device = _call_checked(title, "open()", runner.open, options)
    _require(isinstance(device, str) and device, f"{title}: open must return the name of the device.")
    _require(calls, f"{title} cannot be checked without a call.")
    for call in calls:
        outcome = _call_checked(title, call.name, runner.run, call)
        _check_outcome(call, outcome, title)
        again = _call_checked(title, call.name, runner.run, call)
        same = outcome.is_random or _serialize_outputs(outcome) == _serialize_outputs(again)
        _require(same, f"{title} gives other outputs when {call.name} is run again.")
        if options.error_directory is not None:
            script = _call_checked(title, f"save({call.name})", runner.save, call, outcome)
            is_there = isinstance(script, str) and (not script or Path(script).is_file())
            _require(is_there, f"{title}: save must return the path of the script it wrote, not {script!r}.")
            is_inside = not script or options.error_directory in Path(script).parents
            _require(is_inside, f"{title} saves {script} outside of {options.error_directory}.")
    unknown_call = replace(calls[0], name=f"{calls[0].parts[0]}.no_such_api.0")
    try:
        outcome = runner.run(unknown_call)
    except Exception:  # an unknown call may raise anything; it becomes a skipped row
        return
    _require(isinstance(outcome.forward, Skipped), f"{title} runs {unknown_call.name}, which is not an API.")


def calls_of(run: RecordedRun) -> list[Call]:
    """Return the calls of a recorded run that can be run alone."""
    calls = RecordedCalls(run)
    every = (calls.get_call(index, Settings()) for index in range(len(calls)))
    return [call for call in every if not call.problem]


# -- outputs to judge ------------------------------------------------------------------------------


def _iterate_measurable(is_exact: bool) -> Iterator[tuple[str, Output]]:
    """Yield outputs of the dtypes that standards measure, equal to their references and not."""
    for name, array in EDGES.items():
        if array.dtype in (np.float16, np.float32):
            yield f"equal {name}", _create_output(array.astype(np.float64), array)
            for other_name, bench in EDGES.items():
                if other_name != name and bench.shape == array.shape and bench.dtype.kind == "f":
                    yield f"{name} against {other_name}", _create_output(bench.astype(np.float64), array)
        elif is_exact and array.dtype.kind in "iub":
            yield f"equal {name}", _create_output(array, array)
            yield f"{name} against others", _create_output(array, array[::-1])
    plain = EDGES["plain"]
    wide = Output(API, Array(plain, "mine.float32"), Array(plain, "mine.bfloat16"))
    yield "equal plain of bfloat16", wide


def _iterate_outputs() -> Iterator[tuple[str, Output]]:
    """Yield all kinds of outputs: arrays of all dtypes, plain values, None."""
    for name, array in EDGES.items():
        bench = array.astype(np.float64) if array.dtype.kind == "f" else array
        is_wide = array.dtype == np.float64  # its sums may overflow
        yield f"wide {name}" if is_wide else f"equal {name}", _create_output(bench, array)
        yield f"random {name}", replace(_create_output(bench, array), is_random=True)
    empty = np.empty((0, 3), np.float32)
    yield "equal arrays without elements", _create_output(empty, empty)
    plain = EDGES["plain"]
    yield "unlike arrays", _create_output(plain.astype(np.float64), plain * -3)
    yield "unlike shapes", _create_output(plain.astype(np.float64), plain[:-1])
    yield "unlike integers", _create_output(np.arange(6), np.arange(6) * 100 + 7)
    yield "unlike types", Output(API, Array(plain, "mine.float32"), None)
    yield "unlike values", Output(API, 3, 4)
    for value in (None, True, 3, 2.5, float("nan"), "text", 1 + 2j):
        yield f"equal values ({value!r})", Output(API, value, value)
    yield "objects", Output(API, object(), object())


def _create_output(bench: np.ndarray[Any, Any], device: np.ndarray[Any, Any]) -> Output:
    reference, tested = (Array(side, f"mine.{side.dtype.name}") for side in (bench, device))
    return Output(API, reference, tested)


def _build_cells(numbers: Mapping[str, Any], output: Output) -> dict[str, str]:
    """Return the row of an output in the details, as texts."""
    measured = {key: format_number(value, PRECISION) for key, value in numbers.items()}
    name = f"{API}.0.forward.output.0"
    return {"name": name, "device_dtype": output.device.dtype, "bench_dtype": output.bench.dtype, **measured}


# -- checks ----------------------------------------------------------------------------------------


def _require(condition: object, sentence: str) -> None:
    if not condition:
        raise AssertionError(sentence)


def _call_checked(title: str, what: str, function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function that must neither raise nor warn."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return function(*arguments)
    except Exception as error:  # an author's code may raise anything
        raise AssertionError(f"{title} raised {describe_error(error)} for {what}.") from error


def _judge_twice(title: str, what: str, function: Callable[[Output], T], output: Output) -> T:
    """Return the verdict on an output, and check that it is repeatable and leaves the output unchanged."""
    arrays = [side.values for side in (output.bench, output.device) if isinstance(side, Array)]
    before = [array.tobytes() for array in arrays]
    first = _call_checked(title, what, function, replace(output, _shared={}))
    _require(before == [array.tobytes() for array in arrays], f"{title} writes into the output ({what}).")
    again = _call_checked(title, what, function, replace(output, _shared={}))
    _require(repr(first) == repr(again), f"{title} gives another verdict on {what} the second time.")
    return first


def _check_spec(spec: Spec, kind: type[Spec]) -> str:
    """Check the specification, and return its title."""
    _require(isinstance(spec, kind), f"The hook must return {kind.__name__}, not {type(spec).__name__}.")
    problem = find_spec_problem(spec)
    _require(not problem, f"{problem}.")
    _require(spec.summary, f"{spec.title} must have a summary, which probe plugins shows.")
    return spec.title


def _check_columns(columns: Sequence[Any], title: str) -> None:
    for column in columns:
        is_triple = isinstance(column, tuple) and len(column) == 3
        _require(is_triple and all(isinstance(text, str) and text for text in column),
              f"{title}: a column is (key, Chinese header, English header), not {column!r}.")  # fmt: skip
    keys = [key for key, _, _ in columns]
    _require(len(set(keys)) == len(keys), f"{title} has two columns with the same key.")


def _check_lists(spec: StandardSpec, title: str) -> None:
    if not spec.apis:
        return
    package, _, file = spec.apis.partition(":")
    try:
        lists = parse_yaml(files(package).joinpath(file).read_text("utf-8"))
    except Exception as error:  # a missing package or file, or no yaml
        raise AssertionError(f"{title}: {spec.apis} cannot be read: {describe_error(error)}.") from error
    _require(isinstance(lists, Mapping) and all(isinstance(apis, list) for apis in lists.values()),
          f"{title}: {spec.apis} must map names of standards to lists of APIs.")  # fmt: skip
    _require(
        spec.judges is not JudgedOutputs.LISTED or spec.name in lists, f"{title}: {spec.apis} lists no API for it."
    )


def _check_messages(messages: Any, title: str, what: str) -> None:
    _require(isinstance(messages, tuple) and all(isinstance(message, Message) for message in messages),
          f"{title} must give a tuple of messages for {what}, not {messages!r:.80}.")  # fmt: skip


def _check_judgement(judgement: Any, shown: Set[str], title: str, what: str) -> None:
    _require(isinstance(judgement, Judgement),
          f"{title}: judge must return a Judgement, not {type(judgement).__name__}.")  # fmt: skip
    _require(isinstance(judgement.status, Status), f"{title} gives {what} no Status.")
    unknown = set(judgement.cells) - shown
    _require(not unknown, f"{title} fills the cells {_format_keys(unknown)}, which no table has.")
    _check_messages(judgement.messages, title, what)


def _check_judged(judged: Any, shown: Set[str], title: str, what: str) -> None:
    _require(isinstance(judged, OutputVerdict), f"{title}: judge must return Judged, not {type(judged).__name__}.")
    _require(isinstance(judged.status, Status), f"{title} gives {what} no Status.")
    unknown = set(judged.numbers) - shown
    _require(not unknown, f"{title} measures {_format_keys(unknown)}, which no column shows.")
    _check_messages(judged.messages, title, what)


def _check_outcome(call: Call, outcome: Any, title: str) -> None:
    _require(isinstance(outcome, Outcome), f"{title}: run must return an Outcome, not {type(outcome).__name__}.")
    _require((outcome.backward is None) == (call.backward is None),
          f"{title} must give {call.name} a backward exactly where one was recorded.")  # fmt: skip
    for phase, outputs in ((FORWARD, outcome.forward), (BACKWARD, outcome.backward)):
        what = f"the {phase} of {call.name}"
        _require(not isinstance(outputs, Skipped), f"{title} skips {what}: {getattr(outputs, 'message', '')}")
        if outputs is None:
            continue
        _require(isinstance(outputs, Outputs), f"{title} must give Outputs or Skipped for {what}.")
        for pair in pair_leaves(outputs.bench, outputs.device):
            _require(pair is not None, f"{title} gives {what} different structures on both sides.")
            assert pair is not None
            for side in pair:
                _check_leaf(side, title, what)
            bench, device = pair
            if isinstance(bench, Array) and isinstance(device, Array):
                narrow = bench.values.dtype.itemsize < device.values.dtype.itemsize
                _require(not narrow, f"{title} computes the reference of {what} in a narrower dtype.")


def _check_leaf(value: Any, title: str, what: str) -> None:
    if isinstance(value, Array):
        _require(isinstance(value.values, np.ndarray) and value.values.dtype.kind in "fiubc",
              f"{title} must give numpy's own numbers for {what}; bfloat16 comes as float32.")  # fmt: skip
        _require(isinstance(value.dtype, str) and value.dtype, f"{title} must name the dtype of {what}.")
    else:
        _require(value is None or isinstance(value, (bool, int, float, complex, str)),
              f"{title} gives {what} a {type(value).__name__}: tensors are to be Arrays.")  # fmt: skip


def _serialize_outputs(outcome: Outcome) -> list[Any]:
    """Return the outputs of both sides in a form that can be compared."""
    directions = (outcome.forward, outcome.backward)
    pairs = [pair for item in directions if isinstance(item, Outputs) for pair in pair_leaves(item.bench, item.device)]
    sides = [side for pair in pairs for side in pair or ()]
    return [side.values.tobytes() if isinstance(side, Array) else repr(side) for side in sides]


def _format_keys(keys: Set[str]) -> str:
    return ", ".join(sorted(keys))
