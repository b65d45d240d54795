"""``probe api_precision_compare`` on files written by hand: columns, languages, bad files, and the command itself."""

from __future__ import annotations

import csv
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs.details_csv import (
    API,
    CHINESE,
    COMPARED,
    COMPARED_ENGLISH,
    ENGLISH,
    GOOD,
    RATIOS,
    Row,
    compare,
    compare_files,
    output,
    read_back,
    row,
    write,
)

from probe_core.errors import UserError

ROWS = [row(output(method), **cells) for method, cells in GOOD.items()]
BAD = [row(output(method), **{**cells, **change}) for (method, cells), change in zip(GOOD.items(), (
    {"rmse": 1.5}, {"absolute": 0.5}, {"binary": 0.5}, {"ulp_mean": 100.0, "ulp_share": 0.5},
    {"thousandth": 0.5}))]  # fmt: skip
LABELS = {"benchmark": ("标杆比对法", "Benchmark Ratio"), "binary": ("二进制一致法", "Binary Consistency"),
          "absolute": ("绝对阈值法", "Absolute Threshold"), "ulp": ("ULP误差比对法", "ULP Error"),
          "dual": ("双千指标法", "Dual Thousandth")}  # fmt: skip
REQUIRED = [name for name in CHINESE if name not in
            ("Bench Dtype", "Shape", "余弦相似度", "最大绝对误差", "双百指标", "双万指标", "ULP误差最大值", "Status")]  # fmt: skip
TRANSLATED = dict(zip(CHINESE, ENGLISH))


@pytest.fixture
def command(probe: Any, tmp_path: Path) -> Callable[..., int]:
    """``command("--lang", "en")``: the exit code, for ``npu.csv`` and ``gpu.csv``, with results in ``out``."""

    def run(*options: str | Path) -> int:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        sides = ("-npu", tmp_path / "npu.csv", "-gpu", tmp_path / "gpu.csv")
        code: int = probe("api_precision_compare", *sides, "-o", tmp_path / "out", *options)
        assert "Traceback" not in probe.err
        return code

    return run


def pair(directory: Path, npu: list[Row], gpu: list[Row] | None = None, **how: Any) -> tuple[Path, Path]:
    return write(directory / "npu.csv", npu, **how), write(directory / "gpu.csv", gpu or ROWS, **how)


def refusal(npu: Path, gpu: Path) -> str:
    with pytest.raises(UserError) as refused:
        compare_files(npu, gpu)
    assert refused.value.what and refused.value.fix
    return str(refused.value)


# columns and languages (section 10, C8)


@pytest.mark.parametrize("language", [None, "zh", "en"])
@pytest.mark.parametrize("ours", ["zh", "en"])
@pytest.mark.parametrize("theirs", ["zh", "en"])
def test_languages(ours: str, theirs: str, language: str | None, tmp_path: Path) -> None:
    """Either header is read on either side; the result is in the language asked for, or that of the NPU's file."""
    headers = {"zh": CHINESE, "en": ENGLISH}
    npu = write(tmp_path / "npu.csv", BAD, headers[ours])
    found = compare_files(npu, write(tmp_path / "gpu.csv", ROWS, headers[theirs]), language=language)
    is_english = (language or ours) == "en"
    assert found.header == (COMPARED_ENGLISH if is_english else COMPARED)
    status, label = ("Compare Result", "Compare Algorithm") if is_english else ("比对结果", "比对算法")
    assert {line[status] for line in found.details.values()} == {"error"}
    for method, labels in LABELS.items():
        line = found.details[output(method)]
        assert line["Message"].isascii() == is_english and line["Message"].startswith("ERROR: ")
        assert found.results[f"Torch.{API[method]}.0"] == ("error", " ", line["Message"])
        assert line[label].isascii() == is_english and (is_english or line[label] == labels[0])
    assert len({line[label] for line in found.details.values()}) == 5


def test_columns_of_each_method(tmp_path: Path) -> None:
    """Each method fills its own columns, the others are a single blank."""
    found = compare(tmp_path, BAD, ROWS)
    filled = {
        "benchmark": {*COMPARED[1:11]}, "absolute": {*COMPARED[11:17]}, "binary": {*COMPARED[17:19]},
        "ulp": {*COMPARED[19:23]}, "dual": {*COMPARED[23:25]},
    }  # fmt: skip
    assert list(found.details) == [output(method) for method in GOOD]
    for method, columns in filled.items():
        line = found.details[output(method)]
        assert {key for key, text in line.items() if text != " "} == {*columns, "API Name", *COMPARED[25:]}
        assert line["比对算法"] == LABELS[method][0]


