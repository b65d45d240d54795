"""Plain words: docstrings begin with a verb or a noun, and the product has no word that only its authors know."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = ("probe_core", "plugins", "tests", "docs", "benchmarks", "make.py")
NOT_YET: tuple[str, ...] = ()
"""Files and directories that are still to be rewritten; a line here goes when its place is clean."""
SKIPPED = {"build", "data", "__pycache__"}

QUESTION = re.compile(r"(What|How|Where|Which|Whether|Who|Whose|When|Why|As|So|That)\b")
INSIDE = re.compile(
    r"spec/|\b[Tt]he seed\b|\bseed's|\b[Dd]ecisions? [A-Z]\d{1,2}\b|(?<![\w:])D\d{1,2}\b|(?<= )\([ABCDP]\d{1,2}(?:, [ABCDP]\d{1,2})*\)"
)
PEER = re.compile(r"\b[Pp]eers?\b")
TRANSFERS = ("probe_diagnosis/collectives/", "tests/plugins/diagnosis/", "test_location", "test_online_faults_tls")
"""Parts of paths of code in which a peer is the other end of a transfer."""
RULES_OF_WORDS = ("test_plain_words.py", "test_citations.py")
"""Files that name the words that others must not have."""


def files_of(*places: str) -> list[Path]:
    """Return the Python files in places that are clean already."""
    roots = [ROOT / place for place in places]
    paths = [path for root in roots for path in (root.rglob("*.py") if root.is_dir() else [root])]
    left_out = [ROOT / place for place in NOT_YET]
    return sorted(
        path
        for path in paths
        if not SKIPPED & set(path.relative_to(ROOT).parts)
        and not any(path == place or place in path.parents for place in left_out)
    )


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring of a module, class or function, and of those below attributes."""
    for node in ast.walk(parsed(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value.strip()


def inside_words(source: str, *, peers: bool) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each inside word in strings and comments.

    Args:
        source: The text of a module.
        peers: True if a peer is a rank there. In a string without blanks, such as a key, it always is.
    """
    strings = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Constant)]
    texts = [(node.lineno, node.value) for node in strings if isinstance(node.value, str)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts += [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    for line, text in texts:
        text = text.replace("P2POp peer", "")  # a column of msprobe
        word = INSIDE.search(text) or (None if peers or " " not in text else PEER.search(text))
        if word:
            yield line, word[0]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in files_of(*EVERYTHING)
        for line, text in docstrings(path.read_text("utf-8"))
        if QUESTION.match(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_there_is_no_inside_word() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in files_of(*EVERYTHING)
        if path.name not in RULES_OF_WORDS
        for line, word in inside_words(
            path.read_text("utf-8"), peers=any(part in path.as_posix() for part in TRANSFERS)
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_the_checks_find_what_they_are_for() -> None:
    source = '"""As it was."""\nX = 1  # the seed\n"""Where it is."""\nY = "of the peer"\nZ = "peer"\n'
    assert [line for line, text in docstrings(source) if QUESTION.match(text)] == [1, 3]
    assert sorted(inside_words(source, peers=False)) == [(2, "the seed"), (4, "peer")]
    assert list(inside_words(source, peers=True)) == [(2, "the seed")]
    assert len(files_of(*EVERYTHING)) > 60
