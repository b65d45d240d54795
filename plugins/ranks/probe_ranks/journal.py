"""The journal of finished ranks, from which an interrupted comparison of many ranks is resumed.

A file of JSON lines in the output directory: the plan, then a line for each finished rank. It is removed when
all ranks are done, so one that exists belongs to a comparison that was interrupted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.files.atomic import create_write_error, make_directory, open_file, refuse_link, remove_leftovers
from probe_core.files.location import is_remote
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import Finder, PairResult
from probe_core.store.files import CONSTRUCT_FILE, STACK_FILE, TENSOR_DIRECTORY
from probe_core.store.layout import RunPair
from probe_ranks.report_json import parse_report, serialize_report

JOURNAL_PREFIX = "compare_progress_"
CHANGEABLE_FIELDS = frozenset({"time_stamp", "jobs", "executor", "scheduler", "resume", "output", "ranks", "steps"})
"""Fields of a plan that may change between the interrupted comparison and the resuming one."""


class Journal:
    """The finished ranks of one comparison.

    Attributes:
        time_stamp: The time stamp in the names of the comparison's files.
    """

    def __init__(self, plan: Plan) -> None:
        self._path = plan.output / f"{JOURNAL_PREFIX}{plan.time_stamp}.jsonl"
        self._plan = _describe_identity(plan)
        self._lines: dict[str, dict[str, Any]] = {}
        self._read: dict[str, list[Any]] = {}
        self.time_stamp = plan.time_stamp

    @classmethod
    def resume(cls, plan: Plan) -> Journal | None:
        """Return the newest journal of the same plan in the output directory; None if there is none."""
        wanted = _describe_identity(plan)
        with suppress(OSError):
            for path in sorted(plan.output.glob(f"{JOURNAL_PREFIX}*.jsonl"), reverse=True):
                lines = list(_read_lines(path)) if path.is_file() and not path.is_symlink() else []
                if lines and lines[0].get("plan") == wanted:
                    journal = cls(plan)
                    journal._path = path
                    journal.time_stamp = path.stem.removeprefix(JOURNAL_PREFIX)
                    journal._lines = {str(line.get("pair")): line for line in lines[1:]}
                    for directory in (plan.output, *plan.output.glob("**/step*")):
                        remove_leftovers(directory, journal.time_stamp)
                    return journal
        return None

    def find_finished(self, pair: RunPair, finder: Finder | None) -> PairResult | None:
        """Return a pair that an earlier command finished, with a new ``finder`` as it was; None if it did not.

        It is valid while its inputs have the same sizes and times and its result files exist.
        """
        read = self._read[_get_key(pair)] = _fingerprint_inputs(pair)
        line = self._lines.get(_get_key(pair))
        if line is None:
            return None
        with suppress(OSError, LookupError, OverflowError, TypeError, ValueError):
            report = parse_report(line["report"])
            if line["read"] == read and all(file.is_file() for file in report.files):
                if finder is not None:
                    finder.restore(line["report"]["finder"])
                return PairResult(pair, report, finder=finder, resumed=True)
        return None

    def begin(self) -> None:
        """Write the plan, unless the journal exists; end its last line, which may be incomplete."""
        make_directory(self._path.parent)
        refuse_link(self._path)
        if not self._path.exists():
            self._append({"plan": self._plan}, os.O_CREAT | os.O_EXCL)
        else:
            self._write("\n")

    def add(self, finished: PairResult) -> None:
        """Note that a rank is finished; if that fails, resuming compares the rank again."""
        pair, report, finder = finished.pair, finished.report, finished.finder
        assert report is not None
        read = self._read.get(_get_key(pair)) or _fingerprint_inputs(pair)  # its state before it was compared
        plain = serialize_report(report) | {"finder": None if finder is None else finder.plain()}
        with suppress(UserError):
            self._append({"pair": _get_key(pair), "read": read, "report": plain})

    def end(self) -> None:
        """Remove the journal."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _append(self, value: dict[str, Any], flags: int = 0) -> None:
        self._write(json.dumps(value, ensure_ascii=True) + "\n", flags)

    def _write(self, text: str, flags: int = 0) -> None:
        try:
            descriptor = open_file(self._path, os.O_WRONLY | os.O_APPEND | flags)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise create_write_error("The result", self._path.parent, error) from None


def _get_key(pair: RunPair) -> str:
    """Return the identity of a pair, which includes its step."""
    return f"{pair.name}|{pair.target.absolute()}|{pair.golden.absolute()}"


def _describe_identity(plan: Plan) -> dict[str, Any]:
    """Return the part of a plan that must be equal for a comparison to be resumed."""
    described = plan.describe()
    for side in ("target", "golden"):
        if "://" not in described[side]:
            described[side] = str(Path(described[side]).absolute())
    same = {name: value for name, value in described.items() if name not in CHANGEABLE_FIELDS}
    for path in (*plan.options.values(), plan.stack_path):
        if isinstance(path, Path):
            same[f"{path}"] = _compute_fingerprint(path)
    return json.loads(json.dumps(same))  # type: ignore[no-any-return]


def _fingerprint_inputs(pair: RunPair) -> list[Any]:
    """Return the fingerprints of all files that comparing a pair reads."""
    file_names = ("", STACK_FILE, CONSTRUCT_FILE, TENSOR_DIRECTORY)
    sides = (pair.target, pair.golden)
    return [_compute_fingerprint(path.parent / name if name else path) for path in sides for name in file_names]


def _compute_fingerprint(path: Any) -> Any:
    """Return the size and time of a local file or directory, or the version of a remote file."""
    try:
        if is_remote(path):
            return str(path.fs.ukey(path.path))
        state = path.stat()
    except (OSError, ValueError):  # ValueError: a path that no file can have
        return None
    return [state.st_size, state.st_mtime_ns]


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a journal; its last may be incomplete."""
    for line in path.read_text("utf-8", "replace").splitlines():
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value
