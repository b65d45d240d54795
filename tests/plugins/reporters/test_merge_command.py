"""``probe merge_result`` as its users use it: msprobe's files, our own, and mistakes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from probe_reporters.results import MERGEABLE_COLUMNS
from support import DATA
from support.runs.merged import HEADERS, TIME, row, sheets, two_ranks, write_rank

from probe_core.model import Mode

FORMATS = ("xlsx", "csv", "jsonl")
CONFIG = "api:\n  - Distributed.send\ncompare_index:\n  - Cosine\n"
HEAVY = {"torch", "mindspore", "pandas", "openpyxl", "xlsxwriter", "numpy", "yaml"}


@pytest.fixture
def merge(probe: Any, tmp_path: Path) -> Any:
    """``merge("api: …")``: the exit code of merging the results in ``tmp_path``."""
    config = tmp_path / "config.yaml"

    def run(text: str | bytes = CONFIG, *options: str) -> int:
        config.write_bytes(text.encode() if isinstance(text, str) else text)
        code: int = probe("merge_result", "-i", tmp_path, "-o", tmp_path / "out", "-config", config, *options)
        return code

    return run


def written(directory: Path) -> dict[str, list[list[Any]]]:
    """The sheets of the one workbook in ``directory``."""
    (path,) = directory.glob("multi_ranks_compare_merge_*.xlsx")
    return sheets(path)


# -- the command line -----------------------------------------------------------------------


def test_the_command_of_the_guide(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_ranks(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    for number, command in enumerate((
        ["-f", "pytorch", "merge_result", "-i", ".", "-o", "out0", "-config", "config.yaml"],
        ["merge_result", "--input_dir", ".", "--output_dir", "out1", "--config", "config.yaml"],
        ["merge_result", "--input-dir", ".", "--output-dir", "out2", "--config-path", "config.yaml"],
    )):  # fmt: skip
        assert probe(*command) == 0, probe.err
        (path,) = (tmp_path / f"out{number}").iterdir()
        assert probe.out.splitlines() == [
            "1 row of 2 ranks (0, 1) merged, 1 metric", f"  wrote out{number}/{path.name}",
        ]  # fmt: skip
        assert probe.err == ""
    assert probe("merge_result", "-i", ".", "-config", "config.yaml", "-o") == 0
    assert len(list((tmp_path / "output").glob("multi_ranks_compare_merge_*.xlsx"))) == 1


def test_many_ranks_are_summed_up(merge: Any, probe: Any, tmp_path: Path) -> None:
    for rank in range(12):
        write_rank(tmp_path, rank, [row("Distributed.send.0.forward.input.0", 1, 0)], "csv")
    assert merge() == 0
    assert "of 12 ranks (0, 1, 2, 3, 4, 5, 6, 7, … 11)" in probe.out


def test_listings_import_nothing_heavy(probe: Any) -> None:
    assert probe("--help") == 0 and "merge_result" in probe.out
    for arguments in (["--help"], ["merge_result", "--help"]):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "probe_core.cli", *arguments],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0
        names = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
        assert not names & HEAVY


def test_the_plugin_lists_it(probe: Any) -> None:
    assert probe("plugins") == 0
    assert "merge-result" in probe.out


def test_the_page_does_what_it_says(
    probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DATA.parents[1] / "docs" / "merging.md").read_text("utf-8")
    blocks = dict(re.findall(r"```(bash|yaml|python)\n(.*?)```", page, re.DOTALL))
    shutil.copytree(results_of(tmp_path / "msprobe", "26.2.0", "tensor_L1_dist2") / "xlsx", tmp_path / "out")
    (tmp_path / "config.yaml").write_text(blocks["yaml"])
    monkeypatch.chdir(tmp_path)
    assert probe(*shlex.split(blocks["bash"])[1:]) == 0, probe.err
    shown = re.findall(r"^\| (Distributed\.all_reduce.*put\.0) \| (\S+) \| (\S+) \|$", page, re.MULTILINE)
    rows = {name: cells for name, *cells in written(tmp_path / "merged")["MaxAbsErr"]}
    assert len(shown) == 2
    for name, *cells in shown:
        assert rows[name] == [float(cell) for cell in cells]
    exec(blocks["python"], {})
    assert "6 (0, 1)" in capsys.readouterr().out
    for mode, choices in MERGEABLE_COLUMNS.items():
        assert f"| task `{mode.value}` | {', '.join(choices)} |" in page


# -- msprobe's results ---------------------------------------------------------------------

DEVIATIONS: dict[tuple[str, Any], tuple[Any, str]] = {
    ("8.3.3", "NPU:1  Bench:1"): (
        "NPU:True  Bench:True", "the table says True, which msprobe's reader turns into a number",
    ),
    ("26.2.0", "0"): (0, "a number as text; msprobe turns it into a number only where the whole column is"),
}  # fmt: skip
"""Cells of msprobe's merged tables that are otherwise here, and why."""
SORTED_BY_NAME = {"26.2.0"}
"""Versions that sort rows by name; here, as in 8.3.3, they follow the configuration and the table."""
DIGITS = ".16g"
"""The number of digits that msprobe writes; here all are kept."""


