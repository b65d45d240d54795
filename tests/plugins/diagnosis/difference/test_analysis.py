"""``probe compare -da`` as its users use it: the files, what they say, what is printed, and mistakes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.difference.rank_file import RankFile
from probe_reporters.tables import COLUMNS
from support.runs.recorded import forward, scalar, tensor, write_run, write_tensor_run

from probe_core.model import Mode

RECORDED = [
    ("tensor_L1_dist2", "8.3.3"), ("stat_mix_dist2", "8.3.3"), ("tensor_L1_dist2", "26.2.0"),
    ("stat_mix_dist2", "26.2.0"), ("md5_L1_dist2", "26.2.0"),
]  # fmt: skip
MODES = ["tensor_L1_dist2", "stat_mix_dist2", "md5_L1_dist2"]
TRANSFER = ["NPU P2POp op", "Bench P2POp op", "NPU P2POp peer", "Bench P2POp peer"]
HEADERS = {mode: [column.header for column in columns] for mode, columns in COLUMNS.items()}
FAULT = "Tensor.__mul__.0.forward"
Data = dict[str, Any]


def strictly(path: Path) -> Any:
    """What a file holds, which must be JSON as the standard has it: no bare NaN, no key twice."""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a key appears twice"
        return dict(pairs)

    return json.loads(path.read_text("utf-8"), parse_constant=refuse, object_pairs_hook=once)


class Analysis:
    """Runs ``compare -da`` and reads what it wrote."""

    def __init__(self, probe: Any, out: Path) -> None:
        self.probe = probe
        self.out = out

    def __call__(self, *arguments: str | Path, code: int = 0) -> Data:
        """What ``diff_analyze`` says; nothing where there is no such file."""
        shutil.rmtree(self.out, ignore_errors=True)
        return self.again(*arguments, code=code)

    def again(self, *arguments: str | Path, code: int = 0) -> Data:
        assert self.probe("compare", *arguments, "-o", self.out, "-da", "-j", "1") == code, self.probe.err
        assert "Traceback" not in self.probe.err
        return self.found()

    def found(self, part: str = "") -> Data:
        paths = list((self.out / part).glob("diff_analyze_*.json"))
        assert len(paths) <= 1
        return strictly(paths[0]) if paths else {}

    def rank(self, number: int = 0, part: str = "") -> Data:
        (path,) = (self.out / part).glob(f"compare_result_rank{number}_*.json")
        found: Data = strictly(path)
        return found

    def names(self) -> list[str]:
        """The files written, without their time stamps."""
        return sorted(
            re.sub(r"_\d{14}", "", path.relative_to(self.out).as_posix())
            for path in self.out.rglob("*")
            if path.is_file()
        )


@pytest.fixture
def analyze(probe: Any, tmp_path: Path) -> Analysis:
    """``analyze(target, golden)``: what ``-da`` finds between them."""
    return Analysis(probe, tmp_path / "analysis")


def named(found: Data) -> list[tuple[str, str]]:
    return [(rank, node["op_name"]) for rank, nodes in found.items() for node in nodes]


# -- hand-written runs -------------------------------------------------------------------------

Ranks = Sequence[dict[str, Any]]


def write_ranks(directory: Path, ranks: Ranks) -> Path:
    """A step with one statistics run a rank."""
    for number, data in enumerate(ranks):
        write_run(directory / f"rank{number}", data)
    return directory


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Ranks, Ranks], tuple[Path, Path]]:
    """``written(targets, goldens)``: both steps."""
    return lambda targets, goldens: (
        write_ranks(tmp_path / "t", targets),
        write_ranks(tmp_path / "g", goldens),
    )


def program(scale: float = 1.0, got: float = 1.0, api: str = "all_reduce", **keywords: Any) -> dict[str, Any]:
    """Multiplies, communicates, goes on."""
    return {
        "Torch.relu.0.forward": forward(tensor(), output=[tensor()]),
        "Torch.mul.0.forward": forward(tensor(), output=[tensor(value=scale)]),
        f"Distributed.{api}.0.forward": forward(
            tensor(value=scale), output=[tensor(value=got)], **keywords
        ),
        "Torch.exp.0.forward": forward(tensor(value=got), output=[tensor(value=got)]),
    }  # fmt: skip


GOOD = program()
GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 2]}


# -- recorded runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "version"), RECORDED)
def test_the_fault_of_a_recorded_run(case: str, version: str, analyze: Analysis, runs: Any) -> None:
    """Rank 1 multiplies by 1.05 before the sum over both ranks, and nothing else is wrong."""
    run = runs(case, version)
    found = analyze(run / "npu_dump/step0", run / "bench_dump/step0")
    assert named(found) == [("rank_1", FAULT)]
    (node,) = found["rank_1"]
    assert list(node["data_info"]) == ["input", "output"]
    assert list(node["data_info"]["input"]) == [f"{FAULT}.input.0", f"{FAULT}.input.1"]
    assert list(node["data_info"]["output"]) == [f"{FAULT}.output.0"]
    assert "was called with a different argument" in node["reason"]
    assert any("in f, " in frame for frame in node["stack_info"])
    assert analyze.names() == [
        "compare_result_rank0.json", "compare_result_rank1.json", "diff_analyze.json",
    ]  # fmt: skip


@pytest.mark.parametrize(("case", "version"), RECORDED)
def test_the_files_of_the_ranks_of_a_recorded_run(
    case: str, version: str, analyze: Analysis, runs: Any
) -> None:
    run = runs(case, version)
    analyze(run / "npu_dump/step0", run / "bench_dump/step0")
    mode = Mode.MD5 if case.startswith("md5") else Mode.STATISTICS
    for rank in (0, 1):
        record = json.loads((run / f"npu_dump/step0/rank{rank}/dump.json").read_text())["data"]
        content = analyze.rank(rank)
        assert list(content) == list(record), "each op once, in the order of the run"
        for op, entry in content.items():
            assert type(entry["is_same"]) is bool
            for item in entry["op_items"]:
                columns = list(item)
                assert columns[: len(HEADERS[mode])] == HEADERS[mode]
                assert [column for column in columns if column in TRANSFER] == TRANSFER
                assert item["api_origin_name"] == op
                assert item["state"] in ("input", "output", "parameters", "parameters_grad")
                assert item["NPU Name"].startswith(op)
                assert [item[column] for column in TRANSFER] == ["None"] * 4
    assert analyze.rank(1)[FAULT]["is_same"] is False
    assert analyze.rank(0)[FAULT]["is_same"] is True
    assert analyze.rank(0)["Distributed.all_reduce.0.forward"]["is_same"] is False
    first = analyze.rank(1)[FAULT]["op_items"]
    assert [item["state"] for item in first] == ["input", "input", "output"]
    assert isinstance(first[0]["NPU_Stack_Info"], list) and first[1]["NPU_Stack_Info"] == "N/A"


def test_what_is_shown_of_the_values(analyze: Analysis, runs: Any) -> None:
    """The seed's columns, and those of the golden beside them."""
    for case, version in RECORDED:
        run = runs(case, version)
        node = analyze(run / "npu_dump/step0", run / "bench_dump/step0")["rank_1"][0]
        argument = node["data_info"]["input"][f"{FAULT}.input.1"]
        if case.startswith("md5"):
            assert set(argument) == {"NPU MD5", "BENCH MD5", "NPU P2POp peer"}
            assert argument["NPU MD5"] != argument["BENCH MD5"]
        else:
            assert argument["NPU max"] == argument["NPU l2norm"] == 1.05
            assert argument["Bench max"] == argument["Bench mean"] == 1.0
        assert argument["NPU P2POp peer"] == "None"


