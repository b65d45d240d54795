"""``api_precision_compare`` on csv pairs written by hand: the decisions about rows, and how they make up an API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runs.details_csv import GOOD, RATIOS, Row, above, below, compare, output, printed, row

RELEASES = pytest.mark.parametrize("release", ("seed", "8.3"))
UNSUPPORTED = "This data type does not support benchmark compare."
ZEROS: dict[str, Any] = dict.fromkeys(RATIOS, 0.0)
EMPTY = "ERROR: Input data is an empty string"
RMSE_ERROR = "ERROR: 均方根误差比值超过阈值"


def good(name: str, method: str = "benchmark", dtype: str = "float32") -> Row:
    return row(name, dtype, **GOOD[method])


def skipped(name: str, message: str = "Bench output is None, skip this test.") -> Row:
    return row(name, " ", status="SKIP", message=message)


# which standard (9.1)


@RELEASES
def test_which_standard(release: str, tmp_path: Path) -> None:
    """The dtype comes first, then the guide's lists by the whole name, then the rest."""
    every = {key: value for cells in GOOD.values() for key, value in cells.items()}
    benchmark, binary, ulp = "标杆比对法", "二进制一致法", "ULP误差比对法"
    expected = {
        ("Torch.matmul.0", "float16"): ulp, ("Torch.linalg.matmul.0", "float16"): benchmark,
        ("Tensor.add_.0", "bfloat16"): "绝对阈值法", ("Tensor.__add__.0", "float32"): "绝对阈值法",
        ("Torch.special.add.0", "float32"): benchmark,
        ("Functional.conv2d.0", "float32"): "双千指标法", ("Functional.conv1d.0", "bfloat16"): "双千指标法",
        ("Functional.conv3d.0", "float32"): benchmark, ("Functional.conv2d.1", "int8"): binary,
        ("Torch.matmul.1", "int64"): binary, ("Torch.add.1", "bool"): binary, ("Torch.exp.1", "uint8"): binary,
        ("Torch.exp.2", "int16"): binary, ("Torch.exp.3", "float16"): benchmark, ("Torch.relu.0", "float32"): binary,
        ("Torch.exp.4", "int"): binary, ("Torch.Matmul.0", "float32"): benchmark,
        ("Torch.histc.0", "float32"): benchmark if release == "seed" else binary,
    }  # fmt: skip
    rows = [row(f"{api}.forward.output.0", dtype, **every) for api, dtype in expected]
    found = compare(tmp_path, rows, rows, release)
    labels = [line["比对算法"] for line in found.details.values()]
    assert dict(zip(expected, labels)) == expected
    assert {line["比对结果"] for line in found.details.values()} == {"pass"}
    assert found.results == {api: ("pass", " ", " ") for api, _ in expected}


@RELEASES
def test_dtypes_that_no_standard_judges(release: str, tmp_path: Path) -> None:
    """They are skipped in any list of APIs, and in their direction only."""
    rows = []
    for number, dtype in enumerate(("float64", "complex64", "complex128")):
        for method, cells in GOOD.items():
            rows.append(row(output(method, number), dtype, **cells))
            rows.append(row(output(method, number, "backward"), "float32", **cells))
    mixed = [row("Torch.exp.9.forward.output.0", "float64", **RATIOS), good("Torch.exp.9.forward.output.1")]
    found = compare(tmp_path, rows + mixed, rows + mixed, release)
    for name, line in found.details.items():
        skip = ".forward.output.0" in name
        assert line["比对结果"] == ("SKIP" if skip else "pass")
        assert line["Message"] == (UNSUPPORTED if skip else " ") and (line["比对算法"] == " ") == skip
    blank = row("Torch.exp.8.forward.output.0", "float64", status="SKIP", message="another")
    assert compare(tmp_path, [blank], [blank], release).results["Torch.exp.8"] == ("SKIP", " ", UNSUPPORTED)
    assert found.results.pop("Torch.exp.9") == ("pass", " ", " ")
    assert set(found.results.values()) == {("SKIP", "pass", UNSUPPORTED)} and len(found.results) == 15