def results_of(tmp_path: Path, version: str, case: str) -> Path:
    zipfile.ZipFile(DATA / f"merge-{version}.zip").extractall(tmp_path)
    return tmp_path / case


def as_here(cells: list[Any], version: str) -> list[Any]:
    """A row of msprobe's merged table as it is expected here."""
    return [DEVIATIONS[version, cell][0] if (version, cell) in DEVIATIONS else cell for cell in cells]


def digits(cells: list[Any]) -> list[Any]:
    return [float(format(cell, DIGITS)) if isinstance(cell, float) else cell for cell in cells]


@pytest.mark.parametrize(
    "version, case, source",
    [
        ("8.3.3", "tensor_L1_dist2", "xlsx"),
        ("26.2.0", "tensor_L1_dist2", "xlsx"),
        ("26.2.0", "tensor_L1_dist2", "csv"),
        ("26.2.0", "stat_mix_dist2", "xlsx"),
        ("26.2.0", "stat_mix_dist2", "csv"),
    ],
)
def test_results_of_msprobe_are_merged_as_msprobe_does(
    version: str, case: str, source: str, probe: Any, tmp_path: Path
) -> None:
    base = results_of(tmp_path, version, case)
    assert probe(
        "-f", "pytorch", "merge_result", "-i", base / source, "-o", base / "out", "-config", base / "config.yaml"
    ) == 0  # fmt: skip
    assert probe.err == ""
    ours, theirs = written(base / "out"), sheets(base / "merged.xlsx")
    assert list(ours) == list(theirs)
    for title, (header, *rows) in theirs.items():
        expected = [as_here(cells, version) for cells in rows]
        found = [digits(cells) for cells in ours[title][1:]]
        if version in SORTED_BY_NAME:
            found.sort()
        assert ours[title][0] == header
        assert found == [digits(cells) for cells in expected], title


def test_rows_follow_the_configuration(probe: Any, tmp_path: Path) -> None:
    base = results_of(tmp_path, "26.2.0", "stat_mix_dist2")
    config = base / "config.yaml"
    assert config.read_text().split()[2] == "Distributed.all_reduce"
    assert probe("merge_result", "-i", base / "csv", "-o", base / "out", "-config", config) == 0
    names = [cells[0].split(".")[1] for cells in written(base / "out")["Max diff"][1:]]
    assert list(dict.fromkeys(names)) == ["all_reduce", "all_gather_into_tensor"]


# -- our own results ------------------------------------------------------------------------