@pytest.mark.parametrize("case", MODES)
def test_a_run_against_itself_names_nothing(case: str, analyze: Analysis, runs: Any) -> None:
    for version in ("8.3.3", "26.2.0") if case != "md5_L1_dist2" else ("26.2.0",):
        golden = runs(case, version) / "bench_dump/step0"
        assert analyze(golden, golden) == {}
        assert analyze.names() == ["compare_result_rank0.json", "compare_result_rank1.json"]
        assert "no difference beyond rounding in 2 rank(s)" in analyze.probe.out
        for rank in (0, 1):
            assert all(entry["is_same"] for entry in analyze.rank(rank).values())


@pytest.mark.parametrize("version", ["8.3.3", "26.2.0"])
def test_half_precision_names_nothing(version: str, analyze: Analysis, runs: Any) -> None:
    """A bias in front of a BatchNorm has a gradient of 0, which rounding makes 1e-9 or 1e-5."""
    run = runs("stat_L1_mlp_fp16", version)
    assert analyze(run / "npu_dump/step0", run / "bench_dump/step0") == {}


def test_both_sides_are_printed(analyze: Analysis, runs: Any) -> None:
    run = runs("tensor_L1_dist2")
    analyze(run / "npu_dump/step0", run / "bench_dump/step0")
    lines = [line.split() for line in analyze.probe.out.splitlines()]
    assert "first difference among 2 rank(s):" in analyze.probe.out
    assert f"  rank 1: {FAULT}\n" in analyze.probe.out
    assert "r = y.detach().clone() * (1.05" in analyze.probe.out
    start = lines.index(["NPU", "Bench"])
    assert lines[start + 1][0] == "input.0" and "differs" not in lines[start + 1]
    assert lines[start + 2] == ["input.1", "1.05", "1.0", "differs"]
    assert lines[start + 3][0] == "output.0" and lines[start + 3][-1] == "differs"
    numbers = lines[start + 3][1:-1]
    assert len(numbers) == 8 and numbers[:4] != numbers[4:]
    assert lines[start + 4][0] == "wrote" and "diff_analyze_" in lines[start + 4][1]


