"""Merging the results of several ranks: which files, which rows, which cells, against tables typed by hand."""

from __future__ import annotations

import csv
import json
import resource
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import probe_reporters.merge as merge
import probe_reporters.results as results
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook, load_workbook
from probe_reporters.merge import MergeConfig, MergeResult, MergeWarning, merge_results
from support.cases import every
from support.measuring import PROPERTY
from support.runs.merged import HEADERS, TIME, row, sheets, two_ranks, write_rank

from probe_core.errors import UserError
from probe_core.model import Mode


def merged(directory: Path, config: MergeConfig, **options: Any) -> tuple[MergeResult, list[str]]:
    """Return the merged results in ``directory/out``, and the warnings."""
    said: list[str] = []
    return merge_results(directory, directory / "out", config, warn=said.append, **options), said


SEND = MergeConfig(("Distributed.send",), ("Cosine",))

REDUCE = "Distributed.all_reduce.0.forward"
INSIDE = "Module.net.Distributed.all_reduce.Wrap.forward.0.input.0"
RANKS = {
    (0, "csv"): [
        row("Torch.exp.0.forward.input.0", 1.0, 0.0),
        row("Distributed.broadcast.0.forward.input.0", 1.0, 0.0),
        row(f"{REDUCE}.input.0", 0.5, 0.25),
        row(f"{REDUCE}.input.group", "unsupported", "unsupported", ("tp-0-1-2-3", "tp-0-1-2-3")),
        row(f"{REDUCE}.output.0", "N/A", "N/A", (3.5, 3.25)),
        row("Distributed.all_reduce_coalesced.0.forward.input.0", 1.0, 0.0),
        row("DistributedXall_reduce.0.forward.input.0", 1.0, 0.0),
        row(INSIDE, 0.125, 2),
    ],
    (1, "jsonl"): [
        row(f"{REDUCE}.input.0", 0.75, 0.5),
        row(f"{REDUCE}.input.0", None, "inf", (None, "inf")),
        row(f"{REDUCE}.input.group", "unsupported", "unsupported", ("[0, 1, 2, 3]", "[0, 1]")),
        row(f"{REDUCE}.output.0", "shape unmatched", "shape unmatched", (3.5, 3.25)),
    ],
    (2, "xlsx"): [
        row(f"{REDUCE}.output.0", "Nan\t", " inf", (" inf", "-inf\t")),
        row(f"{REDUCE}.input.0", 1, "inf\t"),
        row("Distributed.broadcast.0.forward.input.0", "unsupported ", 1e-05, (True, False)),
    ],
    (10, "xlsx"): [
        row("Distributed.all_reduce.1.forward.output.0", 0.0625, 1e30),
        row(f"{REDUCE}.output.0", -0.5, 0),
        row("Distributed.broadcast.1.forward.input.0", 1, 0),
    ],
}
NAMES = ["NPU Name", "rank0", "rank1", "rank2", "rank10"]
EXPECTED = {
    "Cosine": [
        NAMES,
        [f"{REDUCE}.input.0", 0.5, 0.75, 1, None],
        [f"{REDUCE}.input.group", "NPU:tp-0-1-2-3  Bench:tp-0-1-2-3", "NPU:[0, 1, 2, 3]  Bench:[0, 1]", None, None],
        [f"{REDUCE}.output.0", "NPU:3.5  Bench:3.25", "shape unmatched", "NPU:inf  Bench:-inf", -0.5],
        [INSIDE, 0.125, None, None, None],
        [f"{REDUCE}.input.0", None, "NPU:None  Bench:inf", None, None],
        ["Distributed.all_reduce.1.forward.output.0", None, None, None, 0.0625],
        ["Distributed.broadcast.0.forward.input.0", 1, None, "NPU:True  Bench:False", None],
    ],
    "MaxAbsErr": [
        NAMES,
        [f"{REDUCE}.input.0", 0.25, 0.5, "inf", None],
        [f"{REDUCE}.input.group", "NPU:tp-0-1-2-3  Bench:tp-0-1-2-3", "NPU:[0, 1, 2, 3]  Bench:[0, 1]", None, None],
        [f"{REDUCE}.output.0", "NPU:3.5  Bench:3.25", "shape unmatched", "inf", 0],
        [INSIDE, 2, None, None, None],
        [f"{REDUCE}.input.0", None, "inf", None, None],
        ["Distributed.all_reduce.1.forward.output.0", None, None, None, 1e30],
        ["Distributed.broadcast.0.forward.input.0", 0, None, 1e-05, None],
    ],
}  # fmt: skip


