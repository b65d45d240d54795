"""Hyper-parameters in a shell script that starts a training. The script is parsed, but never executed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from probe_check.config_check.rules import ConfigRules

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


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_COMMAND_PREFIXES = frozenset(
    {"export", "local", "readonly", "declare", "typeset", "env", "nohup", "exec", "time", "sudo", "if",
     "then", "else", "do"}
)  # fmt: skip


@dataclass(slots=True)
class _Script:
    """Variables and commands of a script.

    Attributes:
        variables: The last value of each variable; variables inside the value are not expanded.
        commands: The words of each command, including quotes.
    """

    variables: dict[str, str] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)


def parse_hyperparameters(text: str, rules: ConfigRules) -> dict[str, str | bool]:
    """Return the options of the first command that starts a training; True for options without a value.

    Args:
        text: The content of the script.
        rules: The rules, which name the commands that start a training.
    """
    script = _parse(text)
    variables = Variables(script.variables)
    commands = [[part for word in command for part in variables.expand_word(word)] for command in script.commands]
    training_command = _find_training_command(commands, rules)
    return dict(_iterate_options(training_command))


def _parse(text: str) -> _Script:
    """Return the variables and commands of a script; array assignments are variables of several words."""
    script, words = _Script(), list[str]()
    array: str | None = None
    for match in TOKEN_PATTERN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "word":
            if array is not None:
                script.variables[array] += f" {token}"
            else:
                words.append(token)
        elif kind == "open" and words and (begin := _ARRAY.fullmatch(words[-1])):
            array = begin[1]
            script.variables[array] = script.variables.get(array, "") if begin[2] else ""
            words = []
        elif kind == "close" and array is not None:
            array = None
        elif kind in ("end", "open", "close") and array is None:
            _end_command(script, words)
            words = []
    _end_command(script, words)
    return script


def _end_command(script: _Script, words: list[str]) -> None:
    """Add a command, after the assignments at its beginning."""
    while words and (words[0] in _COMMAND_PREFIXES or _ASSIGNMENT.fullmatch(words[0])):
        assignment = _ASSIGNMENT.fullmatch(words.pop(0))
        if assignment is not None:
            earlier = script.variables.get(assignment[1], "") if assignment[2] else ""
            script.variables[assignment[1]] = earlier + assignment[3]
    if words:
        script.commands.append(words)


def _find_training_command(commands: Sequence[Sequence[str]], rules: ConfigRules) -> Sequence[str]:
    """Return the words of the first command that starts a training; empty if there is none."""
    for command in filter(None, commands):
        words = [word.rpartition("/")[2] for word in command]
        programs = words if words[0] in rules.wrappers else words[:1]
        modules = {next_word for word, next_word in pairwise(words) if word == "-m"}
        if not rules.launchers.isdisjoint(programs) or not rules.launcher_modules.isdisjoint(modules):
            return command
    for command in filter(None, commands):
        program = command[0].rpartition("/")[2]
        if program.startswith("python") and any(word.endswith(".py") for word in command):
            return command
    return ()


def _iterate_options(words: Sequence[str]) -> Iterator[tuple[str, str | bool]]:
    """Yield the options in the words of a command; several numbers after an option are one value."""
    for number, word in enumerate(words):
        if not re.match(r"--[A-Za-z0-9]", word):
            continue
        name, sign, value = word[2:].partition("=")
        if sign:
            yield name, value
            continue
        following = words[number + 1 : number + 2]
        if not following or following[0].startswith("--") or following[0].endswith(".py"):
            yield name, True
            continue
        values = [following[0]]
        for later in words[number + 2 :]:
            if not (_is_number(later) and _is_number(values[0])):
                break
            values.append(later)
        yield name, " ".join(values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
