"""``probe compare -da`` on several ranks, on saved variables, and with mistakes."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from probe_diagnosis.first_difference.rank_file import RankFile
from support.runs.differences import GOOD, TRANSFER, Analysis, analyze, named, program, strictly, written  # noqa: F401
from support.runs.recorded import forward, scalar, tensor, write_run

from probe_core.files import atomic

# -- hand-written runs -------------------------------------------------------------------------


GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 2]}
# -- ranks -------------------------------------------------------------------------------------


def test_the_same_fault_of_all_ranks_is_named_on_all(analyze: Analysis, written: Any) -> None:
    found = analyze(*written([program(1.05, 1.05)] * 3, [GOOD] * 3))
    assert named(found) == [(f"rank_{rank}", "Torch.mul.0.forward") for rank in range(3)]


def test_a_collective_that_delivers_wrong_values(analyze: Analysis, written: Any) -> None:
    found = analyze(*written([program(got=1.05)] * 2, [GOOD] * 2))
    assert named(found) == [(f"rank_{rank}", "Distributed.all_reduce.0.forward") for rank in range(2)]
    assert "although no difference was found in the sent values" in found["rank_0"][0]["reason"]


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
        {"Distributed.batch_isend_irecv.0.forward": forward([transfer("isend", 1, value)])} for value in (1.05, 1.0)
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
    assert "first difference among 2 ranks:" in analyze.probe.out
    assert [name for name in analyze.names() if "rank1" in name] == []


def test_resuming_analyses_all_ranks(analyze: Analysis, written: Any) -> None:
    """Ranks that an earlier run finished stay, and are searched with the rest."""
    target, golden = written([program(1.0, 1.02), program(1.05, 1.02)], [GOOD] * 2)
    whole = (target / "rank1/dump.json").read_text()
    (target / "rank1/dump.json").write_text("{")
    assert named(analyze(target, golden, code=2)) == [("rank_0", "Distributed.all_reduce.0.forward")]
    (target / "rank1/dump.json").write_text(whole)
    assert named(analyze.again(target, golden, "--resume")) == [("rank_1", "Torch.mul.0.forward")]
    assert "first difference among 2 ranks:" in analyze.probe.out


def test_only_the_first_nodes_are_printed(analyze: Analysis, written: Any) -> None:
    found = analyze(*written([program(1.05, 1.05)] * 8, [GOOD] * 8))
    assert len(found) == 8
    verdict, heading, nodes = analyze.probe.out.partition("first difference among ")
    assert heading
    for printed in (verdict, nodes):
        assert printed.count("Torch.mul.0.forward\n") == 5
        assert "and 3 more" in printed


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
            write_run(side / f"rank{rank}", {"x.0.debug": tensor(value=float(side == target))}, name="debug.json")
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


def test_a_full_disk_while_ranks_are_compared(analyze: Analysis, written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank finds no room; the other is compared and analysed."""
    target, golden = written([program(1.05, 1.05), program(1.05, 1.05)], [GOOD] * 2)
    fill(monkeypatch, 1000, "compare_result_rank1")
    assert named(analyze(target, golden, code=2)) == [("rank_0", "Torch.mul.0.forward")]
    assert "error: rank1: " in analyze.probe.err and "No space left on device" in analyze.probe.err
    assert not [path for path in analyze.out.iterdir() if path.name.endswith(".part")]


def test_no_room_for_the_analysis(analyze: Analysis, written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the ranks are whole and stay."""
    plain = atomic.replace_file

    def full(path: Path) -> AbstractContextManager[BinaryIO]:
        if path.name.startswith("diff_analyze"):
            raise OSError(28, "No space left on device")
        return plain(path)

    target, golden = written([program(1.05, 1.05)], [GOOD])
    monkeypatch.setattr(atomic, "replace_file", full)
    assert analyze(target / "rank0", golden / "rank0", code=2) == {}
    assert "No space left on device" in analyze.probe.err
    assert analyze.names() == ["answer.json", "compare_result_rank0.json"]


def test_an_interrupted_comparison_is_not_analysed(
    analyze: Analysis, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results until then are on disk, valid, and named for what they are."""
    plain = RankFile._write

    def interrupted(file: RankFile, op: str, *arguments: Any, **options: Any) -> None:
        if op.startswith("Distributed"):
            raise KeyboardInterrupt
        plain(file, op, *arguments, **options)

    target, golden = written([program(1.05, 1.05)], [GOOD])
    monkeypatch.setattr(RankFile, "_write", interrupted)
    assert analyze(target / "rank0", golden / "rank0", code=130) == {}
    answer, path = sorted(analyze.out.iterdir())
    assert analyze.probe.out.startswith("DIVERGED: Torch.mul.0.forward returns values that differ, ")
    assert strictly(answer)["not_captured"] == ["the comparison was interrupted before its end"]
    assert path.name.startswith("compare_result_rank0_") and path.name.endswith("_interrupted.json")
    assert list(strictly(path)) == ["Torch.relu.0.forward", "Torch.mul.0.forward"]