def test_files_in_any_form(tmp_path: Path) -> None:
    """No byte order mark, other line ends, all quoted, columns in another order or further ones: all the same."""
    expected = compare_files(*pair(tmp_path / "plain", BAD))
    shuffled = random.Random(1).sample(CHINESE, len(CHINESE))
    mixed = [*CHINESE[:12], *ENGLISH[12:]]
    forms: list[dict[str, Any]] = [
        {"encoding": "utf-8"}, {"lineterminator": "\n"}, {"quoting": csv.QUOTE_ALL}, {"header": shuffled},
        {"header": [*CHINESE, "Note"]}, {"header": REQUIRED}, {"header": [f" {name} " for name in CHINESE]},
        {"header": mixed},
    ]  # fmt: skip
    for number, form in enumerate(forms):
        npu, gpu = pair(tmp_path / str(number), BAD, **form)
        found = compare_files(npu, gpu, language="zh")
        assert (found.details, found.results) == (expected.details, expected.results), form
    npu = tmp_path / "plain" / "npu.csv"
    npu.write_bytes(npu.read_bytes().replace(b"\r\n", b"\r\n\r\n , \r\n"))  # blank lines
    assert compare_files(npu, tmp_path / "plain" / "gpu.csv").results == expected.results


def test_a_file_of_msprobe(tmp_path: Path) -> None:
    """Its numbers, blanks, and messages that end in a line break; an integer output among the others."""
    text = (
        "\ufeff" + ",".join(CHINESE) + "\r\n"
        "Functional.linear.0.forward.output.0,torch.float32,torch.float16,\"(4, 8)\",0.99999999121,0.00048828125,"
        "1.0,0.96875,0.5, ,{},{},0.0,{},{}, , , ,0.93,0.21,{},pass,\"Max abs error is less than 0.001, consider as"
        " pass, skip other check and set to SPACE.\n\"\r\n"
        "Functional.softmax.0.forward.output.0,torch.float32,torch.float16,\"(4, 8)\",0.99999999121,0.00048828125,"
        "1.0,0.96875,0.5, ,{},{},0.0,{},{}, , , , , , ,pass,\"first\nsecond\n\"\r\n"
        "Tensor.argmax.0.forward.output.0,torch.int64,torch.int64,\"(4,)\", , , , , ,{}, , , , , , , , , , , ,pass,"
        "\"Compare algorithm is not supported for int64 data. Only judged by Error Rate.\n\"\r\n"
        "Functional.softmax.0.backward.output.0, , , , , , , , , , , , , , , , , , , , ,SKIP,"
        "\"function backward result is None, skip backward.\n\"\r\n"
    )  # fmt: skip
    npu, gpu = tmp_path / "npu.csv", tmp_path / "gpu.csv"
    good, worse = (0.25, 0.001, 0.01, 0.002), (0.25, 0.0015, 0.11, 0.002)
    npu.write_text(text.format(*worse, 0.002, *worse, 0.125), "utf-8", newline="")
    gpu.write_text(text.format(*good, 0.004, *good, 0.0), "utf-8", newline="")
    found = compare_files(npu, gpu)
    warning, error = "WARNING: 均方根误差比值超过阈值", "ERROR: 相对误差最大值比值超过阈值"
    assert found.results == {
        "Functional.linear.0": ("pass", " ", " "),
        "Functional.softmax.0": ("error", "SKIP", f"{warning}; {error}"),
        "Tensor.argmax.0": ("error", " ", "ERROR: 二进制一致错误率超过阈值"),
    }
    line = found.details["Functional.linear.0.forward.output.0"]
    assert (line["比对算法"], line["ULP误差判定结果"], line["ULP误差大于阈值占比比值"]) == (
        "ULP误差比对法", "pass", "0.50000000000000",
    )  # fmt: skip
    line = found.details["Functional.softmax.0.forward.output.0"]
    assert line["均方根误差比值"] == "1.50000000000000" and line["均方根误差判定结果"] == "warning"
    assert line["相对误差最大值比值"] == "11.00000000000000" and line["小值域判定结果"] == "pass"
    found = compare_files(npu, gpu, "8.3")
    assert found.results["Functional.softmax.0"] == ("error", "SKIP", error)


