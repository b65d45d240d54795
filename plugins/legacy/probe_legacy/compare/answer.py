"""The answer of ``compare --as``: the table that an older tool wrote, beside the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe_core import console
from probe_core.errors import UserError, format_count
from probe_core.files.atomic import make_directory, write_text
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import AllResults, OpenComparison
from probe_core.store.layout import RunPair
from probe_legacy.compare import hooks_table, ptdbg_table
from probe_legacy.compare.dump import LegacyTable
from probe_legacy.compare.files import write_csv, write_workbook
from probe_legacy.reading.lines import HOOKS, PTDBG, detect_format

TOOL_TITLES = {PTDBG: "ptdbg_ascend", HOOKS: "torch_npu.hooks"}
ANSWER_NAMES = {PTDBG: "as_ptdbg", HOOKS: "as_hooks"}
"""The answers by the tool."""
SHAPES_ANSWER_NAME = "as_hooks_shapes"
FUZZY_MATCHER = "fuzzy"
"""The matcher that leaves out the numbers of calls."""


@dataclass(frozen=True, slots=True)
class TableConclusion:
    """The files of the tables, which can be printed."""

    title: str
    files: Sequence[Path]
    rows: int
    answer: None = None

    @property
    def is_judged(self) -> bool:
        """True if a table has a row."""
        return self.rows > 0

    def show(self, *, brief: bool = False) -> None:
        """Print the paths of the files."""
        console.show(f"as {self.title} compared them, {format_count(self.rows, 'row')}:")
        for file in self.files:
            console.show(f"  wrote {file}")


class OldTable:
    """Answer that writes the table of an older tool for each pair of files.

    Args:
        tool: ``ptdbg`` or ``hooks``.
        with_shapes: True if calls match only where dtypes and shapes are equal; for ``hooks``.
    """

    def __init__(self, tool: str, *, with_shapes: bool = False) -> None:
        self._tool = tool
        self._with_shapes = with_shapes

    def witness(self, opened: OpenComparison, pair: RunPair) -> None:
        """Observe nothing; the files are read again at the end."""

    def conclude(self, compared: AllResults) -> Iterator[TableConclusion]:
        """Write the tables, and yield their paths.

        Raises:
            UserError: A file is of another tool, or cannot be read or written.
        """
        title, files, rows = TOOL_TITLES[self._tool], [], 0
        for pair in compared.pairing.pairs:
            for path in (pair.target, pair.golden):
                if detect_format(path) != self._tool:
                    raise UserError(
                        f"{path} is no dump of {title}, so there is no table of {title} on it.",
                        f"Leave --as {self._tool} out.",
                    )
            if self._tool == PTDBG:
                fuzzy = compared.plan.matcher == FUZZY_MATCHER
                table = ptdbg_table.create_ptdbg_table(pair.target, pair.golden, fuzzy=fuzzy)
            else:
                table = hooks_table.create_hooks_table(pair.target, pair.golden, with_shapes=self._with_shapes)
            rows += len(table.rows)
            files += self._write(compared, pair, table)
        yield TableConclusion(title, files, rows)

    def _write(self, compared: AllResults, pair: RunPair, table: LegacyTable) -> list[Path]:
        plan = compared.plan
        directory = plan.output / pair.part
        make_directory(directory)
        label = f"_rank{pair.rank}-rank{pair.golden_rank}" if pair.label else ""
        name = f"{label}_{plan.time_stamp}"
        files = [directory / f"compare_result{name}{table.suffix}"]
        if table.suffix == ".csv":
            write_csv(files[0], table)
        else:
            write_workbook(files[0], table, compared.manager)
        if self._tool == PTDBG and plan.answer and table.is_judged:
            files.append(directory / f"advisor{name}.txt")
            write_text(files[1], ptdbg_table.format_advice(table))
        return files


def create_ptdbg_answer() -> OldTable:
    """Return the answer with the table of ptdbg_ascend."""
    return OldTable(PTDBG)


def create_hooks_answer() -> OldTable:
    """Return the answer with the table of torch_npu.hooks."""
    return OldTable(HOOKS)


def create_hooks_answer_with_shapes() -> OldTable:
    """Return the answer with the table of torch_npu.hooks that its ``shape_flag`` asked for."""
    return OldTable(HOOKS, with_shapes=True)


def ask(plan: Plan, values: Mapping[str, Any], asked: Set[str]) -> Plan:
    """Return the plan with the table of a tool, in place of probe's own tables and advice.

    Raises:
        UserError: ``--format`` was given as well, or ``--as-shapes`` for another tool.
    """
    tool, with_shapes = values["tool"], bool(values.get("with_shapes"))
    if with_shapes and tool != HOOKS:
        raise UserError(
            "--as-shapes is the shape_flag of torch_npu.hooks; ptdbg_ascend has none.",
            "Leave --as-shapes out.",
        )
    if "formats" in asked:
        raise UserError(
            "--as writes the csv of an older tool, and --format probe's own table of the same name.",
            "Leave one of them out.",
        )
    answers = (*plan.answers, SHAPES_ANSWER_NAME if with_shapes else ANSWER_NAMES[tool])
    return replace(plan, answers=answers, formats=(), advise=False)