@pytest.mark.parametrize("case, metrics", [("tensor_L1_dist2", 7), ("stat_mix_dist2", 9)])
def test_all_formats_of_a_comparison_merge_alike(
    case: str, metrics: int, probe: Any, runs: Any, tmp_path: Path
) -> None:
    base, results = runs(case, "8.3.3"), tmp_path / "results"
    ranks = [base / side / "step0" for side in ("npu_dump", "bench_dump")]
    assert probe("compare", *ranks, "-o", results, "--format", ",".join(FORMATS)) == 0, probe.err
    config = tmp_path / "config.yaml"
    config.write_text("api: [Distributed, Tensor.sum, Functional]\n")
    tables = {}
    for source in FORMATS:
        (tmp_path / source).mkdir()
        for path in results.glob(f"compare_result_rank*.{source}"):
            shutil.copy(path, tmp_path / source)
        out = tmp_path / f"out-{source}"
        command = ("merge_result", "-i", tmp_path / source, "-o", out, "-config", config)
        assert probe(*command, "--format", "jsonl") == 0, probe.err
        tables[source] = [path.read_text("utf-8") for path in sorted(out.iterdir())]
        assert len(tables[source]) == metrics and tables[source][0].count("\n") > 30
    assert tables["xlsx"] == tables["csv"]
    for rounded, exact in zip(tables["csv"], tables["jsonl"]):  # whose numbers keep all their digits
        for line, other in zip(rounded.splitlines(), exact.splitlines(), strict=True):
            cells, digits = json.loads(line), json.loads(other)
            assert list(cells) == list(digits)
            for name, cell in cells.items():
                assert digits[name] == (pytest.approx(cell, abs=1e-6) if isinstance(cell, float) else cell)

    assert probe("merge_result", "-i", results, "-o", tmp_path / "all", "-config", config) == 0
    assert probe.err == "", "one result a rank, whatever formats it is written in"
    for (header, *rows), lines in zip(written(tmp_path / "all").values(), _in_order(tables["jsonl"], tmp_path)):
        assert [dict(zip(header, cells)) for cells in rows] == lines


def _in_order(tables: list[str], tmp_path: Path) -> list[list[dict[str, Any]]]:
    """The tables of the jsonl files in the order of the sheets."""
    names = [path.name.rpartition("_")[0] for path in sorted((tmp_path / "out-jsonl").iterdir())]
    titles = [f"multi_ranks_compare_merge_{title.replace(' ', '_')}" for title in written(tmp_path / "all")]
    found = dict(zip(names, tables))
    return [[json.loads(line) for line in found[title].splitlines()] for title in titles]


# -- mistakes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, what, fix",
    [
        ("", "is not a mapping with the key api", "Distributed.all_reduce"),
        ("- Distributed", "is not a mapping with the key api", "For example:"),
        ("api: [a\n", "is not valid yaml at line 2", "For example:"),
        (b"api: [\xff\xfe]", "is not UTF-8", "Save it as UTF-8."),
        ("api: [" * 3000, "is not valid yaml", "For example:"),
        ("compare_index: [Cosine]", "api is missing", "  - Distributed.all_reduce"),
        ("api: Distributed.send", "api is not a list", "For example:"),
        ("api: []", "lists no API under api", "For example:"),
        ("api: [Distributed, 3]", "api, entry 2, is a number, not a text", "in quotes"),
        ("api: [Distributed, [x]]", "api, entry 2, is a list, not a text", "Write one name per entry"),
        ("api: ['']", "api, entry 1, is empty", "Write one name per entry"),
        ("api: [null]", "api, entry 1, is empty", "Write one name per entry"),
        ("api: [a]\nindex: [b]", 'unknown key "index"', "Did you mean compare_index? Known keys:"),
        ("api: [a]\n1: [b]", 'unknown key "1"', "Known keys:"),
        ("api: [a]\ncompare_index: Cosine", "compare_index is not a list", "Leave it out for all"),
        ("api: [a]\ncompare_index: [Cosin]", 'unknown metric "Cosin"', "Did you mean Cosine?"),
        ("api: [a]\ncompare_index: [Result]", 'unknown metric "Result"', "Requires_grad Consistent"),
        ("api: [a]\ncompare_index: [Cosine, Max diff]", "mixes metrics", "tensor: Cosine, EucDist"),
    ],
)  # fmt: skip
def test_a_wrong_configuration(text: str | bytes, what: str, fix: str, merge: Any, probe: Any, tmp_path: Path) -> None:
    two_ranks(tmp_path)
    assert merge(text) == 2
    assert probe.err.startswith("error: ") and what in probe.err and fix in probe.err
    assert "Traceback" not in probe.err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["api: [Distributed.send]\ncompare_index:\n", "\ufeffapi: [Distributed.send]"])
