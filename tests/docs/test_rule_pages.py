"""The pages of rules against the data that implements them: columns, messages, thresholds, lists."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from test_pages import ROOT

DOCS = ROOT / "docs"


def section(page: str, anchor: str) -> str:
    """The text below one heading of second order."""
    parts = re.split(r"^## (.+)$", (DOCS / f"{page}.md").read_text("utf-8"), flags=re.MULTILINE)
    for title, text in zip(parts[1::2], parts[2::2]):
        if title.lower().replace(" ", "-") == anchor:
            return text
    raise LookupError(anchor)


def plain(value: float) -> set[str]:
    """The spellings of a number that a page may use."""
    found = {f"{value:g}", f"{value:.0e}".replace("e-0", "e-"), str(value)}
    if value > 0:
        exponent = 0
        while value * 2**exponent < 1 and exponent < 64:
            exponent += 1
        if value == 2.0**-exponent:
            found.add(f"2^-{exponent}")
    return found


def numbers(value: Any) -> list[float]:
    """The numbers in nested data."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [float(value)] if isinstance(value, (int, float)) else []


def loaded(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def test_the_columns_of_the_tables() -> None:
    from probe_reporters.tables import COLUMNS

    text = section("tables", "columns")
    eight = [f"{side} {name}" for side in ("NPU", "Bench") for name in ("max", "min", "mean", "l2norm")]
    for columns in COLUMNS.values():
        told = [column.header for column in columns if column.header not in eight]
        places = [text.find(f"`{header}`") for header in told[:8]]
        assert -1 not in places and places == sorted(places)
        for header in told:
            assert f"`{header}`" in text, header


def test_the_messages_of_the_tables() -> None:
    from probe_metrics.reasons import REASONS as OTHERS
    from probe_reporters.reason_texts import REASON_TEXTS

    messages, marks = section("tables", "messages"), section("tables", "highlighting")
    for code, text in {**REASON_TEXTS, **OTHERS}.items():
        if code.startswith("mark_"):
            assert text.message in marks, code
        elif text.message and code not in ("golden_zero", "target_zero", "cosine_nan", "xor_of_zero"):
            assert text.message in messages, code


@pytest.mark.parametrize(
    "key, anchor",
    [("accuracy", "accuracy"), ("statistics", "statistics-result"), ("highlight", "highlighting")],
)
def test_the_thresholds_of_the_tables(key: str, anchor: str) -> None:
    text = section("tables", anchor) + section("tables", "exactness")
    for number in numbers(loaded("plugins/metrics/probe_metrics/thresholds.yaml")[key]):
        spellings = plain(number) | ({"1e10"} if number == 1e10 else set())
        assert any(re.search(rf"(?<![\d.]){re.escape(one)}(?![\d])", text) for one in spellings), number


def test_the_limits_of_the_first_difference() -> None:
    from probe_metrics.first_difference import FirstDifference

    text = section("first-difference", "levels")
    for name, noise in FirstDifference()._noise.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {name.partition('_')[0]}"))
        assert f"{noise:.1e}".replace("e-0", "e-") in row or f"{noise:g}" in row, name


@pytest.mark.parametrize(
    "key, anchor",
    [
        ("absolute_threshold", "absolute-threshold"),
        ("benchmark_ratio", "benchmark-ratio"),
        ("ulp", "ulp"),
        ("dual_thousandth", "dual-thousandth"),
        ("accumulative_error", "accumulative-error"),
    ],
)
def test_the_thresholds_of_the_standards(key: str, anchor: str) -> None:
    limits = loaded("plugins/metrics/probe_metrics/standards/thresholds.yaml")
    first, later = (release for name, release in limits.items() if isinstance(release, dict) and "ulp" in release)
    for release, text in ((first, section("standards", anchor)), (later, section("standards", "releases"))):
        found = numbers(release[key]) if release is first else numbers(release.get(key, {}))
        for number in found:
            text_of_both = text + section("standards", anchor)
            assert any(one in text_of_both for one in plain(number)), (key, number)


def test_the_lists_of_the_standards() -> None:
    lists = loaded("plugins/metrics/probe_metrics/standards/apis.yaml")
    text = section("standards", "methods")
    for name, title in (
        ("absolute_threshold", "absolute threshold"),
        ("binary_consistency", "binary"),
        ("ulp", "ULP"),
    ):
        count = sum(isinstance(api, str) for api in lists[name])
        row = next(line for line in text.splitlines() if line.startswith(f"| {title}") and "(" in line)
        assert f"({count})" in row, name


def test_the_columns_of_the_precheck() -> None:
    from probe_precheck.tables import COMPARE_DETAILS, DETAILS, RESULT

    text = section("standards", "csv")
    for column in (*RESULT, *DETAILS):
        assert f"`{column.chinese}`" in text and (column.english in text), column.key
    for column in COMPARE_DETAILS[-3:]:
        assert f"`{column.chinese}`" in text


def test_the_fused_operators() -> None:
    operators = loaded("plugins/pytorch/probe_pytorch/precheck/references/operators.yaml")
    text = section("standards", "fused-operators")
    assert all(f"`{name}`" in text for name in operators)


def test_the_laws_of_collectives() -> None:
    apis = loaded("plugins/diagnosis/probe_diagnosis/collectives/apis.yaml")
    text = (DOCS / "collectives.md").read_text("utf-8")
    for name, api in apis.items():
        if api.get("law") and not name.endswith("_single"):
            assert f"`{name}`" in text, name
