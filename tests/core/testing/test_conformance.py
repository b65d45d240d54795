"""The kits for plugin authors: what is installed passes, and each check finds the fault that it is for."""

from __future__ import annotations

import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.hooks import probe_judges
from probe_matching.hooks import probe_matchers, probe_views
from probe_metrics.hooks import probe_highlighters, probe_metrics, probe_policies
from probe_mindspore.hooks import probe_readers as mindspore_readers
from probe_pytorch.hooks import probe_readers as pytorch_readers
from probe_reporters.hooks import probe_reporters
from support.runs.npz import PLUGIN, SAME, save
from support.runs.recorded import write_tensor_run

from probe_core.errors import UnreadableTensor, UserError
from probe_core.matching.matching import NONE, Matching, Region
from probe_core.matching.views import Hints, Views
from probe_core.model import Colour, Level, Mark, Mode, Reason, Record, Ruling, Value, Verdict
from probe_core.model.run import Header, HeldRun
from probe_core.plugins.builtins import probe_executors
from probe_core.plugins.builtins import probe_matchers as core_matchers
from probe_core.plugins.specs import (
    ExecutorSpec,
    HighlightSpec,
    JudgeSpec,
    MatcherSpec,
    Place,
    PolicySpec,
    Pool,
    ReaderSpec,
    ReporterSpec,
    ViewSpec,
)
from probe_core.testing import (
    ArrayRun,
    ExecutorConformance,
    HighlighterConformance,
    JudgeConformance,
    MatcherConformance,
    PolicyConformance,
    ReaderConformance,
    ReporterConformance,
    ViewConformance,
)

X = np.array([1.0, 2.0, 3.0], np.float32)
METRICS = tuple(
    spec for spec in probe_metrics() if spec.name in ("cosine", "euclidean", "max_error", "error_ratio")
)
TENSOR_POLICIES = [spec for spec in probe_policies() if spec.name in ("accuracy", "first_difference")]


def failing(kit: type[Any], directory: Path, **fields: Any) -> set[str]:
    """The names of the checks of a kit that fail."""
    found = set()
    for name in (name for name in dir(kit) if name.startswith("test_")):
        own = directory / name
        own.mkdir(parents=True)
        check = getattr(type("Conformance", (kit,), fields)(), name)
        try:
            check(**({"tmp_path": own} if "tmp_path" in inspect.signature(check).parameters else {}))
        except Exception:
            found.add(name.removeprefix("test_"))
    return found


# -- readers ---------------------------------------------------------------------------------------