def test_four_ranks_by_hand(tmp_path: Path) -> None:
    for (rank, suffix), rows in RANKS.items():
        write_rank(tmp_path, rank, rows, suffix)
    apis = ("Distributed.all_reduce", "Distributed.broadcast.0.forward")
    config = MergeConfig(apis, ("Cosine", "MaxAbsErr"))
    done, said = merged(tmp_path, config, time_stamp=TIME)
    assert done == MergeResult(
        (tmp_path / "out" / f"multi_ranks_compare_merge_{TIME}.xlsx",), (0, 1, 2, 10), config.metrics, 7, ()
    )
    assert sheets(done.files[0]) == EXPECTED
    assert said == ['"Distributed.broadcast.0.forward" has no row in rank1, rank10; the cells there are blank.']
    assert done.files[0].stat().st_mode & 0o777 == 0o640

    done, _ = merged(tmp_path, config, format="jsonl", time_stamp=TIME)
    assert [path.name for path in done.files] == [
        f"multi_ranks_compare_merge_{metric}_{TIME}.jsonl" for metric in config.metrics
    ]
    for path, (_, *rows) in zip(done.files, EXPECTED.values()):
        assert [json.loads(line) for line in path.read_text().splitlines()] == [
            dict(zip(NAMES, cells)) for cells in rows
        ]
    done, _ = merged(tmp_path, config, format="csv", time_stamp=TIME)
    assert done.files[0].read_text("utf-8").splitlines()[1] == f"{REDUCE}.input.0,0.5,0.75,1,"


def test_order_follows_the_configuration(tmp_path: Path) -> None:
    two_ranks(tmp_path, [row(f"Torch.{name}.0.forward.input.0", 1.0, 0.0) for name in ("a", "b", "c")])
    done, _ = merged(tmp_path, MergeConfig(("Torch.c", "Torch", "Torch.a"), ("Cosine",)))
    ((_, *rows),) = sheets(done.files[0]).values()
    assert [line[0][6] for line in rows] == ["c", "a", "b"]


def test_without_metrics_all_are_merged(tmp_path: Path) -> None:
    names = {
        Mode.TENSOR: ["Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio",
                      "Five Thousandths Err Ratio", "Requires_grad Consistent"],
        Mode.STATISTICS: ["Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr",
                          "MeanRelativeErr", "NormRelativeErr", "Requires_grad Consistent"],
    }  # fmt: skip
    for mode, expected in names.items():
        directory = tmp_path / mode.value
        directory.mkdir()
        cells = {"NPU Name": "Torch.exp.0.forward.input.0", "Requires_grad Consistent": True}
        for rank, suffix in enumerate(("xlsx", "csv", "jsonl")):
            write_rank(directory, rank, [cells], suffix, headers=HEADERS[mode])
        done, _ = merged(directory, MergeConfig(("Torch",)))
        assert list(sheets(done.files[0])) == expected
        assert sheets(done.files[0])["Requires_grad Consistent"][1][1:] == [True, True, True]


@pytest.mark.parametrize(
    "headers, mode",
    [
        ([h.replace("Accuracy Reached or Not", "Result") for h in HEADERS[Mode.TENSOR]], Mode.TENSOR),
        ([*HEADERS[Mode.TENSOR], "ulp_max", *results.METRIC_COLUMNS[Mode.STATISTICS]], Mode.TENSOR),
        ([*HEADERS[Mode.STATISTICS], *results.METRIC_COLUMNS[Mode.TENSOR]], Mode.STATISTICS),
        (HEADERS[Mode.STATISTICS][::-1], Mode.STATISTICS),
        ([*HEADERS[Mode.MD5], "Err_message"], Mode.MD5),
        ([h for h in HEADERS[Mode.TENSOR] if h != "EucDist"], None),
        ([], None),
    ],
)
def test_modes_are_told_by_their_columns(headers: list[str], mode: Mode | None) -> None:
    assert results.find_mode(headers) is mode


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    headers = [*HEADERS[Mode.TENSOR][::-1], "Sign flips"]
    for rank, suffix in enumerate(("xlsx", "csv", "jsonl")):
        write_rank(tmp_path, rank, [row("Torch.exp.0.forward.input.0", 0.5, 1)], suffix, headers=headers)
    done, _ = merged(tmp_path, MergeConfig(("Torch.exp",), ("Cosine",)))
    assert sheets(done.files[0])["Cosine"][1][1:] == [0.5, 0.5, 0.5]