def test_no_metrics_are_all_metrics(text: str, merge: Any, tmp_path: Path) -> None:
    two_ranks(tmp_path)
    assert merge(text) == 0
    assert len(written(tmp_path / "out")) == 7


def test_a_configuration_that_is_not_there_or_too_large(merge: Any, probe: Any, tmp_path: Path) -> None:
    two_ranks(tmp_path)
    for path in (tmp_path / "none.yaml", tmp_path):
        assert probe("merge_result", "-i", tmp_path, "-o", tmp_path / "out", "-config", path) == 2
        assert "cannot be read" in probe.err and "Check the path given with --config." in probe.err
    assert merge(b"#" * (1 << 20) + b"\n") == 2 and "larger than 1 MiB" in probe.err


def test_wrong_directories(merge: Any, probe: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    for directory, what in ((tmp_path / "none", "cannot be read"), (config, "is a file")):
        assert probe("merge_result", "-i", directory, "-o", tmp_path / "out", "-config", config) == 2
        assert what in probe.err and "Give the directory that holds the result files" in probe.err
    assert merge() == 2
    assert "holds no result of a rank that can be merged" in probe.err
    assert "compare_result_rank{n}_{14 digits}.xlsx, .csv or .jsonl" in probe.err
    write_rank(tmp_path, 0, [], "csv")
    assert merge() == 2
    assert "holds the result of one rank only that can be merged; two are needed" in probe.err
    two_ranks(tmp_path)
    assert merge(CONFIG, "--format", "html") == 2
    (tmp_path / "out").touch()
    assert merge() == 2 and "is a file" in probe.err and "Give a directory." in probe.err
    assert probe("merge_result", "-i", tmp_path) == 2 and "-config" in probe.err


NAME = f"compare_result_rank2_{TIME}"
ROWS = [row(f"Distributed.send.{n}.forward.input.0", n, 0) for n in range(50)]


def whole(directory: Path, suffix: str) -> bytes:
    path = write_rank(directory, 2, ROWS, suffix)
    content = path.read_bytes()
    path.unlink()
    return content


def without(column: str) -> list[str]:
    return [header for header in HEADERS[Mode.TENSOR] if header != column]


def damage(directory: Path, kind: str) -> None:
    """Write a damaged result of rank 2."""
    suffix = kind.partition(" ")[0]
    path = directory / f"{NAME}.{suffix}"
    if kind == "csv short row":
        path.write_bytes(whole(directory, "csv").rsplit(b",", 3)[0])
    elif kind == "csv cut in quotes":
        path.write_bytes(whole(directory, "csv") + b'"Distributed.se')
    elif kind == "csv gbk":
        path.write_bytes(whole(directory, "csv").replace(b"-", "测".encode("gbk")))
    elif kind == "csv no maximum":
        write_rank(directory, 2, ROWS, suffix, headers=without("NPU max"))
    elif kind.endswith("lacks a metric"):
        write_rank(directory, 2, ROWS, suffix, headers=without("EucDist"))
    elif kind == "jsonl cut off":
        path.write_bytes(whole(directory, "jsonl")[:-40])
    elif kind == "jsonl array":
        path.write_text("[1]\n")
    elif kind == "jsonl deep":
        path.write_text("[" * 100_000)
    elif kind == "jsonl lacks a member":
        path.write_bytes(whole(directory, "jsonl") + b'{"NPU Name": "x"}\n')
    elif kind == "xlsx cut off":
        path.write_bytes(whole(directory, "xlsx")[:-400])
    elif kind == "xlsx no zip":
        path.write_text("NPU Name,Cosine\n")
    elif kind == "xlsx flipped":
        content = bytearray(whole(directory, "xlsx"))
        content[600:5000] = bytes(4400)
        path.write_bytes(content)
    elif kind == "xlsx another zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a.txt", "a")
    elif kind == "xlsx no name":
        write_rank(directory, 2, [*ROWS, row("", 1, 0)], suffix)
    else:
        assert kind.endswith("empty")
        path.touch()


