"""The page over several ranks and steps: the verdict on all of them, and the way to the page of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    from probe_diagnosis import whole_answer

    from probe_page.document import write_overview

    plan = compared.plan
    parts = [_part(one, plan.output) for one in compared.finished]
    make_directory(plan.output)
    file: AtomicFile | None = None
    try:
        file = AtomicFile(plan.output / f"compare_summary_{plan.time_stamp}.html")
        with file.temporary.open("wb") as stream:
            write_overview(stream, lang, whole_answer(compared), str(plan.target), str(plan.golden), parts)
        return file.commit()
    except OSError as error:
        if file is not None:
            file.discard()
        raise not_written("The page", plan.output, error) from None
    except BaseException:
        if file is not None:
            file.discard()
        raise


def _part(one: Finished, output: Path) -> Part:
    from probe_page.document import Part

    report = one.report
    rank = f"rank{one.pair.rank}" + (" debug" if one.pair.target.name.startswith("debug") else "")
    if report is None:
        what = one.error.what if isinstance(one.error, UserError) else ""
        return Part(one.pair.part, rank, "", what, "")
    page = next((path for path in report.files if path.suffix == f".{FORMAT}"), None)
    link = quote(os.path.relpath(page, output).replace(os.sep, "/")) if page is not None else ""
    answer = report.answer
    return Part(
        one.pair.part, rank, answer.outcome.value if answer else "", answer.sentence if answer else "", link
    )