def test_all_sheets_of_a_workbook_are_read(tmp_path: Path) -> None:
    book = Workbook()
    for number, page in enumerate((book.active, book.create_sheet("part_1"), book.create_sheet("empty"))):
        if number < 2:
            page.append(HEADERS[Mode.TENSOR])
            cells = row(f"Torch.exp.{number}.forward.input.0", number, 0)
            page.append([cells.get(header) for header in HEADERS[Mode.TENSOR]])
    for rank in (0, 1):
        book.save(tmp_path / f"compare_result_rank{rank}-rank{rank}_{TIME}.xlsx")
    done, _ = merged(tmp_path, MergeConfig(("Torch.exp",), ("Cosine",)))
    assert sheets(done.files[0])["Cosine"][1:] == [
        ["Torch.exp.0.forward.input.0", 0, 0], ["Torch.exp.1.forward.input.0", 1, 1],
    ]  # fmt: skip


def test_long_tables_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MAX_SHEET_ROWS", 3)
    two_ranks(tmp_path, [row(f"Torch.exp.{n}.forward.input.0", n, 0) for n in range(7)])
    done, _ = merged(tmp_path, MergeConfig(("Torch",), ("Cosine", "Requires_grad Consistent")))
    book = sheets(done.files[0])
    assert {title: len(rows) - 1 for title, rows in book.items()} == {
        "Cosine_part_0": 3, "Cosine_part_1": 3, "Cosine_part_2": 1,
        "Requires_grad Consistent_part_0": 3, "Requires_grad Consistent_part_1": 3,
        "Requires_grad Consistent_part_2": 1,
    }  # fmt: skip
    assert [line[1] for title in list(book)[:3] for line in book[title][1:]] == list(range(7))
    monkeypatch.setattr(merge, "MAX_SHEET_ROWS", 7)
    assert list(sheets(merged(tmp_path, MergeConfig(("Torch",), ("Cosine",)))[0].files[0])) == ["Cosine"]


@pytest.mark.parametrize(
    "metric, suffix, title",
    [
        ("Five Thousandths Err Ratio", "_part_0", "Five Thousandths Err Rat_part_0"),
        ("Cosine", "", "Cosine"),
        ("a/b[c]:*?\\", "", "a_b_c_____"),
    ],
)
def test_names_of_sheets(metric: str, suffix: str, title: str) -> None:
    assert merge._format_title(metric, suffix) == title