# what is no details file


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("missing", REQUIRED)
def test_a_missing_column_is_named(missing: str, side: int, tmp_path: Path) -> None:
    """The message has the name of the column in the language of the file."""
    for header, name in ((CHINESE, missing), (ENGLISH, TRANSLATED[missing])):
        files = list(pair(tmp_path, ROWS, header=header))
        write(files[side], ROWS, [column for column in header if column != name])
        said = refusal(files[0], files[1])
        assert f'"{name}"' in said and str(files[side]) in said


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("blank", ["", " "])
def test_a_row_that_is_there_twice(side: int, blank: str, tmp_path: Path) -> None:
    """Blanks around a name make no other name."""
    files = pair(tmp_path, ROWS)
    write(files[side], [*ROWS, {**ROWS[1], "name": blank + ROWS[1]["name"]}])
    said = refusal(*files)
    assert ROWS[1]["name"] in said and str(files[side]) in said


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("kind", ["gbk", "utf-16", "utf-16-le", ";", "\t", "empty", "blank", "bytes", "zip", "cut",
                                  "longer", "header twice", "huge cell", "directory", "none"])  # fmt: skip
def test_files_that_are_none(kind: str, side: int, tmp_path: Path) -> None:
    """A spreadsheet's other encodings and separators, files cut off or of another kind: an error naming the file."""
    files = pair(tmp_path, ROWS)
    path = files[side]
    whole = path.read_bytes()
    if kind in ("gbk", "utf-16", "utf-16-le"):
        write(path, ROWS, encoding=kind)
    elif len(kind) == 1:
        write(path, ROWS, delimiter=kind)
    elif kind in ("directory", "none"):
        path.unlink()
        if kind == "directory":
            path.mkdir()
    elif kind == "header twice":
        write(path, ROWS, [*CHINESE, "Message"])
    else:
        start = whole.index(b"Torch")
        path.write_bytes({
            "empty": b"", "blank": b"\n\n", "bytes": random.Random(2).randbytes(3000), "zip": b"PK\3\4" + bytes(99),
            "cut": whole.rstrip()[:-6], "longer": whole.rstrip() + b",1\n",
            "huge cell": whole[:start] + b'"' + b"x" * (1 << 21) + b'"\n',
        }[kind])  # fmt: skip
    said = refusal(*files)
    assert str(path) in said and said.count("\n") >= 1
    if kind in ("gbk", "utf-16"):
        assert "UTF-8" in said


def test_files_without_rows(tmp_path: Path) -> None:
    """Nothing to judge: two files of headers; all fields of the headers are there."""
    header = (",".join(CHINESE) + "\n").encode("utf-8-sig")
    (tmp_path / "npu.csv").write_bytes(header)
    found = compare_files(tmp_path / "npu.csv", write(tmp_path / "gpu.csv", ROWS))
    assert (found.details, found.results, found.header) == ({}, {}, COMPARED)