def test_the_readers_pass(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (recorded,) = (runs("tensor_L1_datamap") / "npu_dump").rglob("dump.json")
    assert (
        failing(ReaderConformance, tmp_path / "pt", spec=pytorch_readers()[0], record_file=recorded) == set()
    )
    path = write_tensor_run(tmp_path / "run", {"Mint.add.0.forward": ([X, X], [X])})
    assert failing(ReaderConformance, tmp_path / "ms", spec=mindspore_readers()[0], record_file=path) == set()
    monkeypatch.syspath_prepend(str(PLUGIN))
    from probe_npz.hooks import probe_readers as npz_readers

    path = save(tmp_path / "npz", SAME) / "manifest.json"
    assert failing(ReaderConformance, tmp_path / "n", spec=npz_readers()[0], record_file=path) == set()
    for name in [name for name in sys.modules if name.startswith("probe_npz")]:
        monkeypatch.delitem(sys.modules, name)


class GoodReader:
    """Reads ``b"mine"`` and an end mark: one call whose data are in memory."""

    def sniff(self, path: Path) -> int:
        return 100 if path.read_bytes().startswith(b"mine") else 0

    def open(self, path: Path) -> Any:
        if not path.read_bytes().endswith(b"end"):
            raise UserError(f"{path} is cut off.", "Copy it again.")
        return self.made(path, list(ArrayRun({"a.0": ([X], [X]), "b.0": ([X], [])}).records()))

    def made(self, path: Path, records: list[Record]) -> Any:
        return GoodRun(path, Header("tensor", "L1", "mine"), Mode.TENSOR, records)


class GoodRun(HeldRun):
    def tensor(self, value: Value) -> Any:
        if not str(value.data_name).startswith(("a.", "b.")):
            raise UnreadableTensor("there is none")
        return X


class EagerReader(GoodReader):
    def sniff(self, path: Path) -> int:
        return 100


class TrustingReader(GoodReader):
    def open(self, path: Path) -> Any:
        return self.made(path, list(ArrayRun({"a.0": ([X], [X])}).records()))


class ForgetfulReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        return GoodRun(path, Header("tensor", "L1", "other"), Mode.TENSOR, records)


class MiscountingReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        run = super().made(path, records)
        run.starts = [0, 1, 2]
        return run


class UnorderedReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        return super().made(path, records[::-1])


class WrongShapeReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        run = super().made(path, records)
        run.tensor = lambda value: X[:1]
        return run


class ExtentlessReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        slots = tuple(s._replace(value=s.value._replace(extent="?")) for s in records[0].slots)
        return super().made(path, [Record(0, records[0].key, slots)])


@pytest.mark.parametrize(
    "reader, faults",
    [
        (GoodReader, set()),
        (EagerReader, {"sure_of_its_own_runs_alone"}),
        (TrustingReader, {"a_file_cut_off_is_refused"}),
        (ForgetfulReader, {"header_and_mode"}),
        (MiscountingReader, {"slots_are_counted"}),
        (UnorderedReader, {"records_are_found_by_index_and_name"}),
        (WrongShapeReader, {"tensors_are_as_described", "missing_data_are_unreadable"}),
        (ExtentlessReader, {"values_are_described"}),
    ],
)
def test_a_fault_of_a_reader_is_found(reader: Any, faults: set[str], tmp_path: Path) -> None:
    path = tmp_path / "run.mine"
    path.write_bytes(b"mine" * 10 + b"end")
    spec = ReaderSpec("mine", "mine", reader, framework="mine", record_files=("run.mine",))
    assert failing(ReaderConformance, tmp_path / "checks", spec=spec, record_file=path) == faults


def test_record_files_that_name_another_file(tmp_path: Path) -> None:
    (tmp_path / "run.mine").write_bytes(b"mine" * 10 + b"end")
    spec = ReaderSpec("mine", "mine", GoodReader, framework="mine")
    found = failing(ReaderConformance, tmp_path / "c", spec=spec, record_file=tmp_path / "run.mine")
    assert found == {"spec_names_its_files"}


# -- matchers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*core_matchers(), *probe_matchers()], ids=lambda spec: spec.name)
def test_the_matchers_pass(spec: MatcherSpec, tmp_path: Path) -> None:
    assert (
        failing(MatcherConformance, tmp_path, spec=spec, mapping={} if spec.name == "mapping" else None)
        == set()
    )


class ByPlace:
    """Pairs the n-th slot with the n-th."""

    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        matching = Matching()
        count = golden.starts[-1]
        matching.partners.extend(n if n < count else NONE for n in range(target.starts[-1]))
        return matching


class ToTheFirst(ByPlace):
    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        matching = Matching()
        matching.partners.extend([0] * target.starts[-1])
        return matching


class Short(ByPlace):
    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        matching = super().match(target, golden, plan)
        matching.partners.pop()
        return matching


class Remembering(ByPlace):
    def __init__(self) -> None:
        self.calls = 0

    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        self.calls += 1
        matching = super().match(target, golden, plan)
        if self.calls > 1:
            matching.partners[0] = NONE
        return matching


class Lost(ByPlace):
    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        matching = super().match(target, golden, plan)
        matching.regions.append(Region((99,), ()))
        return matching


@pytest.mark.parametrize(
    "matcher, faults",
    [
        (ByPlace, set()),
        (ToTheFirst, {"each_slot_has_one_partner_or_none", "a_run_pairs_with_itself"}),
        (Short, {"each_slot_has_one_partner_or_none", "a_run_pairs_with_itself"}),
        (Remembering, {"same_answer_twice"}),
        (Lost, {"regions_hold_records_of_the_runs"}),
    ],
)
def test_a_fault_of_a_matcher_is_found(matcher: Any, faults: set[str], tmp_path: Path) -> None:
    assert failing(MatcherConformance, tmp_path, spec=MatcherSpec("mine", "mine", matcher)) == faults


# -- views -----------------------------------------------------------------------------------------


def run_of(framework: str, *names: str) -> ArrayRun:
    run = ArrayRun({name: ([X, X + 1], [X]) for name in names})
    run.header = replace(run.header, framework=framework)
    return run


RUN = run_of("mine", "Functional.a.0.forward", "Functional.b.0.forward", "Functional.b.1.forward")
OTHER = run_of("other", "Functional.a.0.forward", "Functional.c.0.forward", "Functional.c.0.backward")


@pytest.mark.parametrize("spec", probe_views(), ids=lambda spec: spec.name)
def test_the_views_pass(spec: ViewSpec, tmp_path: Path) -> None:
    assert failing(ViewConformance, tmp_path, spec=spec, target=RUN, golden=OTHER) == set()


class AsTheyAre:
    def check(self, plan: Any) -> None:
        pass

    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return Views(target, golden, "exact")


class Strict(AsTheyAre):
    def check(self, plan: Any) -> None:
        raise UserError("No.", "Never.")


class Lazy(AsTheyAre):
    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return None


class Shortened(AsTheyAre):
    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return Views(run_of("mine", "Functional.a.0.forward"), golden, "exact")


class Unsure(AsTheyAre):
    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return Views(target, golden, "")


class Talking(AsTheyAre):
    class Always(Hints):
        def of(self, op: Any, rows: Any) -> list[str]:
            return ["as ever"]

    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return Views(target, golden, "exact", hints=self.Always())


@pytest.mark.parametrize(
    "view, faults",
    [
        (AsTheyAre, set()),
        (Strict, {"a_plan_without_files_is_not_refused"}),
        (Lazy, {"it_names_a_matcher", "names_alone_are_other", "hints_are_texts"}),
        (Shortened, {"names_alone_are_other"}),
        (Unsure, {"it_names_a_matcher"}),
        (Talking, {"hints_are_texts"}),
    ],
)
def test_a_fault_of_a_view_is_found(view: Any, faults: set[str], tmp_path: Path) -> None:
    spec = ViewSpec("mine", "mine", view)
    assert failing(ViewConformance, tmp_path, spec=spec, target=RUN, golden=OTHER) == faults


# -- policies and highlighters ---------------------------------------------------------------------


@pytest.mark.parametrize("spec", TENSOR_POLICIES, ids=lambda spec: spec.name)
def test_the_policies_pass(spec: PolicySpec, tmp_path: Path) -> None:
    assert failing(PolicyConformance, tmp_path, spec=spec, metrics=METRICS) == set()


class Lenient:
    def judge(self, pair: Any, measurements: Any) -> Any:
        return Verdict(Level.PASS, "fine")


class Severe(Lenient):
    def judge(self, pair: Any, measurements: Any) -> Any:
        return Verdict(Level.ERROR, "bad", (Reason("nothing"),), failed=True)


class Trusting(Lenient):
    def judge(self, pair: Any, measurements: Any) -> Any:
        assert measurements["cosine.Cosine"].value is not None
        return super().judge(pair, measurements)


class Wordy(Lenient):
    def judge(self, pair: Any, measurements: Any) -> Any:
        return "fine"


class Tired(Lenient):
    calls = 0

    def judge(self, pair: Any, measurements: Any) -> Any:
        self.calls += 1
        return Verdict(Level.PASS if self.calls < 5 else Level.WARNING, "")


@pytest.mark.parametrize(
    "policy, faults",
    [
        (Lenient, set()),
        (Severe, {"equal_tensors_are_no_error"}),
        (Trusting, {"a_verdict_on_every_pair", "same_verdict_twice"}),
        (Wordy, {"a_verdict_on_every_pair", "equal_tensors_are_no_error"}),
        (Tired, {"same_verdict_twice"}),
    ],
)
def test_a_fault_of_a_policy_is_found(policy: Any, faults: set[str], tmp_path: Path) -> None:
    spec = PolicySpec("mine", "mine", policy, "my team's", ("cosine",))
    assert failing(PolicyConformance, tmp_path / "c", spec=spec, metrics=METRICS[:1]) == faults
    unread = PolicySpec("mine", "mine", policy, "my team's", ("sign_flips",))
    found = failing(PolicyConformance, tmp_path / "d", spec=unread, metrics=METRICS[:1])
    assert found == faults | {"spec_names_what_it_reads"}


@pytest.mark.parametrize("spec", probe_judges(), ids=lambda spec: spec.name)
def test_the_judges_pass(spec: JudgeSpec, tmp_path: Path) -> None:
    assert failing(JudgeConformance, tmp_path, spec=spec) == set()


class Silent:
    def judge(self, op: Any, rows: Any) -> Any:
        return {}


class Harsh(Silent):
    def judge(self, op: Any, rows: Any) -> Any:
        return {n: Ruling(row.verdict._replace(level=Level.ERROR), Reason("x")) for n, row in enumerate(rows)}


class Beside(Silent):
    def judge(self, op: Any, rows: Any) -> Any:
        return {len(rows): Ruling(Verdict(Level.PASS, ""), Reason("x"))}


class Meddling(Silent):
    def judge(self, op: Any, rows: Any) -> Any:
        rows.clear()
        return {}


class Moody(Silent):
    moods = 0

    def judge(self, op: Any, rows: Any) -> Any:
        Moody.moods += 1
        verdict = Verdict(Level.PASS, str(Moody.moods))
        return {0: Ruling(verdict, Reason("x"))} if rows else {}


@pytest.mark.parametrize(
    "judge, faults",
    [
        (Silent, set()),
        (Harsh, {"what_agrees_is_no_error"}),
        (Beside, {"rulings_are_on_rows"}),
        (Meddling, {"rulings_are_on_rows"}),
        (Moody, {"same_rulings_twice"}),
    ],
)
def test_a_fault_of_a_judge_is_found(judge: Any, faults: set[str], tmp_path: Path) -> None:
    assert failing(JudgeConformance, tmp_path, spec=JudgeSpec("mine", "mine", judge)) == faults


@pytest.mark.parametrize("spec", probe_highlighters(), ids=lambda spec: spec.name)
def test_the_highlighters_pass(spec: HighlightSpec, tmp_path: Path) -> None:
    assert failing(HighlighterConformance, tmp_path, spec=spec, metrics=METRICS) == set()


RED = Mark(Colour.RED, (Reason("nothing"),))


class NoMarks:
    def mark(self, rows: Any) -> Any:
        return {}


class AllMarks(NoMarks):
    def mark(self, rows: Any) -> Any:
        return dict.fromkeys(range(len(rows)), RED)


class Beyond(NoMarks):
    def mark(self, rows: Any) -> Any:
        return {len(rows): RED}


class Plain(NoMarks):
    def mark(self, rows: Any) -> Any:
        return {0: "red"} if len(rows) > 10 else {}


class Once(NoMarks):
    calls = 0

    def mark(self, rows: Any) -> Any:
        self.calls += 1
        return {0: RED} if rows and self.calls > 3 else {}


@pytest.mark.parametrize(
    "highlighter, faults",
    [
        (NoMarks, set()),
        (AllMarks, {"equal_tensors_are_not_marked"}),
        (Beyond, {"marks_are_of_rows", "equal_tensors_are_not_marked"}),
        (Plain, {"marks_are_of_rows"}),
        (Once, {"same_marks_twice"}),
    ],
)
def test_a_fault_of_a_highlighter_is_found(highlighter: Any, faults: set[str], tmp_path: Path) -> None:
    spec = HighlightSpec("mine", "mine", highlighter)
    assert failing(HighlighterConformance, tmp_path, spec=spec, metrics=METRICS[:1]) == faults


# -- reporters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", probe_reporters(), ids=lambda spec: spec.name)
def test_the_reporters_pass(spec: ReporterSpec, tmp_path: Path) -> None:
    assert failing(ReporterConformance, tmp_path, spec=spec) == set()


class Lines:
    """A good reporter and its writer in one."""

    def open(self, path: Path, headers: Any, row_count: int) -> Any:
        made = type(self)()
        made.file = path.open("wb")  # type: ignore[attr-defined]
        made.file.write(repr(headers).encode())  # type: ignore[attr-defined]
        return made

    def write(self, cells: Any, colour: Any) -> None:
        self.file.write(repr(cells).encode())  # type: ignore[attr-defined]

    def close(self) -> None:
        self.file.close()  # type: ignore[attr-defined]

    abandon = close

    def line(self, row: int, row_count: int) -> str:
        return str(row + 1)


class Ascii(Lines):
    def write(self, cells: Any, colour: Any) -> None:
        self.file.write(str(cells[2]).encode("ascii"))  # type: ignore[attr-defined]


class Stamped(Lines):
    def open(self, path: Path, headers: Any, row_count: int) -> Any:
        return super().open(path, path.name, row_count)


class Skipping(Lines):
    def write(self, cells: Any, colour: Any) -> None:
        if colour is None:
            super().write(cells, colour)


class Counting(Lines):
    def abandon(self) -> None:
        raise RuntimeError("rows are missing")


class Vague(Lines):
    def line(self, row: int, row_count: int) -> str:
        return "somewhere"


class Quiet(Lines):
    def open(self, path: Path, headers: Any, row_count: int) -> Any:
        path.parent.mkdir(exist_ok=True)
        return super().open(path, headers, row_count)


@pytest.mark.parametrize(
    "reporter, faults",
    [
        (Lines, set()),
        (Ascii, {"every_cell_is_taken", "every_row_is_written", "same_bytes_twice"}),
        (Stamped, {"same_bytes_twice"}),
        (Skipping, {"every_row_is_written"}),
        (Counting, {"a_table_may_be_abandoned"}),
        (Vague, {"lines_are_told_apart"}),
        (Quiet, {"a_disk_that_takes_nothing_is_said"}),
    ],
)
def test_a_fault_of_a_reporter_is_found(reporter: Any, faults: set[str], tmp_path: Path) -> None:
    spec = ReporterSpec("mine", "mine", reporter, ".mine")
    assert failing(ReporterConformance, tmp_path / "c", spec=spec) == faults


# -- executors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", probe_executors(), ids=lambda spec: spec.name)
def test_the_executors_pass(spec: ExecutorSpec, tmp_path: Path) -> None:
    assert failing(ExecutorConformance, tmp_path, spec=spec) == set()


class Here:
    """Threads, like those of the core."""

    place: Any = Place.HERE

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        if scheduler is not None:
            raise UserError("No scheduler.", "Leave it out.")
        return Pool(ThreadPoolExecutor(jobs or 2), jobs or 2)


class Careless(Here):
    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(jobs, None)


class Placeless(Here):
    place = "here"


class Greedy(Here):
    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(8, scheduler)


class Silent(Here):
    class Pool(ThreadPoolExecutor):
        def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            def call() -> Any:
                try:
                    return function(*args, **kwargs)
                except Exception:
                    return None

            return super().submit(call)

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(jobs, scheduler)._replace(executor=Silent.Pool(2))


class Shared(Here):
    executor = ThreadPoolExecutor(2)

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(jobs, scheduler)._replace(executor=self.executor)


@pytest.mark.parametrize(
    "executor, faults",
    [
        (Here, set()),
        (Careless, {"a_scheduler_that_is_not_meant_is_refused"}),
        (Placeless, {"spec_names_it"}),
        (Greedy, {"as_many_workers_as_asked_for"}),
        (Silent, {"calls_come_back"}),
        (Shared, {"a_pool_can_be_opened_again", "calls_come_back"}),
    ],
)
def test_a_fault_of_an_executor_is_found(executor: Any, faults: set[str], tmp_path: Path) -> None:
    assert failing(ExecutorConformance, tmp_path, spec=ExecutorSpec("mine", "mine", executor)) == faults