def test_the_checksums_of_both_sides_are_printed(analyze: Analysis, runs: Any) -> None:
    run = runs("md5_L1_dist2", "26.2.0")
    node = analyze(run / "npu_dump/step0", run / "bench_dump/step0")["rank_1"][0]
    output = node["data_info"]["output"][f"{FAULT}.output.0"]
    assert f"output.0  {output['NPU MD5']}  {output['BENCH MD5']}  differs" in analyze.probe.out


# -- which paths, which files ----------------------------------------------------------------------


def test_one_pair_of_files(analyze: Analysis, runs: Any) -> None:
    """By file, by directory, by compare file: the rank is that of the directory."""
    run = runs("tensor_L1_dist2")
    target, golden = run / "npu_dump/step0/rank1", run / "bench_dump/step0/rank1"
    compare = analyze.out.with_suffix(".compare.json")
    compare.write_text(
        json.dumps({"npu_path": str(target / "dump.json"), "bench_path": str(golden / "dump.json")})
    )
    for arguments in ((target / "dump.json", golden / "dump.json"), (target, golden), ("-i", compare)):
        assert named(analyze(*arguments)) == [("rank_1", FAULT)]
        assert analyze.names() == ["compare_result_rank1.json", "diff_analyze.json"]
        assert "first difference among 1 rank(s):" in analyze.probe.out


def test_a_pair_of_files_without_number_is_rank_0(analyze: Analysis, tmp_path: Path) -> None:
    target = write_run(tmp_path / "a", program(1.05, 1.05))
    golden = write_run(tmp_path / "b", GOOD)
    assert named(analyze(target, golden)) == [("rank_0", "Torch.mul.0.forward")]
    assert analyze.names() == ["compare_result_rank0.json", "diff_analyze.json"]


def test_a_row_is_named_only_of_a_table_that_is_written(analyze: Analysis, runs: Any) -> None:
    both = [runs("tensor_L1_dist2") / f"{side}_dump/step0/rank1" for side in ("npu", "bench")]
    analyze(*both)
    assert "first suspects:\n    Tensor.__mul__.0" in analyze.probe.out and "(row" not in analyze.probe.out
    analyze(*both, "--format", "csv", "-c")
    assert "(row " in analyze.probe.out


def test_tables_are_written_only_where_they_are_asked_for(analyze: Analysis, written: Any) -> None:
    both = written([program(1.05, 1.05), GOOD], [GOOD, GOOD])
    analyze(*both, "--format", "csv,xlsx", "-c")
    assert [name for name in analyze.names() if not name.endswith(".json")] == [
        "compare_result_rank0.csv", "compare_result_rank0.xlsx", "compare_result_rank1.csv",
        "compare_result_rank1.xlsx", "compare_summary.csv", "compare_summary.xlsx",
    ]  # fmt: skip
    analyze(*both)
    assert all(name.endswith(".json") for name in analyze.names())


def test_each_step_is_analysed_by_itself(analyze: Analysis, tmp_path: Path) -> None:
    for step, scale in ((0, 1.0), (1, 1.05), (2, 1.05)):
        write_ranks(tmp_path / f"t/step{step}", [program(scale, 1.02), program(1.0, 1.02 if step else 1.0)])
        write_ranks(tmp_path / f"g/step{step}", [program(1.0, 1.02 if not step else 1.0), GOOD])
    analyze(tmp_path / "t", tmp_path / "g")
    assert analyze.found("step0") == {}
    for step in (1, 2):
        assert named(analyze.found(f"step{step}")) == [("rank_0", "Torch.mul.0.forward")]
        assert f"step{step}: first difference among 2 rank(s):" in analyze.probe.out
    assert "step0: no difference beyond rounding in 2 rank(s)" in analyze.probe.out
    for step in range(3):
        assert list(analyze.rank(1, f"step{step}")) == list(GOOD)
    assert named(analyze(tmp_path / "t", tmp_path / "g", "--step", "1")) == [
        ("rank_0", "Torch.mul.0.forward")
    ]  # fmt: skip