def test_nothing_becomes_a_formula(tmp_path: Path) -> None:
    """Names and messages of strangers: no cell begins as a spreadsheet's formula does."""
    names = ["=cmd|' /C calc'!A0", "=cmd|' /C calc'!A0.x.0.forward.output.0", "@SUM(1+1).x.0.forward.output.0",
             "+1.x.0.forward.output.0", "-2.x.0.backward.output.0", "a;=1.x.0.forward.output.0",
             "＝1.x.0.forward.output.0", '=HYPERLINK("http://a.b.c").x.0.forward.output.0']  # fmt: skip
    rows = [row(name, " ", status="SKIP", message=message)
            for name, message in zip(names, ["=1+1", "@a", "\t=1", "-1+cmd", "+a", "%0", "=A1", "x"])]  # fmt: skip
    npu, gpu = pair(tmp_path, rows, rows)
    for language in ("zh", "en"):
        found = compare_files(npu, gpu, language=language)
        assert len(found.details) == len(names)
    for path in tmp_path.glob("out-*/*.csv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            cells = [cell for line in csv.reader(file) for cell in line]
        assert not [cell for cell in cells if cell[0] in "=+-@＝＋－＠%\t\r" or ";=" in cell]


# the command


def test_command(command: Callable[..., int], probe: Any, tmp_path: Path) -> None:
    extra = [row(output("ulp", n), **GOOD["ulp"]) for n in range(1, 8)]
    pair(tmp_path, [*BAD, *extra], [*ROWS, row("Torch.mul.9.forward.output.0", **GOOD["absolute"])])
    assert command() == 0
    found = read_back(tmp_path / "out")
    assert list(found.details) == [output(method) for method in GOOD]
    assert {one[0] for one in found.results.values()} == {"error"}
    assert "5 APIs judged by 5 outputs" in probe.out and "5 error" in probe.out
    assert f"{output('ulp', 1)} is not in gpu.csv; skipped." in probe.err
    assert "2 more rows are not in gpu.csv" in probe.err and "mul.9" not in probe.err + probe.out
    assert command("--fail-on", "error") == 1 and command("--lang", "en") == 0
    assert read_back(tmp_path / "out").header == COMPARED_ENGLISH


def test_command_and_the_release(command: Callable[..., int], probe: Any, tmp_path: Path) -> None:
    """A warning of the guide is none in 8.3."""
    pair(tmp_path, [row(output("benchmark"), **{**RATIOS, "rmse": 0.75})])
    assert command() == 0 and command("--fail-on", "error") == 0 and "1 warning" in probe.out
    assert command("--fail-on", "warning") == 1 and command("--standard", "seed", "--fail-on", "warning") == 1
    assert read_back(tmp_path / "out").results["Torch.exp.0"][0] == "warning"
    assert command("--standard", "8.3", "--fail-on", "warning") == 0
    assert read_back(tmp_path / "out").results["Torch.exp.0"][0] == "pass"
    assert command("--standard", "26") == 2


@pytest.mark.parametrize("side", [0, 1])
def test_command_writes_nothing_where_it_refuses(
    side: int, command: Callable[..., int], probe: Any, tmp_path: Path
) -> None:
    """A duplicate, a missing column or another encoding is an error before anything is written."""
    files = pair(tmp_path, ROWS)
    for spoilt in (
        lambda path: write(path, [*ROWS, ROWS[0]]),
        lambda path: write(path, ROWS, CHINESE[:-1]),
        lambda path: write(path, ROWS, encoding="gbk"),
        lambda path: path.unlink(),
    ):
        pair(tmp_path, ROWS)
        spoilt(files[side])
        assert command() == 2 and probe.err.startswith("error: ") and str(files[side]) in probe.err
        assert not (tmp_path / "out").exists() and not probe.out


def test_command_prints_no_escape_sequences(command: Callable[..., int], probe: Any, tmp_path: Path) -> None:
    lost = "Torch.\x1b[2Jexp.0.forward.output.0"
    failed = row("Torch\x1b]0;x\x07.mul.0.forward.output.0", **{**GOOD["absolute"], "relative": 1.0})
    pair(tmp_path, [row(lost, **RATIOS), failed], [failed])
    assert command() == 0
    assert "mul.0" in probe.out and "exp.0" in probe.err
    assert not [c for c in probe.out + probe.err if not c.isprintable() and c != "\n"]


def test_command_looks_around(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A side that is not given is the one details csv in the working directory."""
    monkeypatch.chdir(tmp_path)
    gpu = write(tmp_path / "gpu" / "accuracy_checking_details_20260102000000.csv", ROWS)
    assert probe("api_precision_compare", "-gpu", gpu) == 2 and "There is no" in probe.err and "-npu" in probe.err
    write(tmp_path / "accuracy_checking_result_20260101000000.csv", BAD)
    write(tmp_path / "accuracy_checking_details_20260101000000.csv", BAD)
    assert probe("api_precision_compare", "-gpu", gpu, "-o", "out") == 0
    assert set(read_back(tmp_path / "out").details) == {line["name"] for line in BAD}
    assert probe("api_precision_compare", "-npu", gpu, "-o", "other") == 0
    assert set(one[0] for one in read_back(tmp_path / "other").results.values()) == {"pass"}
    assert probe("api_precision_compare") == 2  # both sides the same file
    write(tmp_path / "accuracy_checking_details_20260101000001.csv", BAD)
    assert probe("api_precision_compare", "-gpu", gpu) == 2
    assert "several" in probe.err and "accuracy_checking_details_20260101000001.csv" in probe.err
    assert not list(tmp_path.glob("api_precision_compare_*"))