def test_the_sheet_is_easy_to_read(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    page = load_workbook(merged(tmp_path, SEND)[0].files[0]).active
    assert page.freeze_panes == "B2" and page.auto_filter.ref == "A1:C2" and page["C1"].font.bold
    assert page.column_dimensions["A"].width > 34 and page.column_dimensions["B"].width >= 20


def test_numbers_keep_all_digits(tmp_path: Path) -> None:
    two_ranks(tmp_path, [row("Distributed.send.0.forward.input.0", 0.1 + 0.2, 0)])
    assert sheets(merged(tmp_path, SEND)[0].files[0])["Cosine"][1][1] == 0.1 + 0.2


@every(
    "text, cell",
    [
        ("0", 0), ("-0.5", -0.5), ("+1e-3", 0.001), ("1.", 1.0), ("12.5%", "12.5%"), ("inf", "inf"), (" -inf\t", "-inf"),
        ("1e999", "inf"), ("1_0", "1_0"), ("٣", "٣"), ("True", True), ("0x10", "0x10"), ("nan", "NPU:1.0  Bench:2.0"),
        ("9007199254740993", "9007199254740993"), ("1" * 500, "1" * 500), ("", "NPU:1.0  Bench:2.0"),
    ],
)  # fmt: skip
def test_cells_that_are_text(text: str, cell: Any) -> None:
    assert results._convert_metrics(["name", "1.0", "2.0", text]) == [cell]
    assert isinstance(results._convert_metrics(["name", "1.0", "2.0", text])[0], type(cell))


def test_cells_that_are_numbers() -> None:
    cells = [0, 1 << 60, 0.5, -0.0, float("inf"), float("nan"), False, None]
    replaced = "NPU:1  Bench:2.5"
    assert results._convert_metrics(["name", 1, 2.5, *cells]) == [
        0, str(1 << 60), 0.5, -0.0, "inf", replaced, False, replaced,
    ]  # fmt: skip


EVIL = ["=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "x;=1+1", "<r><t>bold</t></r>", "a\x01b", "_x0041_"]
SAFE = ["'=1+1", "'+cmd|' /C calc'!A0", "'@SUM(A1)", "x;'=1+1", "<r><t>bold</t></r>"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_no_text_becomes_a_formula(suffix: str, tmp_path: Path) -> None:
    rows = [row(f"{text}.exp.0.forward.input.0", text, "N/A", (text, text)) for text in EVIL]
    for rank in (0, 1):
        write_rank(tmp_path, rank, rows, suffix)
    config = MergeConfig((".exp.0",), ("Cosine", "MaxAbsErr"))
    done, _ = merged(tmp_path, config)
    page = load_workbook(done.files[0])["Cosine"]
    assert {cell.data_type for line in page for cell in line} == {"s"}
    shown = [line[1] for line in sheets(done.files[0])["Cosine"][1:]]
    assert shown[: len(SAFE)] == SAFE
    names = [line[0] for line in sheets(done.files[0])["Cosine"][1:]]
    assert names[: len(SAFE)] == [f"{text}.exp.0.forward.input.0" for text in SAFE]
    done, _ = merged(tmp_path, config, format="csv")
    lines = list(csv.reader(done.files[0].open(encoding="utf-8", newline="")))
    assert [line[1] for line in lines[1 : len(SAFE) + 1]] == SAFE


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    written = {merged(tmp_path, SEND, time_stamp=TIME)[0].files[0].read_bytes() for _ in range(2)}
    assert len(written) == 1


# -- which files ----------------------------------------------------------------------------


def found(directory: Path) -> tuple[list[str], list[str]]:
    said: list[str] = []
    return [file.path.name for file in results.find_results(directory, said.append)], said


def test_find_results_reads_results_of_ranks_with_different_numbers(tmp_path: Path) -> None:
    (tmp_path / f"compare_result_rank1-rank2_{TIME}.csv").touch()
    assert found(tmp_path) == ([f"compare_result_rank1-rank2_{TIME}.csv"], [])


def test_other_files_are_left_out(tmp_path: Path) -> None:
    quiet = [
        "advisor_rank0_20260101120000.txt", "compare_result_rank0_20260101120000.json", "diff_analyze_1.json",
        f"debug_compare_result_rank0_{TIME}.csv", f"compare_summary_{TIME}.csv", "config.yaml",
        f"multi_ranks_compare_merge_{TIME}.xlsx", f".compare_result_rank0_{TIME}.csv.12.part",
    ]  # fmt: skip
    loud = {
        f"compare_result_rank7_{TIME}_interrupted.csv": "interrupted comparison",
        f"compare_result_{TIME}.csv": "single rank",
        f"compare_result_rank_{TIME}.xlsx": "single rank",
        f"compare_result_rank1-rank_{TIME}.csv": "is not named like",
        "compare_result_rank1_2026.jsonl": "is not named like",
        "notes.XLSX": "is not named like",
        f"~$compare_result_rank1_{TIME}.xlsx": "is not named like",
    }
    for name in [*quiet, *loud]:
        (tmp_path / name).touch()
    (tmp_path / f"compare_result_rank9_{TIME}.csv").mkdir()
    taken = [write_rank(tmp_path, rank, [], "csv").name for rank in (0, 1)]
    names, said = found(tmp_path)
    assert names == taken
    assert len(said) == len(loud) + 1
    for name, why in {**loud, f"compare_result_rank9_{TIME}.csv": "is not a file"}.items():
        assert any(f'"{name}"' in text and why in text and "left out" in text for text in said), name


def test_several_formats_of_one_time_are_one_result(tmp_path: Path) -> None:
    for rank, suffixes in enumerate((("xlsx", "csv", "jsonl"), ("xlsx", "csv"), ("xlsx",))):
        for suffix in suffixes:
            write_rank(tmp_path, rank, [], suffix)
    names, said = found(tmp_path)
    assert [name.rpartition(".")[2] for name in names] == ["jsonl", "csv", "xlsx"] and not said


def test_the_newest_result_of_a_rank_is_taken(tmp_path: Path) -> None:
    write_rank(tmp_path, 1, [], "jsonl", time_stamp="20250101000000")
    newest = write_rank(tmp_path, 1, [], "xlsx", name="compare_result_rank{rank}-rank{rank}_{time}.{suffix}")
    names, said = found(tmp_path)
    assert names == [newest.name]
    assert said == [f'Of rank 1 the newest result is taken, "{newest.name}"; '
                    'left out: "compare_result_rank1_20250101000000.jsonl".']  # fmt: skip


def test_ranks_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for rank in (10, 9, 100, 0):
        write_rank(tmp_path, rank, [row("Distributed.send.0.forward.input.0", rank, 0)], "jsonl")
    done, _ = merged(tmp_path, SEND)
    assert sheets(done.files[0])["Cosine"] == [
        ["NPU Name", "rank0", "rank9", "rank10", "rank100"], ["Distributed.send.0.forward.input.0", 0, 9, 10, 100],
    ]  # fmt: skip


# -- what goes wrong ------------------------------------------------------------------------


def test_an_api_that_no_rank_has(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    done, said = merged(tmp_path, MergeConfig(("Distributed.sent", "Distributed.send"), ("Cosine",)))
    assert done.row_count == 1
    assert said == ['No rank has a row of "Distributed.sent"  (nearest: Distributed.send).']


def test_no_api_at_all(tmp_path: Path) -> None:
    names = (
        "Distributed.send.0.forward.input.0",
        "Module.layers.0.attn.Linear.forward.3.input.0",
        "tree.0.debug",
    )
    two_ranks(tmp_path, [row(name, 1, 0) for name in names])
    apis = ("Distributed.sent", names[0], "Module.layers.0.atn.Linear")
    with pytest.raises(UserError, match="No rank has a row of any API") as error:
        merged(tmp_path, MergeConfig(apis))
    assert "Write the beginnings of row names" in error.value.fix
    assert "nearest: Distributed.send" in error.value.choices[0]
    assert "nearest: Distributed.send" in error.value.choices[1]
    assert "nearest: Module.layers.0.attn.Linear" in error.value.choices[2]
    assert not (tmp_path / "out").exists()


def test_mixed_modes(tmp_path: Path) -> None:
    name = "Torch.exp.0.forward.input.0"
    for rank in range(5):
        mode = (Mode.TENSOR, Mode.STATISTICS, Mode.TENSOR, Mode.STATISTICS, Mode.MD5)[rank]
        write_rank(tmp_path, rank, [{"NPU Name": name}], "csv", headers=HEADERS[mode])
    with pytest.raises(UserError, match="compared in different modes") as error:
        merged(tmp_path, MergeConfig(("Torch",)))
    assert "compare_index" in error.value.fix
    assert error.value.choices[:2] == (
        f"compare_result_rank0_{TIME}.csv: tensor", f"compare_result_rank1_{TIME}.csv: statistics",
    )  # fmt: skip
    done, said = merged(tmp_path, MergeConfig(("Torch",), ("Cosine",)))
    assert done.ranks == (0, 2) and done.damaged == ()
    assert said == [
        f'"compare_result_rank4_{TIME}.csv" holds checksums, which cannot be merged. It is left out.',
        *(f'"compare_result_rank{rank}_{TIME}.csv" is of mode statistics, which has no "Cosine". It is left out.'
          for rank in (1, 3)),
    ]  # fmt: skip
    done, said = merged(tmp_path, MergeConfig(("Torch",), ("MaxRelativeErr",)))
    assert done.ranks == (0, 1, 2, 3) and "different modes" in said[-1]


def test_who_gives_no_ear_gets_python_warnings(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    (tmp_path / "other.csv").touch()
    with pytest.warns(MergeWarning, match="other.csv"):
        merge_results(tmp_path, tmp_path / "out", SEND)


def test_formats_have_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='no format "html"'):
        merged(tmp_path, SEND, format="html")


@pytest.mark.parametrize("format", merge.FORMATS)
def test_a_full_disk_leaves_nothing_behind(format: str, tmp_path: Path) -> None:
    two_ranks(tmp_path, [row(f"Distributed.send.{n}.forward.input.0", n, 0) for n in range(5000)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        with pytest.raises(UserError, match="cannot be written") as error:
            merged(tmp_path, MergeConfig(("Distributed.send",)), format=format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "Free some space" in error.value.fix
    assert list((tmp_path / "out").iterdir()) == []


def test_the_output_is_a_file(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    (tmp_path / "out").touch()
    with pytest.raises(UserError, match="is a file"):
        merged(tmp_path, SEND)


# -- against a reference --------------------------------------------------------------------

FRACTIONS = st.integers(-999, 999).map(lambda n: n / 8 + 1 / 16)
CELLS = st.one_of(
    FRACTIONS,
    st.sampled_from(["N/A", "unsupported", "Nan", "Nan\t", "shape unmatched", "12.5%", " inf", "-inf\t"]),
)
MAXIMA = st.one_of(FRACTIONS, st.sampled_from(["N/A", "inf", "None", "[0, 1]"]))
ROW_NAMES = st.sampled_from(
    [
        f"{scope}.{n}.forward.{slot}"
        for scope in ("A.x", "A.xy", "B.A.x", "C")
        for n in (0, 1)
        for slot in ("input.0", "output.0")
    ]
)
TABLE = st.lists(st.tuples(ROW_NAMES, CELLS, CELLS, MAXIMA, MAXIMA), max_size=8)
FILE = st.tuples(st.sampled_from(["csv", "jsonl", "xlsx"]), TABLE)


def reference(tables: dict[int, list[Any]], apis: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The merged tables, by the text of the specification and nothing else."""
    known: dict[int, dict[tuple[str, int], Any]] = {}
    for rank, rows in tables.items():
        counts: Counter[str] = Counter()
        known[rank] = {}
        for name, *cells in rows:
            known[rank][name, counts[name]] = cells
            counts[name] += 1
    order: list[tuple[str, int]] = []
    for api in apis:
        for rank in sorted(known):
            order += [key for key in known[rank] if api + "." in key[0] and key not in order]

    def cell(cells: Any, metric: int) -> Any:
        if cells is None:
            return None
        value = cells[metric]
        if isinstance(value, str) and value.strip() in ("N/A", "unsupported", "Nan"):
            return f"NPU:{cells[2]}  Bench:{cells[3]}"
        return value.strip() if isinstance(value, str) else value

    return {
        metric: [
            {"NPU Name": key[0], **{f"rank{rank}": cell(known[rank].get(key), number) for rank in sorted(known)}}
            for key in order
        ]
        for number, metric in enumerate(("Cosine", "MaxAbsErr"))
    }  # fmt: skip


@PROPERTY
@given(
    files=st.dictionaries(st.integers(0, 30), FILE, min_size=2, max_size=4),
    apis=st.lists(st.sampled_from(["A.x", "A", "B.A.x.0.forward", "C.1", "A.z"]), min_size=1, max_size=3),
)
def test_merging_is_what_the_specification_says(files: dict[int, Any], apis: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", MergeWarning)
        directory = Path(name)
        for rank, (suffix, rows) in files.items():
            cells = [row(name, cosine, largest, (high, golden)) for name, cosine, largest, high, golden in rows]
            padded = [*cells, row("Other.0", 1.0, 1.0)]
            write_rank(directory, rank, padded, suffix)
        expected = reference({rank: rows for rank, (_, rows) in files.items()}, apis)
        config = MergeConfig(tuple(apis), ("Cosine", "MaxAbsErr"))
        if not expected["Cosine"]:
            with pytest.raises(UserError, match="No rank has a row"):
                merge_results(directory, directory, config)
            return
        done = merge_results(directory, directory, config, format="jsonl")
        for path, table in zip(done.files, expected.values()):
            assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == table