def test_several_workers_write_the_same_files(analyze: Analysis, runs: Any) -> None:
    run = runs("stat_mix_dist2")
    both = run / "npu_dump/step0", run / "bench_dump/step0"
    alone = analyze(*both), analyze.rank(0), analyze.rank(1)
    shutil.rmtree(analyze.out)
    assert analyze.probe("compare", *both, "-o", analyze.out, "-da", "-j", "2") == 0
    assert (analyze.found(), analyze.rank(0), analyze.rank(1)) == alone


def test_a_finished_comparison_exits_with_0_unless_asked(analyze: Analysis, written: Any) -> None:
    both = written([program(9.0, 9.0)], [GOOD])
    assert analyze(*both, "--fail-on", "error", code=1) == analyze(*both) != {}
    assert analyze(both[1], both[1], "--fail-on", "error") == {}


def test_fuzzy_pairs_are_analysed(analyze: Analysis, runs: Any) -> None:
    """One more relu in front moves every name by one; in their order the calls agree."""
    run = runs("tensor_L1_fuzzy")
    assert analyze(run / "npu_dump/step0", run / "bench_dump/step0", "-f") == {}


# -- what the files say ------------------------------------------------------------------------


def test_values_of_all_sorts_are_valid_json(analyze: Analysis, written: Any) -> None:
    nan, inf = float("nan"), float("inf")
    odd = [
        tensor(value=nan), tensor(value=inf), tensor(value=-inf), tensor(value=10**400), tensor([0], None),
        tensor(md5=None), None, scalar(nan), scalar(inf), scalar("中文 \ud800 \"'\\"), scalar(True), [], {},
        {"type": "slice", "value": [None, 3, None]}, {"type": "torch.Size", "value": [2, 3]},
        {"type": "ellipsis", "value": "..."}, {"deep": [{"er": [tensor()]}]}, tensor(Max=True, Min=False),
    ]  # fmt: skip
    ops = {f"Torch.名{n}.0.forward": forward(one, output=[one]) for n, one in enumerate(odd)}
    plain = {key: forward(tensor(), output=[tensor()]) for key in ops}
    for both in (written([ops], [ops]), written([ops], [plain]), written([plain], [ops])):
        assert len(named(analyze(*both))) <= 1
        assert list(analyze.rank()) == list(ops)


def test_tensors_of_all_sorts_are_valid_json(analyze: Analysis, tmp_path: Path) -> None:
    plain = np.arange(4, dtype=np.float64)
    odd = [
        plain * np.nan,
        plain * 1e300,
        plain * 5e-324,
        np.array(np.inf),
        plain > 1,
        plain * 1j,
        plain + 2**60,
    ]
    for side, arrays in (("t", odd), ("g", [np.roll(array, 1) if array.ndim else array for array in odd])):
        write_tensor_run(
            tmp_path / side, {f"Mint.a{n}.0.forward": ([one], [one]) for n, one in enumerate(arrays)}
        )
    analyze(tmp_path / "t", tmp_path / "g")
    states = {op: [item["difference"]["state"] for item in entry["op_items"]]
              for op, entry in analyze.rank().items()}  # fmt: skip
    assert set(states["Mint.a1.0.forward"]) == {"differs"}
    assert set(states["Mint.a3.0.forward"]) == {"same"}


def test_the_largest_numbers_are_valid_json(analyze: Analysis, tmp_path: Path) -> None:
    """A mask filled with the least number of float64."""
    mask = np.full(64, np.finfo(np.float64).min)
    for side in ("t", "g"):
        write_tensor_run(tmp_path / side, {"Mint.a.0.forward": ([mask], [mask])})
    assert analyze(tmp_path / "t", tmp_path / "g") == {}


def test_tensors_are_judged_by_their_data(analyze: Analysis, tmp_path: Path) -> None:
    """Two elements changed places: no statistic tells. And none that is wrong is believed."""
    array = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    write_tensor_run(tmp_path / "t", {"Mint.a.0.forward": ([array], [array[::-1].copy()])})
    golden = write_tensor_run(tmp_path / "g", {"Mint.a.0.forward": ([array], [array])})
    found = analyze(tmp_path / "t", tmp_path / "g")
    assert named(found) == [("rank_0", "Mint.a.0.forward")]
    golden.write_text(golden.read_text().replace('"Max": 1.0', '"Max": 7.0'))
    found = analyze(tmp_path / "g", tmp_path / "g")
    assert found == {}