@RELEASES
def test_dtypes_that_differ(release: str, tmp_path: Path) -> None:
    """Rows whose sides have different dtypes are errors with a message."""
    pairs = [("float16", "float32"), ("float32", "bfloat16"), ("int64", "int32"), ("float32", "float64")]
    sides = [[good(output("benchmark", n), "benchmark", pair[side]) for n, pair in enumerate(pairs)]
             for side in (0, 1)]  # fmt: skip
    found = compare(tmp_path, sides[0], sides[1], release)
    for number, (ours, theirs) in enumerate(pairs):
        message = f"DEVICE Dtype differs: torch.{ours}, torch.{theirs}"
        assert found.results[f"Torch.exp.{number}"] == ("error", " ", message)
        line = found.details[output("benchmark", number)]
        assert (line["比对结果"], line["比对算法"], line["Message"]) == ("error", " ", message)
    same = good(output("benchmark"), "benchmark", " torch.float32 ")
    assert compare(tmp_path, [same], [good(output("benchmark"))], release).results["Torch.exp.0"][0] == "pass"


# rows without numbers


@RELEASES
@pytest.mark.parametrize("status", ["error", "ERROR", " Error "])
@pytest.mark.parametrize("dtype", ["float32", "int64", " "])
def test_errors_without_numbers(status: str, dtype: str, release: str, tmp_path: Path) -> None:
    """They are errors, never SKIP; statuses are read in upper and lower case."""
    name, message = output("ulp"), "The shape of bench(2,) and npu(3,) not equal."
    for theirs in (row(name, dtype, status=status), good(name, "ulp"), skipped(name)):
        found = compare(tmp_path, [row(name, dtype, status=status, message=message)], [theirs], release)
        assert found.details[name]["比对结果"] == "error" and found.details[name]["Message"] == message
        assert found.results == {"Torch.matmul.0": ("error", " ", message)}


@RELEASES
def test_rows_without_numbers_that_are_no_errors(release: str, tmp_path: Path) -> None:
    """They are skipped with their message; where the GPU alone has nothing, with its message."""
    name = output("benchmark")
    for status in ("SKIP", "pass", "warning", "Warning", " "):
        npu = row(name, "float32", status=status, message="no elements")
        found = compare(tmp_path, [npu], [npu], release)
        assert found.results == {"Torch.exp.0": ("SKIP", " ", "no elements")}
    found = compare(tmp_path, [skipped(name, "it failed")], [good(name)], release)
    assert found.results == {"Torch.exp.0": ("SKIP", " ", "it failed")}
    found = compare(tmp_path, [good(name)], [skipped(name, "out of memory")], release)
    assert found.results["Torch.exp.0"][0] == "SKIP" and "out of memory" in found.results["Torch.exp.0"][2]
    found = compare(tmp_path, [row(name, status="error", rmse=0.5)], [good(name)], release)
    assert found.results["Torch.exp.0"] == ("SKIP", " ", EMPTY)  # not all are blank


# cells

NEEDED = {
    "benchmark": (set(RATIOS), set(RATIOS)), "absolute": (set(GOOD["absolute"]), set()),
    "binary": ({"binary"}, set()), "ulp": (set(GOOD["ulp"]), set(GOOD["ulp"])), "dual": ({"thousandth"}, set()),
}  # fmt: skip


@RELEASES
@pytest.mark.parametrize("method", GOOD)
def test_blanks_and_texts_in_number_cells(method: str, release: str, tmp_path: Path) -> None:
    """A blank or a text where the method needs a number: SKIP with the text; elsewhere it does not matter."""
    npu: list[Row] = []
    gpu: list[Row] = []
    expected = {}
    bad = {"": EMPTY, "  \t ": EMPTY, "\u3000": EMPTY, "text": "not a number", "0.5a": "not a number",
           "N/A": "not a number", "None": "not a number", "1,5": "not a number", "0x1": "not a number"}  # fmt: skip
    numbers = (
        "hundredth",
        "cosine",
        *GOOD["absolute"],
        *RATIOS,
        *GOOD["ulp"],
        "ulp_max",
        "thousandth",
        "binary",
    )
    for side in (0, 1):
        for key in numbers:
            if method == "benchmark" and key == "inf_nan":
                continue  # may be blank, and is judged where it is not
            for text, message in bad.items():
                name = output(method, len(npu))
                lines = [row(name, cosine=1.0, **GOOD[method]) for _ in range(2)]
                lines[side][key] = text
                npu.append(lines[0])
                gpu.append(lines[1])
                expected[name] = message if key in NEEDED[method][side] else ""
    found = compare(tmp_path, npu, gpu, release)
    for name, message in expected.items():
        line = found.details[name]
        status, _, said = found.results[name.removesuffix(".forward.output.0")]
        assert line["比对结果"] == status == ("SKIP" if message else "pass"), name
        assert said == line["Message"] and message in said


