"""The verdict on a row of the table of checksums."""

from __future__ import annotations

from typing import Any

import pytest
from probe_metrics.checksum_result import ChecksumResult
from support.measuring import tensor_value

from probe_core.model import Kind, Level, Mode, Reason, Value
from probe_core.testing import pair_of_values


@pytest.mark.parametrize(
    ("changes", "label", "evidence"),
    [
        ({}, "Pass", None),
        ({"checksum": "ffffffff"}, "Different", "checksum differ"),
        ({"extent": "[3]"}, "Different", "shape differ"),
        ({"dtype": "torch.bfloat16"}, "Different", "dtype differ"),
        ({"checksum": None}, "Different", "checksum differ"),
        ({"checksum": None, "dtype": "torch.int8", "extent": "[]"}, "Different",
         "shape and dtype and checksum differ"),
    ],
)  # fmt: skip
def test_checksum_result(changes: dict[str, Any], label: str, evidence: str | None) -> None:
    """Checksum, shape and dtype must all agree; which side deviates does not matter."""
    plain = {"checksum": "0a1b2c3d"}
    for values in ((plain, {**plain, **changes}), ({**plain, **changes}, plain)):
        pair = pair_of_values(*(tensor_value(**value) for value in values), Mode.MD5)
        verdict = ChecksumResult().judge(pair, {})
        assert verdict.label == label
        assert verdict.reasons == (() if evidence is None else (Reason("evidence", evidence),))
        assert verdict.failed is (label == "Different")
        assert verdict.level is (Level.ERROR if verdict.failed else Level.PASS)


def test_checksums_absent_on_both_sides_are_equal() -> None:
    null = Value(Kind.NULL, "None", "None")
    for value in (tensor_value(checksum=None), null):
        assert ChecksumResult().judge(pair_of_values(value, value, Mode.MD5), {}).label == "Pass"


@pytest.mark.parametrize(
    ("checksum", "level"),
    [
        ("0x0000000000000000", Level.SKIP),
        ("0x0000000000000001", Level.PASS),
        ("00000000", Level.PASS),
        ("0.0", Level.PASS),
        (None, Level.SKIP),
    ],
)
def test_what_proves_nothing_is_not_counted_as_agreement(checksum: str | None, level: Level) -> None:
    """All values that cancel have an xor of zero; a crc of zero, and a 0-d tensor's own value, say something."""
    value = tensor_value(checksum=checksum)
    verdict = ChecksumResult().judge(pair_of_values(value, value, Mode.MD5), {})
    assert (verdict.label, verdict.level) == ("Pass", level)
    assert bool(verdict.reasons) is (level is Level.SKIP)


@pytest.mark.parametrize("value", [tensor_value(checksum="0a"), Value(Kind.NULL, "None", "None")])
def test_checksums_without_partner(value: Value) -> None:
    """Also for null."""
    for sides in ((value, None), (None, value)):
        verdict = ChecksumResult().judge(pair_of_values(*sides, Mode.MD5), {})
        assert (verdict.label, verdict.level, verdict.failed) == ("N/A", Level.WARNING, False)
