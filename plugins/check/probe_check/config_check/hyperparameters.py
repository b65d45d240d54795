"""Comparison of hyper-parameters, whose names may differ between two launchers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import SequenceMatcher

from probe_diagnosis import ConditionDifference, ConditionKind, place_in_order

from probe_check.config_check.items import Cell, ConfigDifference, Item, ItemResult, Level, worst
from probe_check.config_check.pack import Scalar
from probe_check.config_check.rules import HIDDEN, Rules, plain_name

COLUMNS = ("file_name", "bench_para", "cmp_para", "bench_value", "cmp_value", "matched_with", "level")
ONLY_BENCH, ONLY_CMP = "Only in benchmark", "Only in comparison"
BY_NAME, BY_ALIAS, BY_SIMILARITY = "pure name", "mapping", "similarity"
MAX_FUZZY_NAMES = 1000
"""Largest number of unmatched names that are compared with each other by their similarity."""
MAX_FUZZY_LENGTH = 100
"""Largest number of characters of these names."""
MAX_NUMBER_LENGTH = 40
"""Largest number of characters of a text that is compared as a number."""
WITHOUT_EFFECT = 1000
"""Addition to the place in the order of effects of a hyper-parameter that changes no number."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two matched hyper-parameters, by their full names; None for one that has no partner."""

    bench: str | None
    cmp: str | None
    matched_with: str = ""


def compare_hyperparameters(
    files: Iterable[tuple[str, Mapping[str, Scalar], Mapping[str, Scalar]]], rules: Rules
) -> ItemResult:
    """Return the hyper-parameters that differ.

    Args:
        files: The name of each file, with its hyper-parameters in BENCH and CMP.
        rules: The rules.
    """
    rows: list[tuple[Cell, ...]] = []
    differences: list[ConfigDifference] = []
    for file, bench, cmp in files:
        pairs = sorted(_pairs(bench, cmp, rules), key=_row_order)
        for pair in pairs:
            level = _level(pair, bench, cmp)
            if level is not Level.PASS:
                rows.append(_row(file, pair, bench, cmp, level, rules))
                differences.append(_difference(pair, bench, cmp, level, rules))
    level = worst(one.level for one in differences)
    return ItemResult(Item.HYPERPARAMETERS, level, COLUMNS, tuple(rows), tuple(differences))


def _row_order(pair: _Pair) -> tuple[str, str]:
    return pair.bench or ONLY_CMP, pair.cmp or ONLY_BENCH


def _level(pair: _Pair, bench: Mapping[str, Scalar], cmp: Mapping[str, Scalar]) -> Level:
    if pair.bench is None or pair.cmp is None:
        return Level.WARNING
    values = bench[pair.bench], cmp[pair.cmp]
    return Level.PASS if HIDDEN in values or is_equal(*values) else Level.ERROR


def is_equal(bench: Scalar, cmp: Scalar) -> bool:
    """Return True if two values are equal as texts without quotes, or as decimal numbers.

    Numbers are not rounded: ``1e-4`` equals ``0.0001``, and ``nan`` equals ``nan``. ``True`` is no number.
    """
    texts = [_unquoted(str(value)) for value in (bench, cmp)]
    if texts[0] == texts[1]:
        return (bench is None) == (cmp is None)
    if any(isinstance(value, bool) or len(text) > MAX_NUMBER_LENGTH for value, text in zip((bench, cmp), texts)):
        return False
    try:
        return Decimal(texts[0]) == Decimal(texts[1])
    except (InvalidOperation, ValueError):
        return False