@RELEASES
def test_any_text_of_a_float_is_read(release: str, tmp_path: Path) -> None:
    """Readers accept any text of a float, and white space around it."""
    texts = ["0.5", ".5", "+0.5", "5e-1", "5E-01", " 0.5 ", "\t0.5", "0.50000000000000", "00.5", "-0.5"]
    rows = [row(output("benchmark", n), **{**RATIOS, "rmse": text}) for n, text in enumerate(texts)]
    found = compare(tmp_path, rows, [row(line["name"], **RATIOS) for line in rows], release)
    assert {line["均方根误差比值"] for line in found.details.values()} == {printed(1.0)}
    for text in ("nan", "NaN", "NAN", "-nan", "inf", "Inf", "-inf", "infinity"):
        npu, gpu = row(output("benchmark"), **{**RATIOS, "rmse": text}), good(output("benchmark"))
        line = compare(tmp_path, [npu], [gpu], release).details[output("benchmark")]
        assert (line["均方根误差比值"], line["均方根误差判定结果"]) == ("nan", "error")


def test_small_numbers_survive_printing(tmp_path: Path) -> None:
    """The number 3e-15 is not printed as 0, so its verdict and its ratio stay as they are."""
    ratios = [3e-15, 1e-30, 5e-324, 9.99999e-4, 1e-3, 0.123456789012345]
    npu = [row(output("benchmark", n), **dict.fromkeys(RATIOS, printed(v))) for n, v in enumerate(ratios)]
    gpu = [row(output("benchmark", n), **dict.fromkeys(RATIOS, printed(v / 4))) for n, v in enumerate(ratios)]
    rates = [row(output("absolute", n), **{**GOOD["absolute"], "relative": printed(v)})
             for n, v in enumerate(ratios)]  # fmt: skip
    found = compare(tmp_path, npu + rates, gpu + rates)
    for number, value in enumerate(ratios):
        line = found.details[output("benchmark", number)]
        if value > 1e-300:
            assert float(line["均方根误差比值"]) == pytest.approx(4, rel=1e-10) and line["比对结果"] == "error"
        line = found.details[output("absolute", number)]
        assert line["比对结果"] == "error" and line["相对误差错误率"] == printed(value)
        assert float(line["相对误差错误率"]) == pytest.approx(value, rel=1e-13)


def test_the_ratio_to_zero_has_its_digits(tmp_path: Path) -> None:
    """Every finite number from 1e-3 on has 14 digits after the point."""
    zeros = [
        row(output("benchmark"), **ZEROS),
        row(output("ulp"), ulp_mean=0, ulp_share=0),
    ]
    ones = [good(output("benchmark")), row(output("ulp"), ulp_mean=0, ulp_share=1e-9)]
    found = compare(tmp_path, ones, zeros)
    assert found.details[output("benchmark")]["均方根误差比值"] == "10000.00000000000000"
    assert found.details[output("ulp")]["ULP误差大于阈值占比比值"] == "10000.00000000000000"


@pytest.mark.parametrize("dtype, floor", [("float16", 2.0**-11), ("bfloat16", 2.0**-8), ("float32", 2.0**-14)])
def test_the_ratio_of_ulp_shares_has_a_floor(dtype: str, floor: float, tmp_path: Path) -> None:
    """Shares of 8.3 are judged as shown; an equal share is not smaller."""
    shares = {(0.0, 0.0): 0.0, (1e-9, 0.0): 1e-9 / floor, (floor / 4, floor / 2): 0.25, (0.25, 0.5): 0.5}
    sides = [[row(output("ulp", n), dtype, ulp_mean=0, ulp_share=pair[side]) for n, pair in enumerate(shares)]
             for side in (0, 1)]  # fmt: skip
    found = compare(tmp_path, sides[0], sides[1], "8.3")
    assert [line["ULP误差大于阈值占比比值"] for line in found.details.values()] == list(map(printed, shares.values()))


