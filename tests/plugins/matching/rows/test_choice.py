"""The value of ``--rows``."""

from __future__ import annotations

import pytest
from probe_matching.rows.choice import RowChoice, parse_rows

from probe_core.errors import UserError


@pytest.mark.parametrize(
    ("text", "target", "golden"),
    [
        ("target=0,golden=3", (0,), (3,)),
        ("golden=2-5", (), (2, 3, 4, 5)),
        ("target=0-1 golden=4,2", (0, 1), (4, 2)),
        ("golden=7,target=1", (1,), (7,)),
        ("target=3,1,0-0,golden=0-2", (3, 1, 0), (0, 1, 2)),
    ],
)
def test_parse_rows_returns_rows_in_the_order_of_the_text(
    text: str, target: tuple[int, ...], golden: tuple[int, ...]
) -> None:
    assert parse_rows(text) == RowChoice(target, golden)


def test_parse_rows_takes_the_name_of_a_file() -> None:
    assert parse_rows("tokens.json") == RowChoice(file="tokens.json")


@pytest.mark.parametrize(
    "text",
    ["", ",", "3", "0-2", "a/b.json", "../tokens.json", "..", "target=", "target=x", "target=3-1", "other=1",
     "target=0,0,golden=1,2", "target=0,target=1", "target=0-1,golden=3", "3,target=1", "target=-1"],
)  # fmt: skip
def test_parse_rows_refuses_other_texts(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_rows(text)
    assert "--rows" in f"{caught.value.what} {caught.value.fix}"