def test_a_damaged_tensor_file_leaves_the_statistics(analyze: Analysis, tmp_path: Path) -> None:
    array = np.ones(4, np.float32)
    for side in ("t", "g"):
        write_tensor_run(tmp_path / side, {"Mint.a.0.forward": ([array], [array * 2])})
    (tmp_path / "t/dump_tensor_data/Mint.a.0.forward.output.0.npy").write_bytes(b"no numbers")
    assert analyze(tmp_path / "t", tmp_path / "g", code=2) == {}
    output = analyze.rank()["Mint.a.0.forward"]["op_items"][1]
    assert output["difference"]["state"] == "same"


def test_rows_of_one_side_alone(analyze: Analysis, written: Any) -> None:
    more = {"Torch.mul.0.forward": forward(tensor(), output=[tensor(value=1.05), tensor(), tensor()])}
    less = {"Torch.mul.0.forward": forward(tensor(), output=[tensor()])}
    for both in ((more, less), (less, more)):
        found = analyze(*written([both[0]], [both[1]]))
        assert named(found) == [("rank_0", "Torch.mul.0.forward")]
        items = analyze.rank()["Torch.mul.0.forward"]["op_items"]
        assert [item["difference"]["state"] for item in items] == ["same", "differs", "unjudged", "unjudged"]


def test_no_row_of_the_golden_alone_gets_lost(analyze: Analysis, written: Any) -> None:
    less = {"Torch.mul.0.forward": forward(tensor(), output=[tensor(value=1.05)])}
    more = {"Torch.mul.0.forward": forward(tensor(), output=[tensor(), tensor(), tensor()])}
    (node,) = analyze(*written([less], [more]))["rank_0"]
    assert len(node["data_info"]["output"]) == 3


MORE = {
    "Torch.relu.0.forward": GOOD["Torch.relu.0.forward"],
    "Torch.cos.0.forward": forward(tensor(), output=[tensor(value=3.0)]),
    **GOOD,
}


def test_an_op_of_one_side_alone_names_nothing(analyze: Analysis, written: Any) -> None:
    for both in ((MORE, GOOD), (GOOD, MORE)):
        assert analyze(*written([both[0]], [both[1]])) == {}
        assert all(entry["is_same"] for entry in analyze.rank().values())


def test_an_op_of_the_target_alone_stands_in_its_place(analyze: Analysis, written: Any) -> None:
    analyze(*written([MORE], [GOOD]))
    assert list(analyze.rank()) == list(MORE)


def test_an_op_of_the_golden_alone_stands_for_itself(analyze: Analysis, written: Any) -> None:
    analyze(*written([GOOD], [MORE]))
    for op, entry in analyze.rank().items():
        for item in entry["op_items"]:
            assert item["api_origin_name"] == op
            assert item["Bench Name"].startswith(op)


def test_modules_and_gradients_are_where_the_run_has_them(analyze: Analysis, tmp_path: Path) -> None:
    def run(directory: Path, value: float) -> Path:
        data = {
            "Functional.linear.0.forward": forward(tensor(), output=[tensor(value=value)]),
            "Module.l.Linear.forward.0": {
                **forward(tensor(), output=[tensor(value=value)]), "parameters": {"weight": tensor()},
            },
            "Module.l.Linear.parameters_grad": {"weight": [tensor(value=value)]},
        }  # fmt: skip
        write_run(directory, data)
        around = {key: None for key in data} | {"Functional.linear.0.forward": "Module.l.Linear.forward.0"}
        (directory / "construct.json").write_text(json.dumps(around))
        return directory

    (node,) = analyze(run(tmp_path / "t", 1.05), run(tmp_path / "g", 1.0))["rank_0"]
    assert node["op_name"] == "Functional.linear.0.forward"
    assert "in Module.l.Linear.forward.0" in analyze.probe.out
    content = analyze.rank()
    assert [item["state"] for item in content["Module.l.Linear.forward.0"]["op_items"]] == [
        "input", "parameters", "output",
    ]  # fmt: skip
    (gradient,) = content["Module.l.Linear.parameters_grad"]["op_items"]
    assert (gradient["state"], gradient["NPU Name"]) == (
        "parameters_grad", "Module.l.Linear.parameters_grad.weight",
    )  # fmt: skip


# -- ranks -------------------------------------------------------------------------------------


def test_the_same_fault_of_all_ranks_is_named_on_all(analyze: Analysis, written: Any) -> None:
    found = analyze(*written([program(1.05, 1.05)] * 3, [GOOD] * 3))
    assert named(found) == [(f"rank_{rank}", "Torch.mul.0.forward") for rank in range(3)]