# what makes up an API


def levels(tmp_path: Path, release: str, forward: str, backward: str) -> tuple[str, str, str]:
    """The result of an API whose outputs come to these levels, a letter each."""
    rmse = {"p": 0.5, "w": 0.75, "e": 1.5}
    npu, gpu = [], []
    for phase, letters in (("forward", forward), ("backward", backward)):
        for index, letter in enumerate(letters):
            name = output("benchmark", 0, phase, index)
            cells = {**RATIOS, "rmse": rmse.get(letter, 0.5)}
            npu.append(skipped(name, f"{phase} {index}") if letter == "s" else row(name, **cells))
            gpu.append(good(name))
    return compare(tmp_path, npu, gpu, release).results["Torch.exp.0"]


@RELEASES
def test_statuses_of_an_api(release: str, tmp_path: Path) -> None:
    """The gravest output decides; SKIP does not count unless all are so; no output is a blank."""
    warning = "warning" if release == "seed" else "pass"
    for letters, status in {
        "": " ", "p": "pass", "pp": "pass", "w": warning, "e": "error", "s": "SKIP", "ss": "SKIP", "sp": "pass",
        "ps": "pass", "sw": warning, "pws": warning, "es": "error", "we": "error", "ew": "error", "pep": "error",
    }.items():  # fmt: skip
        forward, backward, _ = levels(tmp_path, release, letters, "p")
        assert (forward, backward) == (status, "pass"), letters
        forward, backward, _ = levels(tmp_path, release, "p", letters)
        assert (forward, backward) == ("pass", status), letters


def test_message_of_an_api(tmp_path: Path) -> None:
    """Of a direction that is SKIP the first message; else why it did not pass."""
    assert levels(tmp_path, "seed", "ss", "p") == ("SKIP", "pass", "forward 0")
    assert levels(tmp_path, "seed", "p", "ss") == ("pass", "SKIP", "backward 0")
    assert levels(tmp_path, "seed", "sp", "p") == ("pass", "pass", " ")
    assert levels(tmp_path, "seed", "s", "s") == ("SKIP", "SKIP", "forward 0")
    assert levels(tmp_path, "seed", "spe", "") == ("error", " ", RMSE_ERROR)
    assert levels(tmp_path, "seed", "we", "p") == ("error", "pass", RMSE_ERROR)
    name = "Torch.exp.0.forward.output.{}"
    rows = [skipped(name.format(0), " "), skipped(name.format(1), "second"), skipped(name.format(2), "third")]
    assert compare(tmp_path, rows, rows).results == {"Torch.exp.0": ("SKIP", " ", "second")}


def test_rows_are_grouped_by_api(tmp_path: Path) -> None:
    """An API has one row, in the order of first appearance, even if its rows are apart."""
    names = ["Torch.b.0.forward.output.0", "Torch.a.0.forward.output.0", "Torch.b.0.backward.output.0",
             "Tensor.linalg.c.0.forward.output.0", "Torch.a.0.forward.output.1", "Torch.b.1.forward.output.0",
             "Torch.b.0.forward.output.1", "Tensor.linalg.c.0.backward.output.0"]  # fmt: skip
    found = compare(tmp_path, [good(name) for name in names], [good(name) for name in reversed(names)])
    assert list(found.results) == ["Torch.b.0", "Torch.a.0", "Tensor.linalg.c.0", "Torch.b.1"]
    assert list(found.details) == [names[n] for n in (0, 2, 6, 1, 4, 3, 7, 5)]
    assert found.results["Torch.a.0"] == ("pass", " ", " ")
    assert found.results["Torch.b.0"] == ("pass", "pass", " ")


@pytest.mark.parametrize(
    "name", ["Torch.exp.1", "exp", "a.b.c.d.e", "a.b.c.d.e.f.g.h", "Torch.exp.0.sideways.output.0"]
)
def test_names_of_another_form(name: str, tmp_path: Path) -> None:
    """Neither 6 nor 7 parts: a row of its own, SKIP and SKIP."""
    rows = [good("Torch.exp.0.forward.output.0"), good(name), good("Torch.exp.0.backward.output.0")]
    found = compare(tmp_path, rows, rows)
    assert found.details[name]["比对结果"] == "SKIP" and name in found.details[name]["Message"]
    forward, backward, message = found.results.pop(name)
    assert (forward, backward) == ("SKIP", "SKIP") and name in message
    assert found.results == {"Torch.exp.0": ("pass", "pass", " ")}


