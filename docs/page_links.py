"""Links to pages, with the titles of the contents in ``index.md``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

INDEX = Path(__file__).parent / "index.md"


@cache
def load_titles() -> dict[str, str]:
    """Return the title of each page by its file name."""
    links = re.findall(r"\[([^]]+)\]\(([\w-]+\.md)\)", INDEX.read_text("utf-8"))
    return {file: title for title, file in reversed(links)}


def link_page(target: str) -> str:
    """Return a link to a page such as ``python.md``, or to a section of it such as ``python.md#options``."""
    return f"[{load_titles()[target.partition('#')[0]]}]({target})"