def test_a_collective_that_delivers_wrong_values(analyze: Analysis, written: Any) -> None:
    found = analyze(*written([program(got=1.05)] * 2, [GOOD] * 2))
    assert named(found) == [(f"rank_{rank}", "Distributed.all_reduce.0.forward") for rank in range(2)]
    assert "although no difference was found in what was sent" in found["rank_0"][0]["reason"]


def test_faults_stay_in_their_process_groups(analyze: Analysis, written: Any) -> None:
    """Ranks 0 and 2 sum up by themselves, and so do 1 and 3; what is wrong on 3 is its own."""
    second = {"type": "torch.ProcessGroup", "group_ranks": [1, 3]}
    target = [
        program(1.05, 1.02, group=GROUP), program(group=second), program(1.0, 1.02, group=GROUP),
        {**program(group=second), "Torch.exp.0.forward": forward(tensor(), output=[tensor(value=1.5)])},
    ]  # fmt: skip
    golden = [program(group=GROUP), program(group=second)] * 2
    found = analyze(*written(target, golden))
    assert named(found) == [("rank_0", "Torch.mul.0.forward"), ("rank_3", "Torch.exp.0.forward")]


def test_a_broadcast_spreads_from_its_source_alone(analyze: Analysis, written: Any) -> None:
    def run(scale: float, got: float, end: float | None = None) -> dict[str, Any]:
        data = program(scale, got, "broadcast", src=scalar(1))
        if end is not None:
            data["Torch.exp.0.forward"] = forward(tensor(value=got), output=[tensor(value=end)])
        return data

    golden = [run(1.0, 1.0)] * 2
    assert named(analyze(*written([run(1.0, 1.05), run(1.05, 1.05)], golden))) == [
        ("rank_1", "Torch.mul.0.forward")
    ]  # fmt: skip
    assert named(analyze(*written([run(1.05, 1.0), run(1.0, 1.0, 1.3)], golden))) == [
        ("rank_0", "Torch.mul.0.forward"), ("rank_1", "Torch.exp.0.forward"),
    ]  # fmt: skip


def test_what_lies_in_receive_buffers_is_not_judged(analyze: Analysis, written: Any) -> None:
    def run(garbage: float) -> dict[str, Any]:
        return {
            "Torch.empty.0.forward": forward(scalar(2), output=[tensor(value=garbage)]),
            "Tensor.view.0.forward": forward(tensor(value=garbage), output=[tensor(value=garbage * 2)]),
            "Distributed.all_gather_into_tensor.0.forward": forward(
                tensor(value=garbage * 2), tensor(), output=[tensor()]
            ),
            "Tensor.copy_.0.forward": forward(tensor(value=garbage), tensor(), output=[tensor()]),
        }  # fmt: skip

    assert analyze(*written([run(7e22), run(-3.0)], [run(1e-8), run(5.0)])) == {}
    for op, entry in analyze.rank().items():
        assert entry["is_same"], op


def transfer(op: str, peer: int, value: float) -> dict[str, Any]:
    return {"class_type": "torch.distributed.P2POp", "op": op, "tensor": tensor(value=value), "peer": peer,
            "tag": 0, "group_id": "0"}  # fmt: skip


def exchange(rank: int, sent: float, held: float, got: float) -> dict[str, Any]:
    """A rank of three that sends to the next and receives from the one before."""
    transfers = [transfer("isend", (rank + 1) % 3, sent), transfer("irecv", (rank - 1) % 3, held)]
    return {
        "Torch.mul.0.forward": forward(tensor(), output=[tensor(value=sent)]),
        "Distributed.batch_isend_irecv.0.forward": forward(transfers),
        "Torch.exp.0.forward": forward(tensor(value=got), output=[tensor(value=got)]),
    }


def test_lists_of_sends_and_receives(analyze: Analysis, written: Any) -> None:
    """A fault of rank 0 reaches rank 1; what lay in the buffers differs on all and means nothing."""
    target = [exchange(0, 1.05, 4.0, 1.0), exchange(1, 1.0, 5.0, 1.05), exchange(2, 1.0, 6.0, 1.0)]
    golden = [exchange(rank, 1.0, 9.0, 1.0) for rank in range(3)]
    assert named(analyze(*written(target, golden))) == [("rank_0", "Torch.mul.0.forward")]
    sent, received = analyze.rank(1)["Distributed.batch_isend_irecv.0.forward"]["op_items"]
    assert [sent[column] for column in TRANSFER] == ["isend", "isend", "2", "2"]
    assert [received[column] for column in TRANSFER] == ["irecv", "irecv", "0", "0"]
    assert received["difference"]["state"] == "unjudged"