def test_a_bare_name_hides_no_error(tmp_path: Path) -> None:
    name = output("absolute")
    rows = [good("Torch.mul.0"), row(name, **{**GOOD["absolute"], "relative": 1.0})]
    for lines in (rows[::-1], rows):
        found = compare(tmp_path, lines, lines)
        assert found.details[name]["比对结果"] == found.results["Torch.mul.0"][0] == "error"


@RELEASES
def test_rows_that_the_other_side_lacks(release: str, tmp_path: Path) -> None:
    """Rows that the GPU lacks get none; rows that the NPU lacks are of no account."""
    npu = [good(output("ulp", n), "ulp") for n in (0, 1, 2)]
    gpu = [good(output("ulp", n), "ulp") for n in (4, 2, 0, 3)]
    found = compare(tmp_path, npu, gpu, release)
    assert found.missing == [output("ulp", 1)]
    assert list(found.details) == [output("ulp", 0), output("ulp", 2)]
    assert list(found.results) == ["Torch.matmul.0", "Torch.matmul.2"]


# hints


@RELEASES
def test_topk_hint(release: str, tmp_path: Path) -> None:
    """7.2, B30: in details and result, where topk fails."""
    names = {"Tensor.topk.0": 0.5, "Torch.topk.1": 0.0, "Torch.sort.0": 0.5}
    rows = [row(f"{api}.forward.output.1", "int64", binary=rate) for api, rate in names.items()]
    found = compare(tmp_path, rows, rows, release)
    for api in names:
        hinted = api == "Tensor.topk.0"
        assert ("sorted=False" in found.details[f"{api}.forward.output.1"]["Message"]) == hinted
        assert ("sorted=False" in found.results[api][2]) == hinted
    assert found.results["Tensor.topk.0"][2].startswith("ERROR: 二进制一致错误率超过阈值")


def test_where_the_gpu_fails_as_well(tmp_path: Path) -> None:
    """A call of add_ that cancels fails on both sides; the message says so, the verdict stays."""
    name = "Tensor.add_.0.forward.output.0"
    ours, theirs = (row(name, **{**GOOD["absolute"], "relative": rate}) for rate in (0.001, 0.002))
    found = compare(tmp_path, [ours], [theirs])
    message = "ERROR: 相对误差错误率超过阈值 (GPU fails as well)"
    assert found.results == {"Tensor.add_.0": ("error", " ", message)}
    found = compare(tmp_path, [ours], [row(name, **GOOD["absolute"])])
    assert found.results == {"Tensor.add_.0": ("error", " ", "ERROR: 相对误差错误率超过阈值")}


def test_a_softmax_that_is_all_nan(tmp_path: Path) -> None:
    """The four ratios are 0 to 0 and pass; the inf/nan rate does not."""
    name = "Functional.softmax.0.forward.output.0"
    zeros = ZEROS
    found = compare(tmp_path, [row(name, **zeros, inf_nan=1.0)], [row(name, **zeros)])
    assert found.results == {"Functional.softmax.0": ("error", " ", "ERROR: inf/nan错误率超过阈值")}
    line = found.details[name]
    assert line["inf/nan错误率"] == printed(1.0) and line["inf/nan判定结果"] == "error"
    assert {line[f"{column}判定结果"] for column in ("小值域", "均方根误差", "相对误差最大值", "相对误差平均值")} == {
        "pass"
    }


@pytest.mark.parametrize("share, status", [(below(0.999), "error"), (0.999, "error"), (above(0.999), "pass")])
def test_the_seed_wins_over_the_source(share: float, status: str, tmp_path: Path) -> None:
    """P1: more than 0.999. P2: a mean of 63 ulp passes in float32. P6: twice the GPU's is a warning."""
    rows = [row(output("dual"), thousandth=share)]
    rows += [row(output("ulp"), ulp_mean=63, ulp_share=0.9), row(output("benchmark"), **RATIOS)]
    gpu = [dict(line) for line in rows]
    gpu[2]["rmse"] = "0.25"
    found = compare(tmp_path, rows, gpu)
    assert [one[0] for one in found.results.values()] == [status, "pass", "warning"]