@pytest.mark.parametrize(
    "kind, what, fix",
    [
        ("csv empty", "is empty", "Compare that rank again"),
        ("csv short row", "is damaged at line 51: it has", "or copy its file again"),
        ("csv cut in quotes", "is damaged at line 52: unexpected end of data", "Compare that rank again"),
        ("csv gbk", "is not UTF-8", "Save it as UTF-8."),
        ("csv no maximum", 'has no column "NPU max"', "Compare that rank again"),
        ("csv lacks a metric", "lacks columns", "Compare that rank again"),
        ("jsonl empty", "is empty", "Compare that rank again"),
        ("jsonl cut off", "is damaged at line 50: it is not JSON, or was cut off", "copy its file again"),
        ("jsonl array", "is damaged at line 1: it is not a JSON object", "Compare that rank again"),
        ("jsonl deep", "is damaged at line 1: it is not JSON", "Compare that rank again"),
        ("jsonl lacks a member", "is damaged at line 51: the row has no 'NPU max'", "Compare that rank again"),
        ("jsonl lacks a metric", "lacks columns", "Compare that rank again"),
        ("xlsx empty", "is damaged: it is not an Excel workbook", "Compare that rank again"),
        ("xlsx cut off", "is damaged: it is not an Excel workbook, or was cut off", "copy its file again"),
        ("xlsx no zip", "is damaged: it is not an Excel workbook", "Compare that rank again"),
        ("xlsx flipped", "is damaged", "Compare that rank again"),
        ("xlsx another zip", "is damaged: it is not an Excel workbook", "Compare that rank again"),
        ("xlsx no name", "is damaged at row 52: it has no NPU Name", "Compare that rank again"),
        ("xlsx lacks a metric", "lacks columns", "Compare that rank again"),
    ],
)  # fmt: skip
def test_a_damaged_result(kind: str, what: str, fix: str, merge: Any, probe: Any, tmp_path: Path) -> None:
    two_ranks(tmp_path)
    damage(tmp_path, kind)
    assert merge() == 2
    warning = probe.err.splitlines()[0]
    assert warning.startswith(f'warning: "{NAME}.') and what in warning and fix in warning
    assert warning.endswith("Rank 2 is left out.")
    assert "Left out: 1 damaged result file." in probe.err and "Traceback" not in probe.err
    assert "of 2 ranks (0, 1) merged" in probe.out
    assert written(tmp_path / "out")["Cosine"][0] == ["NPU Name", "rank0", "rank1"]

    next(tmp_path.glob("compare_result_rank1_*")).unlink()
    shutil.rmtree(tmp_path / "out")
    assert merge() == 2
    assert what in probe.err and "one rank only that can be merged" in probe.err
    assert not (tmp_path / "out").exists() and probe.out == ""


def test_a_file_that_is_too_large(merge: Any, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_ranks(tmp_path)
    with (tmp_path / f"{NAME}.csv").open("wb") as file:
        file.truncate((1 << 30) + 1)
    assert merge() == 2
    assert f'"{NAME}.csv" is larger than 1 GiB' in probe.err
    (tmp_path / f"{NAME}.csv").unlink()
    path = tmp_path / f"{NAME}.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("xl/sharedStrings.xml", bytes(100_000))
    monkeypatch.setattr("probe_reporters.results.MAX_FILE_BYTES", 99_999)
    assert merge() == 2
    assert f'"{path.name}" holds more than 1 GiB of text' in probe.err and "Write csv instead." in probe.err


def test_a_byte_order_mark_does_no_harm(merge: Any, probe: Any, tmp_path: Path) -> None:
    two_ranks(tmp_path)
    for rank, suffix in enumerate(("csv", "jsonl")):
        path = write_rank(tmp_path, rank, ROWS, suffix)
        path.write_bytes("\ufeff".encode() + path.read_bytes())
    assert merge() == 0 and probe.err == ""