def test_the_peer_is_shown_where_a_list_of_sends_is_named(analyze: Analysis, written: Any) -> None:
    target, golden = (
        {"Distributed.batch_isend_irecv.0.forward": forward([transfer("isend", 1, value)])}
        for value in (1.05, 1.0)
    )
    (node,) = analyze(*written([target, {**GOOD}], [golden, {**GOOD}]))["rank_0"]
    (shown,) = node["data_info"]["input"].values()
    assert shown["NPU P2POp peer"] == "1"


def test_sends_and_receives(analyze: Analysis, written: Any) -> None:
    def sender(value: float) -> dict[str, Any]:
        return {
            "Torch.mul.0.forward": forward(tensor(), output=[tensor(value=value)]),
            "Distributed.send.0.forward": forward(tensor(value=value), scalar(1)),
        }

    def receiver(held: float, value: float) -> dict[str, Any]:
        return {
            "Distributed.recv.0.forward": forward(
                tensor(value=held), output=[tensor(value=value), scalar(0)], src=scalar(0)
            ),
            "Torch.exp.0.forward": forward(tensor(value=value), output=[tensor(value=value)]),
        }

    golden = [sender(1.0), receiver(3.0, 1.0)]
    assert named(analyze(*written([sender(1.05), receiver(8.0, 1.05)], golden))) == [
        ("rank_0", "Torch.mul.0.forward")
    ]  # fmt: skip
    assert named(analyze(*written([sender(1.0), receiver(8.0, 1.05)], golden))) == [
        ("rank_1", "Distributed.recv.0.forward")
    ]  # fmt: skip


def test_a_rank_that_only_one_side_has(analyze: Analysis, written: Any, tmp_path: Path) -> None:
    """It is said that nobody knows what that rank sent."""
    both = [0, 1, 2]
    group = {"type": "torch.ProcessGroup", "group_ranks": both}
    target, golden = written([program(got=1.05, group=group)] * 3, [program(group=group)] * 3)
    shutil.rmtree(golden / "rank2")
    found = analyze(target, golden)
    assert named(found) == [(f"rank_{rank}", "Distributed.all_reduce.0.forward") for rank in (0, 1)]
    assert "rank 2 may have sent them, and was not compared" in found["rank_0"][0]["reason"]
    assert "Only the target has rank 2" in analyze.probe.err


def test_a_damaged_rank_among_good_ones(analyze: Analysis, written: Any) -> None:
    target, golden = written([program(1.05, 1.02), GOOD, program(1.0, 1.02)], [GOOD] * 3)
    (target / "rank1/dump.json").write_text("{")
    found = analyze(target, golden, code=2)
    assert named(found) == [("rank_0", "Torch.mul.0.forward")]
    assert "error: rank1: " in analyze.probe.err
    assert "first difference among 2 rank(s):" in analyze.probe.out
    assert [name for name in analyze.names() if "rank1" in name] == []


def test_resuming_analyses_all_ranks(analyze: Analysis, written: Any) -> None:
    """What an earlier run finished stays, and is searched with the rest."""
    target, golden = written([program(1.0, 1.02), program(1.05, 1.02)], [GOOD] * 2)
    whole = (target / "rank1/dump.json").read_text()
    (target / "rank1/dump.json").write_text("{")
    assert named(analyze(target, golden, code=2)) == [("rank_0", "Distributed.all_reduce.0.forward")]
    (target / "rank1/dump.json").write_text(whole)
    assert named(analyze.again(target, golden, "--resume")) == [("rank_1", "Torch.mul.0.forward")]
    assert "first difference among 2 rank(s):" in analyze.probe.out


def test_only_the_first_nodes_are_printed(analyze: Analysis, written: Any) -> None:
    found = analyze(*written([program(1.05, 1.05)] * 8, [GOOD] * 8))
    assert len(found) == 8
    assert analyze.probe.out.count("Torch.mul.0.forward\n") == 5
    assert "and 3 more" in analyze.probe.out


# -- variables saved on their own ------------------------------------------------------------------


def test_saved_variables_alone_are_not_passed_over_in_silence(analyze: Analysis, runs: Any) -> None:
    """There is no first among them: a table is written all the same, or it is said why there is nothing."""
    run = runs("debug_stat")
    analyze(run / "npu_dump/step0", run / "bench_dump/step0")
    assert analyze.names() or "debug.json" in analyze.probe.err + analyze.probe.out