def _unquoted(text: str) -> str:
    """Return a text without the quotes around it, which some parsers of shell files keep."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def _row(
    file: str, pair: _Pair, bench: Mapping[str, Scalar], cmp: Mapping[str, Scalar], level: Level, rules: Rules
) -> tuple[Cell, ...]:
    values = _shown(pair, bench, cmp, rules)
    names = pair.bench or ONLY_CMP, pair.cmp or ONLY_BENCH
    cells = ["" if name is None else value for name, value in zip((pair.bench, pair.cmp), values)]
    if pair.bench is not None:  # as msprobe writes them: numbers as texts, unless only CMP has them
        cells = [str(value) if isinstance(value, (int, float)) else value for value in cells]
    return file, *names, *cells, pair.matched_with, level.value


def _shown(pair: _Pair, bench: Mapping[str, Scalar], cmp: Mapping[str, Scalar], rules: Rules) -> tuple[Scalar, Scalar]:
    """Return both values, those of a secret hidden."""
    if any(name is not None and rules.is_secret(name) for name in (pair.bench, pair.cmp)):
        return HIDDEN, HIDDEN
    return (
        None if pair.bench is None else bench[pair.bench],
        None if pair.cmp is None else cmp[pair.cmp],
    )


def _difference(
    pair: _Pair, bench: Mapping[str, Scalar], cmp: Mapping[str, Scalar], level: Level, rules: Rules
) -> ConfigDifference:
    names = dict.fromkeys(plain_name(name) for name in (pair.bench, pair.cmp) if name is not None)
    name = " and ".join(names)
    values = _shown(pair, bench, cmp, rules)
    kind = ConditionKind.HYPERPARAMETER
    has_effect = not all(rules.without_effect.search(one) or rules.is_secret(one) for one in names)
    place = place_in_order(kind.value, name) + (0 if has_effect else WITHOUT_EFFECT)
    condition = ConditionDifference(kind, name, values[1], values[0])
    return ConfigDifference(Item.HYPERPARAMETERS, level, condition, place)


# -- matching of names -------------------------------------------------------------------------------


def _pairs(bench: Mapping[str, Scalar], cmp: Mapping[str, Scalar], rules: Rules) -> Iterator[_Pair]:
    """Yield all hyper-parameters in pairs: equal names first, then aliases, then similar names."""
    own, others = _by_plain_name(bench), _by_plain_name(cmp)
    for name in [name for name in own if name in others]:
        yield _Pair(own.pop(name), others.pop(name), BY_NAME)
    for name in list(own):
        alias = next((one for one in _spellings(name, rules) if one in others), None)
        if alias is not None:
            yield _Pair(own.pop(name), others.pop(alias), BY_ALIAS)
    matchers = {other: SequenceMatcher(None, "", other.lower()) for other in _comparable(others)}
    for name in _comparable(own):
        similar, ratio = _most_similar(name, matchers, rules.name_similarity)
        if similar is not None:
            del matchers[similar]
            yield _Pair(own.pop(name), others.pop(similar), f"{BY_SIMILARITY}:{ratio}")
    yield from (_Pair(full, None) for full in own.values())
    yield from (_Pair(None, full) for full in others.values())


def _by_plain_name(parameters: Mapping[str, Scalar]) -> dict[str, str]:
    """Return the full names of hyper-parameters by the names that are compared.

    Several parameters of one plain name keep their full names, except for the last one.
    """
    found: dict[str, str] = {}
    for full in parameters:
        name = plain_name(full)
        if name in found:
            earlier = found.pop(name)
            found[earlier] = earlier
        found[name] = full
    return found


def _spellings(name: str, rules: Rules) -> tuple[str, ...]:
    """Return the other spellings of a name, the standard one first."""
    for standard, aliases in rules.aliases.items():
        if name == standard or name in aliases:
            return standard, *aliases
    return ()


def _comparable(names: Iterable[str]) -> list[str]:
    """Return the names that are short and few enough to be compared with each other."""
    return [name for name in names if len(name) <= MAX_FUZZY_LENGTH][:MAX_FUZZY_NAMES]


def _most_similar(name: str, matchers: Mapping[str, SequenceMatcher[str]], limit: float) -> tuple[str | None, float]:
    """Return the name of the highest similarity above a limit, and the similarity."""
    best, best_ratio = None, limit
    for other, matcher in matchers.items():
        matcher.set_seq1(name.lower())
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = other, ratio
    return best, best_ratio
