"""Counter of the product's lines of code: ``python code_lines.py [COMMIT …]``, else of the working tree.

Lines of Python, C and C++ that hold code count; blank lines, comments and docstrings do not, nor do tests,
benchmarks and documentation. One line of output for each distribution and commit.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("probe_core/", "plugins/")
C_SUFFIXES = (".c", ".cpp", ".h")
_C_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
}


def lines_of_python(text: str) -> int:
    """Return the number of lines with code in a Python source."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and type(node.value.value) is str:
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def lines_of_c(text: str) -> int:
    """Return the number of lines with code in a C or C++ source."""

    def without_comment(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "", found[0]) if found[0][0] == "/" else found[0]

    bare = _C_TOKENS.sub(without_comment, text)
    return sum(bool(line.strip()) for line in bare.splitlines())


def files_of(commit: str) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each source of the product; an empty ``commit`` is the working tree."""
    listing = ["git", "ls-tree", "-r", "--name-only", commit] if commit else ["git", "ls-files"]
    for path in subprocess.check_output(listing, cwd=ROOT, text=True).splitlines():
        if path.startswith(PRODUCT) and path.endswith((".py", *C_SUFFIXES)):
            if commit:
                yield path, subprocess.check_output(["git", "show", f"{commit}:{path}"], cwd=ROOT, text=True)
            elif (ROOT / path).is_file():
                yield path, (ROOT / path).read_text("utf-8")


def main() -> None:
    """Print the counts of each commit."""
    for commit in sys.argv[1:] or [""]:
        counts: Counter[str] = Counter()
        for path, text in files_of(commit):
            part = path.split("/")[1] if path.startswith("plugins/") else "core"
            counts[part] += lines_of_python(text) if path.endswith(".py") else lines_of_c(text)
        for part, count in sorted(counts.items()):
            print(f"{commit[:12]:12} {part:12} {count:7,}")
        print(f"{commit[:12]:12} {'all':12} {sum(counts.values()):7,}")


if __name__ == "__main__":
    main()
