"""Journals of resumed comparisons that were damaged or belong to other runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from support.runs.resumed import FORMATS, _stamps, begun, files, kept, mend, pair, undisturbed  # noqa: F401


def journal(out: Path) -> Path:
    (path,) = out.glob("compare_progress_*.jsonl")
    return path


# -- a journal that is not what it was -------------------------------------------------------------


def test_the_journal_is_json_lines_and_readable_by_its_group(begun: Any) -> None:
    out, _ = begun()
    path = journal(out)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [list(line) for line in lines] == [["plan"], *[["pair", "read", "report"]] * 3]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"no json", b"[]", b"null\n3\n", b"\xff\xfe\x00", b'{"plan": 3}', b'{"plan": {}}\n', b'{"pair": "rank0:dump.json"}\n', b"{" * 50],
)  # fmt: skip
def test_a_journal_that_is_none(content: bytes, begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun()
    mend(pair[1] / "rank2/dump.json", data)
    journal(out).write_bytes(content)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0, probe.err
    assert kept(probe.out) == 0


@pytest.mark.parametrize("share", [0.1, 0.35, 0.5, 0.75, 0.9, 0.999])
def test_a_journal_that_was_cut_off(share: float, begun: Any, pair: Any, probe: Any, undisturbed: Any) -> None:
    """Whole lines count."""
    out, data = begun("-j", "1")
    mend(pair[1] / "rank2/dump.json", data)
    path = journal(out)
    text = path.read_bytes()
    path.write_bytes(text[: int(len(text) * share)])
    whole = path.read_bytes().count(b"\n")
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == max(0, whole - 1)
    if whole:
        assert files(out) == undisturbed(*pair, *FORMATS)


def test_a_journal_that_was_cut_off_is_gone_on_with(begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun("-j", "1")
    path = journal(out)
    path.write_bytes(path.read_bytes()[:-20])
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 2
    assert kept(probe.out) == 2
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == 3


DAMAGE = {
    "pair": [None, 3, {}], "read": [None, 3, [], {}, [3], [[]], "x"],
    "report": [None, 3, [], {}],
}  # fmt: skip


@pytest.mark.parametrize("field, value", [(field, value) for field, values in DAMAGE.items() for value in values])
def test_a_line_that_is_wrong_is_compared_again(field: str, value: Any, begun: Any, pair: Any, probe: Any) -> None:
    out, _ = begun("-j", "1")
    damaged(out, lambda line: line.__setitem__(field, value))
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 2, probe.err
    assert kept(probe.out) == 2


REPORT = ["label", "target", "golden", "mode", "row_count", "op_count", "counts", "counts.levels",
          "counts.levels.pass", "counts.measured", "counts.matched", "suspects", "unreadable",
          "unreadable_count", "files", "notes", "regions", "seconds"]  # fmt: skip


@pytest.mark.parametrize("value", [None, "x"], ids=repr)
def test_a_report_that_is_wrong_is_compared_again(value: Any, begun: Any, pair: Any, probe: Any) -> None:
    """No defect, whichever field it is; what does not look wrong may pass."""
    out, _ = begun("-j", "1")
    path = journal(out)
    text = path.read_bytes()
    problems = []
    for field in REPORT:
        path.write_bytes(text)
        *outer, last = field.split(".")
        damaged(out, lambda line: reduce(getitem, outer, line["report"]).__setitem__(last, value))  # noqa: B023
        if probe("compare", *pair, "-o", out, *FORMATS, "--resume") != 2:
            problems.append((field, probe.err.splitlines()[-3:]))
    assert not problems


def damaged(out: Path, damage: Callable[[dict[str, Any]], Any]) -> None:
    """Damage the journal's line of the first rank."""
    path = journal(out)
    head, line, *rest = path.read_text("utf-8").splitlines()
    fields = json.loads(line)
    damage(fields)
    path.write_text("\n".join([head, json.dumps(fields), *rest, ""]))


def test_a_journal_that_nests_too_deeply(begun: Any, pair: Any, probe: Any) -> None:
    out, _ = begun()
    with journal(out).open("a") as file:
        file.write("[" * 200_000 + "\n")
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 2, probe.err[-500:]
    assert kept(probe.out) == 3


def test_a_directory_in_the_place_of_a_journal(pair: Any, probe: Any, tmp_path: Path) -> None:
    (tmp_path / "o/compare_progress_20990101000000.jsonl").mkdir(parents=True)
    assert probe("compare", *pair, "-o", tmp_path / "o", "--resume") == 0, probe.err