def test_saved_variables_have_their_table_and_no_analysis(analyze: Analysis, runs: Any) -> None:
    run = runs("debug_tensor")
    assert analyze(run / "npu_dump/step0", run / "bench_dump/step0", "--format", "csv", "-c") == {}
    assert analyze.names() == ["debug_compare_result.csv"]


def test_saved_variables_beside_a_recorded_run(analyze: Analysis, written: Any) -> None:
    target, golden = written([program(1.05, 1.05), GOOD], [GOOD, GOOD])
    for side in (target, golden):
        for rank in (0, 1):
            write_run(
                side / f"rank{rank}", {"x.0.debug": tensor(value=float(side == target))}, name="debug.json"
            )
    assert named(analyze(target, golden)) == [("rank_0", "Torch.mul.0.forward")]
    assert list(analyze.rank(0)) == list(GOOD)


# -- what goes wrong -------------------------------------------------------------------------------


class _FullDisk:
    """Stands in for a file on a disk that is full."""

    def __init__(self, file: Any, room: int) -> None:
        self._file = file
        self._room = room

    def write(self, text: str) -> int:
        self._room -= len(text)
        if self._room < 0:
            raise OSError(28, "No space left on device")
        return int(self._file.write(text))

    def close(self) -> None:
        self._file.close()


def fill(monkeypatch: pytest.MonkeyPatch, room: int, name: str = "compare_result_rank") -> None:
    """Leave room for so many characters of -da's files of the ranks."""
    plain = Path.open

    def limited(path: Path, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        is_ours = "w" in mode and path.name.startswith(f".{name}") and ".json." in path.name
        if is_ours and room < 0:
            raise OSError(28, "No space left on device")
        file = plain(path, mode, *arguments, **keywords)
        return _FullDisk(file, room) if is_ours else file

    monkeypatch.setattr(Path, "open", limited)


@pytest.mark.parametrize("room", [-1, 0, 1000])
def test_a_full_disk(room: int, analyze: Analysis, written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target, golden = written([program(1.05, 1.05)], [GOOD])
    fill(monkeypatch, room)
    assert analyze(target / "rank0", golden / "rank0", code=2) == {}
    assert "No space left on device" in analyze.probe.err
    assert "another directory with -o" in analyze.probe.err
    assert list(analyze.out.iterdir()) == []


def test_a_full_disk_leaves_no_half_of_a_table(
    analyze: Analysis, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, golden = written([program(1.05, 1.05)], [GOOD])
    fill(monkeypatch, -1)
    analyze(target / "rank0", golden / "rank0", "--format", "csv", code=2)
    assert list(analyze.out.iterdir()) == []


def test_a_full_disk_while_ranks_are_compared(
    analyze: Analysis, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank finds no room; the other is compared and analysed."""
    target, golden = written([program(1.05, 1.05), program(1.05, 1.05)], [GOOD] * 2)
    fill(monkeypatch, 1000, "compare_result_rank1")
    assert named(analyze(target, golden, code=2)) == [("rank_0", "Torch.mul.0.forward")]
    assert "error: rank1: " in analyze.probe.err and "No space left on device" in analyze.probe.err
    assert not [path for path in analyze.out.iterdir() if path.name.endswith(".part")]


def test_no_room_for_the_analysis(analyze: Analysis, written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the ranks are whole and stay."""
    plain = Path.write_text

    def full(path: Path, *arguments: Any, **keywords: Any) -> int:
        if path.name.startswith(".diff_analyze"):
            raise OSError(28, "No space left on device")
        return plain(path, *arguments, **keywords)

    target, golden = written([program(1.05, 1.05)], [GOOD])
    monkeypatch.setattr(Path, "write_text", full)
    assert analyze(target / "rank0", golden / "rank0", code=2) == {}
    assert "No space left on device" in analyze.probe.err
    assert analyze.names() == ["compare_result_rank0.json"]


def test_an_interrupted_comparison_is_not_analysed(
    analyze: Analysis, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compared by then is on disk, valid, and called what it is."""
    plain = RankFile.write

    def interrupted(file: RankFile, op: Any, *arguments: Any) -> None:
        if op.key.startswith("Distributed"):
            raise KeyboardInterrupt
        plain(file, op, *arguments)

    target, golden = written([program(1.05, 1.05)], [GOOD])
    monkeypatch.setattr(RankFile, "write", interrupted)
    assert analyze(target / "rank0", golden / "rank0", code=130) == {}
    (path,) = analyze.out.iterdir()
    assert path.name.startswith("compare_result_rank0_") and path.name.endswith("_interrupted.json")
    assert list(strictly(path)) == ["Torch.relu.0.forward", "Torch.mul.0.forward"]
