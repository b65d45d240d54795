"""Checks that every comparison must pass, whatever it was given."""

from __future__ import annotations

import csv
import json
import re
import stat
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Sequence
from pathlib import Path

from support.faults.mutations.case import MARKER

RESULT = re.compile(
    r"(debug_)?compare_result(_rank\d+)?_\d{14}\.(csv|jsonl|xlsx)|advisor(_rank\d+)?_\d{14}\.txt"
    r"|compare_summary_\d{14}\.(csv|jsonl|xlsx)|compare_progress_\d{14}\.jsonl|answer_\d{14}\.json"
)
FORMULA = re.compile(r"[=+@＝＋－＠％%\t\r-]")


def judged(home: Path, formats: Sequence[str], code: int, output: str) -> list[str]:
    """All that is wrong with a comparison in ``home``, of its exit code and of all that it printed."""
    return [*_printed(code, output), *_kept(home, formats, code, output)]


def _printed(code: int, output: str) -> list[str]:
    """Return the faults of the exit code and of the screen."""
    found = [] if code in (0, 2) else [f"exit code {code}"]
    if "Traceback" in output:
        found.append("a traceback is shown")
    if "root:x:0" in output:
        found.append("a file outside was read")
    if code == 2 and not re.search(r"^error: .+\n  \S", output, re.M):
        found.append("exit 2 without an error and the way to mend it")
    return found


def _kept(home: Path, formats: Sequence[str], code: int, output: str) -> list[str]:
    """Return the faults of the files that are there afterwards.

    Ranks are summed up together at the end: where one of them fails, those before it have results alone.
    """
    found = ["a file's command was run"] if (home / MARKER).exists() else []
    files = sorted((home / "out").iterdir()) if (home / "out").is_dir() else []
    found += [f"left behind: {path.name}" for path in files if not RESULT.fullmatch(path.name)]
    results = [path for path in files if "compare_result" in path.name]
    summaries = re.findall(r"^(?:rank\d+: )?([\d,]+) rows of", output, re.M)
    counts = [int(text.replace(",", "")) for text in summaries]
    if code == 0 and not counts:
        found.append("exit 0 without a summary")
    if counts and len(results) != len(counts) * len(formats):
        found.append(f"{len(results)} results for {len(counts)} comparisons")
    if not counts and any("_rank" not in path.name for path in results):
        found.append("a result without a summary")
    for path in results:
        if (mode := stat.S_IMODE(path.stat().st_mode)) != 0o640:
            found.append(f"{path.name} has mode {mode:o}")
        found += _whole(path, counts)
    return found + _answered(files, output)


def _answered(files: Sequence[Path], output: str) -> list[str]:
    """Return the faults of the answer file, which says what the screen says."""
    answers = [path for path in files if path.name.startswith("answer_")]
    has_advice = any(path.name.startswith("advisor") for path in files)  # -c writes neither
    if len(answers) != has_advice:
        return [f"{len(answers)} answers, and {'an' if has_advice else 'no'} advice"]
    found: list[str] = []
    for path in answers:
        if (mode := stat.S_IMODE(path.stat().st_mode)) != 0o640:
            found.append(f"{path.name} has mode {mode:o}")
        try:
            verdict = json.loads(path.read_text("utf-8"), parse_constant=_refuse)["verdict"]
        except ValueError as error:
            found.append(f"{path.name} is not whole: {error}")
        else:
            if re.findall(r"^(DIVERGED|AGREE|NOT COMPARABLE|CANNOT TELL): ", output, re.M)[:1] != [verdict]:
                found.append(f"{path.name} says {verdict}, and the screen does not")
    return found


def _whole(path: Path, counts: Sequence[int]) -> list[str]:
    """Return the faults of one result file; ``counts`` are the rows that the summaries speak of."""
    try:
        rows = {".csv": csv_rows, ".jsonl": jsonl_rows, ".xlsx": xlsx_rows}[path.suffix](path)
    except (ValueError, csv.Error, zipfile.BadZipFile, KeyError, ElementTree.ParseError) as error:
        return [f"{path.name} is not whole: {type(error).__name__}: {error}"]
    if counts and rows not in counts:
        return [f"{path.name} has {rows} rows where the summary says {counts}"]
    return []


def csv_rows(path: Path) -> int:
    """The rows below the header, each as long as the header, none with a formula."""
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ValueError(f"row {number} has {len(row)} of {len(header)} cells")
        for cell in row:
            if FORMULA.match(cell) and not _is_number(cell):
                raise ValueError(f"row {number} holds the formula {cell[:40]!r}")
    return len(rows)


def jsonl_rows(path: Path) -> int:
    """The objects, all with the same members, none with a number that JSON does not know."""
    rows = [json.loads(text, parse_constant=_refuse) for text in path.read_text("utf-8").split("\n")[:-1]]
    if len({tuple(key for key in row if key != "highlight") for row in rows}) > 1:
        raise ValueError("the rows differ in their members")
    return len(rows)


def xlsx_rows(path: Path) -> int:
    """The rows of the sheet; every part is well-formed, and no row is longer than the header."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: ElementTree.fromstring(archive.read(name)) for name in archive.namelist()
                 if name.endswith((".xml", ".rels"))}  # fmt: skip
    sheet = parts["xl/worksheets/sheet1.xml"]
    space = sheet.tag.partition("}")[0] + "}"
    header, *rows = sheet.iter(f"{space}row")
    formulas = [cell for name, part in parts.items() if "sheets/" in name for cell in part.iter(f"{space}f")]
    if any(len(row) > len(header) for row in rows) or formulas:
        raise ValueError("a row is longer than the header, or a cell holds a formula")
    return len(rows)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _is_number(text: str) -> bool:
    try:
        float(text.removesuffix("%"))
    except ValueError:
        return False
    return True
