"""Reports of overflows: every unit of both styles, in fields and in words."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from probe_legacy.acl.debug import describe_overflows, parse_report
from probe_legacy.acl.wire import DamagedDump
from support.runs import acl_dumps as acl

UNITS = {
    0: ("AI Core", 10), 1: ("Vector Core", 10), 2: ("AI CPU", 7), 3: ("SDMA", 9),
}  # fmt: skip
"""The units of the new style, and the number of their fields before the status."""


def told(data: bytes, **dumps: list[str]) -> list[str]:
    return list(
        describe_overflows(
            parse_report(memoryview(data)), {"45": [], **{key[1:]: names for key, names in dumps.items()}}
        )
    )


@pytest.mark.parametrize(("unit", "name"), list(enumerate(["DHA Atomic Add", "L2 Atomic Add", "AI Core"])))
def test_the_old_style(unit: int, name: str) -> None:
    data = acl.old_report(unit, task=9, stream=8, model=7, status=33)
    report: Any = parse_report(memoryview(data))
    assert list(report) == ["DHA Atomic Add", "L2 Atomic Add", "AI Core"]
    assert [other for other, fields in report.items() if fields["status"]] == [name]
    fields = report[name]
    assert (fields["task_id"], fields["stream_id"], fields["model_id"], fields["status"]) == (9, 8, 7, 33)
    assert (fields["pc_start"], fields["para_base"]) == ("0x1234500", "0xabc00")
    block = ", block 7" if unit == 2 else ""
    assert told(data, _9=["Add.Add.9.0.5"]) == [
        f"{name} reports an overflow in task 9 of stream 8 (model 7{block}, kernel starts at 0x1234500): "
        "status 0x21. Task 9 is Add.Add.9.0.5."
    ]


@pytest.mark.parametrize("kind", UNITS)
def test_the_new_style(kind: int) -> None:
    name, count = UNITS[kind]
    data = acl.new_report(kind, [*range(1, count + 1), 64])
    report: Any = parse_report(memoryview(data))
    assert report["head"] == {
        "magic": "0x5a5a5a5a", "version": 0, "valid": 1, "acc_type": kind, "rsv": 0, "data_len": 8 * (count + 1)
    }  # fmt: skip
    numbers = [int(value, 0) if isinstance(value, str) else value for value in report[name].values()]
    assert numbers == [*range(1, count + 1), 64] and list(report[name])[-1] == "status"
    (sentence,) = told(data)
    assert sentence.startswith(f"{name} reports an overflow in task 3 of stream 2 (model 1")
    assert sentence.endswith("status 0x40. No dump of task 3 is in this directory.")


def test_four_words_of_status() -> None:
    data = acl.new_report(0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 0, 2], version=1)
    (sentence,) = told(data, _3=["A.a.3.0.1", "A.b.3.1.1"])
    assert sentence == (
        "AI Core reports an overflow in task 3 of stream 2 (model 1, core 9, block 10, kernel starts at 0x7): status "
        "0x0, 0x1, 0x0, 0x2. 2 dumps are of task 3; the first is A.a.3.0.1."
    )
    with pytest.raises(DamagedDump, match="too short for the fields of AI Core"):
        parse_report(memoryview(data[:-1]))


def test_no_overflow_and_no_report() -> None:
    assert told(bytes(2048)) == ["No unit reports an overflow: every status is 0."]
    assert told(acl.new_report(2, [0] * 8)) == ["No unit reports an overflow: every status is 0."]
    assert told(acl.new_report(2, [1] * 8, valid=0)) == [
        "The report is marked as not valid, so it says nothing about an overflow."
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes, which is of neither style"),
        (bytes(2047), "2047 bytes, which is of neither style"),
        (bytes(2049), "2049 bytes, which is of neither style"),
        (struct.pack("<I", 0x5A5A5A5A), "ends after 4 bytes"),
        (acl.new_report(4, [1] * 20), "the unknown unit 4"),
        (acl.new_report(0xFFFFFFFF, [1] * 20), "the unknown unit 4294967295"),
        (acl.new_report(3, [1] * 9), "too short for the fields of SDMA"),
    ],
)
def test_hostile_reports(data: bytes, reason: str) -> None:
    with pytest.raises(DamagedDump, match=reason):
        parse_report(memoryview(data))
