"""Groups of rows and their alignment with two queues, against the rule followed to the letter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_legacy.compare.groups import (
    OldRow,
    OldStack,
    RowGroup,
    SameNamesRule,
    align_groups,
    split_after_output,
    split_by_output,
    split_by_stack,
)
from support.measuring import PROPERTY


def row(name: str) -> OldRow:
    return OldRow(name, "torch.float32", [1], (), 0)


def names(groups: Iterable[RowGroup]) -> list[str]:
    return [" ".join(row.name for row in group.rows) for group in groups]


IN, OUT, STACK = "a_forward_input.0", "a_forward_output", "a_forward_stack_info"


@pytest.mark.parametrize(
    ("divide", "rows", "expected"),
    [
        (split_by_output, [IN, OUT, IN, OUT], [f"{IN} {OUT}"] * 2),
        (split_by_output, [IN, IN, OUT], [f"{IN} {IN} {OUT}"]),  # a call without output joins the next
        (split_by_output, [IN, OUT, OUT, IN], [f"{IN} {OUT} {OUT}", IN]),
        (split_by_output, [STACK, IN, OUT, STACK, IN, OUT], [f"{IN} {OUT}"] * 2),
        (split_by_stack, [IN, STACK, IN, OUT, STACK, IN], [IN, f"{IN} {OUT}", IN]),
        (split_after_output, [IN, OUT, OUT, IN, OUT, IN], [f"{IN} {OUT}", OUT, f"{IN} {OUT}", IN]),
    ],
)
def test_groups(
    divide: Callable[[Iterable[OldRow | OldStack]], Iterator[RowGroup]], rows: list[str], expected: list[str]
) -> None:
    given_rows = [OldStack(name, []) if name == STACK else row(name) for name in rows]
    assert names(divide(given_rows)) == expected


def group(name: str) -> RowGroup:
    return RowGroup([row(name)])


def followed(npu: list[str], bench: list[str], newest_first: bool) -> list[tuple[str, str | None]]:
    """The rule followed to the letter, with two lists that are searched from the front."""
    own: list[str] = []
    other: list[str] = []
    pairs: list[tuple[str, str | None]] = []
    for turn in range(max(len(npu), len(bench))):
        own += npu[turn : turn + 1]
        other += bench[turn : turn + 1]
        if not own or not other:
            continue
        found = (len(own) - 1, len(other) - 1) if newest_first and own[-1] == other[-1] else None
        if found is None:
            found = next(((len(own) - 1, place) for place, name in enumerate(other) if name == own[-1]), None)
        if found is None:
            found = next(((place, len(other) - 1) for place, name in enumerate(own) if name == other[-1]), None)
        if found is not None:
            pairs += [(name, None) for name in own[: found[0]]]
            pairs.append((own[found[0]], other[found[1]]))
            del own[: found[0] + 1], other[: found[1] + 1]
    return pairs + [(name, None) for name in own]


class OldestFirst(SameNamesRule):
    newest_first = False


@PROPERTY
@given(
    st.lists(st.sampled_from("abcd"), max_size=12),
    st.lists(st.sampled_from("abcd"), max_size=12),
    st.booleans(),
)
def test_alignment_is_the_rule_followed_to_the_letter(npu: list[str], bench: list[str], newest_first: bool) -> None:
    rule = SameNamesRule() if newest_first else OldestFirst()
    pairs = align_groups(map(group, npu), map(group, bench), rule)
    told = [(one.rows[0].name, two.rows[0].name if two else None) for one, two in pairs]
    assert told == followed(npu, bench, newest_first)


def test_long_runs_without_a_common_name_take_no_quadratic_time() -> None:
    count = 50_000
    pairs = list(align_groups(map(group, (f"a{n}" for n in range(count))), map(group, (f"b{n}" for n in range(count)))))
    assert len(pairs) == count and not any(two for _, two in pairs)
