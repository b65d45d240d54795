"""Values as JSON can express them."""

from __future__ import annotations

import math

from probe_check.json_values import encode_number


def test_only_numbers_that_json_lacks_become_text() -> None:
    assert [encode_number(value) for value in (math.nan, math.inf, -math.inf)] == ["nan", "inf", "-inf"]
    assert [encode_number(value) for value in (1.5, 2, True, None, "nan")] == [1.5, 2, True, None, "nan"]
