"""Words of shell scripts: quotes, and variables that stand for words. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

MAX_EXPANDED_LENGTH = 20_000
"""Largest number of characters of a value after its variables are replaced."""

TOKEN_PATTERN = re.compile(
    r"""(?P<blank>(?:[ \t\r]|\\\r?\n)+)
    |(?P<comment>\#[^\n]*)
    |(?P<end>\n|;;?|&&?|\|\|?|[<>]+&?)
    |(?P<open>\()|(?P<close>\))
    |(?P<word>(?:
        \\.|"(?:\\.|[^"\\])*"|'[^']*'|`[^`\n]{0,500}`|\$\([^()\n]{0,500}\)|\$\{[^}\s]{0,200}\}
        |[^\s\\"'`();&|<>]|["'`\\]
    )+)""",
    re.VERBOSE | re.DOTALL,
)
_VARIABLE_PATTERN = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(\[[@*]\])?\})")
_PIECE_PATTERN = re.compile(r"""\\(.)|"((?:\\.|[^"\\])*)"|'([^']*)'|(.)""", re.DOTALL)
_LITERAL_DOLLAR = "\ue000"
"""Stands for a dollar sign within single quotes."""


class Variables:
    """The variables of a script.

    Args:
        values: The last value of each variable, with quotes and with variables in it.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._replaced: dict[str, str] = {}

    def expand_word(self, word: str) -> Iterator[str]:
        """Yield the words without quotes that a word stands for: several for a variable or an array."""
        bare = word[1:-1] if word[:1] == word[-1:] == '"' else word
        match = _VARIABLE_PATTERN.fullmatch(bare)
        if match is not None and (match[3] or bare == word):
            value = self._resolve_variable(match)
            if value != bare:
                tokens = TOKEN_PATTERN.finditer(value if match[3] else remove_quotes(value))
                yield from (remove_quotes(token[0]) for token in tokens if token["word"])
                return
        yield remove_quotes(self._replace(word))

    def _replace(self, word: str) -> str:
        """Return a word with the values of its variables; unknown ones and commands stay as they are."""
        if word.startswith("'"):
            return word.replace("$", _LITERAL_DOLLAR)
        length = len(word)

        def expand(match: re.Match[str]) -> str:
            nonlocal length
            value = _strip_outer_quotes(self._resolve_variable(match))
            length += len(value)
            return value if length <= MAX_EXPANDED_LENGTH else match[0]

        return _VARIABLE_PATTERN.sub(expand, word) if length <= MAX_EXPANDED_LENGTH else word

    def _resolve_variable(self, match: re.Match[str]) -> str:
        """Return the value of a variable; a variable that refers to itself or is unknown stays as it is."""
        name = match[1] or match[2]
        if name not in self._values:
            return match[0]
        if name not in self._replaced:
            self._replaced[name] = match[0]  # stays if the value refers to the variable itself
            self._replaced[name] = self._replace_value(self._values[name])
        return self._replaced[name]

    def _replace_value(self, value: str) -> str:
        try:
            return self._replace(value)
        except RecursionError:  # a long chain of variables
            return value


def _strip_outer_quotes(text: str) -> str:
    """Return the text within quotes around a whole value."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]
    return text[1:-1] if is_quoted else text


def remove_quotes(word: str) -> str:
    """Return a word without quotes and escapes."""
    pieces = []
    for escaped, double, single, plain in _PIECE_PATTERN.findall(word):
        if double:
            double = double.replace("\\\n", "").replace('\\"', '"').replace("\\\\", "\\")
        pieces.append(single or double or ("" if escaped == "\n" else escaped or plain))
    return "".join(pieces).replace(_LITERAL_DOLLAR, "$")
