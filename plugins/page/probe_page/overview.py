"""The page over several ranks and steps: the verdict on all of them, and the way to the page of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from probe_core.cli import console
from probe_core.errors import UserError
from probe_core.files.atomic import AtomicFile, make_directory, not_written
from probe_core.model.answers import Answer
from probe_core.plugins.parameters import split
from probe_core.plugins.protocols import Compared, Finished
from probe_page.language import FORMAT

if TYPE_CHECKING:
    from probe_diagnosis import CallDepth

    from probe_core.plugins.protocols import Opened
    from probe_core.store.layout import RunPair
    from probe_page.document import Part


class Overview:
    """Answer of a comparison of several ranks or steps whose plan writes pages."""

    def witness(self, opened: Opened, pair: RunPair) -> None:
        """Observe nothing; the reports say all."""

    def conclude(self, compared: Compared) -> Iterator[Written]:
        """Write the page, and yield it ready to be printed; nothing of a single comparison.

        Raises:
            UserError: The page cannot be written.
        """
        formats = dict(split(name) for name in compared.plan.formats)
        if len(compared.pairing.pairs) > 1 and FORMAT in formats and compared.finished:
            yield Written(_written(compared, formats[FORMAT].get("lang", "en")))


@dataclass(frozen=True, slots=True)
class Written:
    """The page over several comparisons, whose path can be printed.

    Attributes:
        path: Its path.
        is_judged: True, for the reports say by themselves whether they were judged.
    """

    path: Path
    is_judged: bool = True
    answer: Answer | None = None

    def show(self, *, brief: bool = False) -> None:
        """Print its path."""
        console.show(f"  wrote {self.path}")


def _written(compared: Compared, lang: str) -> Path:
    from probe_diagnosis import depths, whole_answer

    from probe_page.document import write_overview
    from probe_page.head import Head
    from probe_page.ranks import exchanges, lines

    plan = compared.plan
    calls = [depths(one.report, one.pair.rank) if one.report else [] for one in compared.finished]
    parts = [_part(one, plan.output, own) for one, own in zip(compared.finished, calls)]
    answer = whole_answer(compared)
    steps: dict[str, dict[int, list[CallDepth]]] = {}
    for one, own in zip(compared.finished, calls):
        steps.setdefault(one.pair.part, {}).setdefault(one.pair.rank, own)
    first = answer.causes[0].step if answer is not None and answer.causes else ""
    drawn = lines([(part.step, part.name, part.link, own) for part, own in zip(parts, calls) if own])
    make_directory(plan.output)
    file: AtomicFile | None = None
    try:
        file = AtomicFile(plan.output / f"compare_summary_{plan.time_stamp}.html")
        with file.temporary.open("wb") as stream:
            head = Head.of(answer, str(plan.target), str(plan.golden))
            write_overview(
                stream, lang, head, parts, drawn if drawn["lines"] else None, exchanges(steps, first)
            )
        return file.commit()
    except OSError as error:
        if file is not None:
            file.discard()
        raise not_written("The page", plan.output, error) from None
    except BaseException:
        if file is not None:
            file.discard()
        raise


def _part(one: Finished, output: Path, calls: Sequence[CallDepth]) -> Part:
    from probe_page.document import Part
    from probe_page.ranks import worst

    report = one.report
    rank = f"rank{one.pair.rank}" + (" debug" if one.pair.target.name.startswith("debug") else "")
    if report is None:
        what = one.error.what if isinstance(one.error, UserError) else ""
        return Part(one.pair.part, rank, "", what, "")
    page = next((path for path in report.files if path.suffix == f".{FORMAT}"), None)
    link = quote(os.path.relpath(page, output).replace(os.sep, "/")) if page is not None else ""
    answer = report.answer
    outcome, sentence = (answer.outcome.value, answer.sentence) if answer is not None else ("", "")
    return Part(one.pair.part, rank, outcome, sentence, link, worst(calls))
