"""Comparison of hyper-parameters, whose names may differ between two launchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import SequenceMatcher

from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind, place_in_order

from probe_check.config_check.items import Cell, ConfigDifference, DifferenceLevel, ItemResult, PackItem
from probe_check.config_check.pack import Scalar
from probe_check.config_check.rules import HIDDEN_TEXT, ConfigRules, normalize_parameter_name

HYPERPARAMETER_COLUMNS = ("file_name", "bench_para", "cmp_para", "bench_value", "cmp_value", "matched_with", "level")
ONLY_BENCH, ONLY_CMP = "Only in benchmark", "Only in comparison"
BY_NAME, BY_ALIAS, BY_SIMILARITY = "pure name", "mapping", "similarity"
MAX_FUZZY_NAMES = 1000
"""Largest number of unmatched names that are compared with each other by their similarity."""
MAX_FUZZY_LENGTH = 100
"""Largest number of characters of these names."""
MAX_NUMBER_LENGTH = 40
"""Largest number of characters of a text that is compared as a number."""
NO_EFFECT_OFFSET = 1000
"""Addition to the place in the order of effects of a hyper-parameter that changes no number."""


@dataclass(frozen=True, slots=True)
class _ParameterPair:
    """Two matched hyper-parameters, by their full names; None for one that has no partner."""

    bench: str | None
    cmp: str | None
    matched_with: str = ""


def compare_hyperparameters(
    files: Iterable[tuple[str, Mapping[str, Scalar], Mapping[str, Scalar]]], rules: ConfigRules
) -> ItemResult:
    """Return the hyper-parameters that differ.

    Args:
        files: The name of each file, with its hyper-parameters in BENCH and CMP.
        rules: The rules.
    """
    rows: list[tuple[Cell, ...]] = []
    differences: list[ConfigDifference] = []
    for file, bench, cmp in files:
        pairs = sorted(_pair_parameters(bench, cmp, rules), key=_get_row_sort_key)
        for pair in pairs:
            level = _judge_level(pair, bench, cmp)
            if level is not DifferenceLevel.PASS:
                rows.append(_create_row(file, pair, bench, cmp, level, rules))
                differences.append(_create_difference(pair, bench, cmp, level, rules))
    return ItemResult(PackItem.HYPERPARAMETERS, HYPERPARAMETER_COLUMNS, tuple(rows), tuple(differences))


def _get_row_sort_key(pair: _ParameterPair) -> tuple[str, str]:
    return pair.bench or ONLY_CMP, pair.cmp or ONLY_BENCH


def _judge_level(pair: _ParameterPair, bench: Mapping[str, Scalar], cmp: Mapping[str, Scalar]) -> DifferenceLevel:
    if pair.bench is None or pair.cmp is None:
        return DifferenceLevel.WARNING
    values = bench[pair.bench], cmp[pair.cmp]
    return DifferenceLevel.PASS if HIDDEN_TEXT in values or is_equal(*values) else DifferenceLevel.ERROR


def is_equal(bench: Scalar, cmp: Scalar) -> bool:
    """Return True if two values are equal as texts without quotes, or as decimal numbers.

    Numbers are not rounded: ``1e-4`` equals ``0.0001``, and ``nan`` equals ``nan``. ``True`` is no number.
    """
    texts = [_strip_quotes(str(value)) for value in (bench, cmp)]
    if texts[0] == texts[1]:
        return (bench is None) == (cmp is None)
    if any(isinstance(value, bool) or len(text) > MAX_NUMBER_LENGTH for value, text in zip((bench, cmp), texts)):
        return False
    try:
        return Decimal(texts[0]) == Decimal(texts[1])
    except (InvalidOperation, ValueError):
        return False


def _strip_quotes(text: str) -> str:
    """Return a text without the quotes around it, which some parsers of shell files keep."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def _create_row(
    file: str,
    pair: _ParameterPair,
    bench: Mapping[str, Scalar],
    cmp: Mapping[str, Scalar],
    level: DifferenceLevel,
    rules: ConfigRules,
) -> tuple[Cell, ...]:
    values = _hide_secrets(pair, bench, cmp, rules)
    names = pair.bench or ONLY_CMP, pair.cmp or ONLY_BENCH
    cells = ["" if name is None else value for name, value in zip((pair.bench, pair.cmp), values)]
    if pair.bench is not None:  # as msprobe writes them: numbers as texts, unless only CMP has them
        cells = [str(value) if isinstance(value, (int, float)) else value for value in cells]
    return file, *names, *cells, pair.matched_with, level.value


def _hide_secrets(
    pair: _ParameterPair, bench: Mapping[str, Scalar], cmp: Mapping[str, Scalar], rules: ConfigRules
) -> tuple[Scalar, Scalar]:
    """Return both values, those of a secret hidden."""
    if any(name is not None and rules.is_secret(name) for name in (pair.bench, pair.cmp)):
        return HIDDEN_TEXT, HIDDEN_TEXT
    return (
        None if pair.bench is None else bench[pair.bench],
        None if pair.cmp is None else cmp[pair.cmp],
    )


def _create_difference(
    pair: _ParameterPair,
    bench: Mapping[str, Scalar],
    cmp: Mapping[str, Scalar],
    level: DifferenceLevel,
    rules: ConfigRules,
) -> ConfigDifference:
    names = dict.fromkeys(normalize_parameter_name(name) for name in (pair.bench, pair.cmp) if name is not None)
    name = " and ".join(names)
    values = _hide_secrets(pair, bench, cmp, rules)
    kind = ConditionKind.HYPERPARAMETER
    has_effect = not all(rules.without_effect.search(plain) or rules.is_secret(plain) for plain in names)
    place = place_in_order(kind.value, name) + (0 if has_effect else NO_EFFECT_OFFSET)
    condition = ConditionDifference(kind, name, values[1], values[0])
    return ConfigDifference(PackItem.HYPERPARAMETERS, level, condition, place)


# -- matching of names -------------------------------------------------------------------------------


def _pair_parameters(
    bench: Mapping[str, Scalar], cmp: Mapping[str, Scalar], rules: ConfigRules
) -> Iterator[_ParameterPair]:
    """Yield all hyper-parameters in pairs: equal names first, then aliases, then similar names."""
    bench_left, cmp_left = list(bench), list(cmp)
    for make_key in (str, _replace_hyphens, normalize_parameter_name):
        bench_names, cmp_names = _index_unique(bench_left, make_key), _index_unique(cmp_left, make_key)
        pairs = {full: cmp_names[key] for key, full in bench_names.items() if key in cmp_names}
        yield from (_ParameterPair(*names, BY_NAME) for names in pairs.items())
        bench_left = [full for full in bench_left if full not in pairs]
        paired_cmp = {*pairs.values()}
        cmp_left = [full for full in cmp_left if full not in paired_cmp]
    bench_names, cmp_names = _index_by_plain_name(bench_left), _index_by_plain_name(cmp_left)
    for name in list(bench_names):
        alias = next((spelling for spelling in _list_spellings(name, rules) if spelling in cmp_names), None)
        if alias is not None:
            yield _ParameterPair(bench_names.pop(name), cmp_names.pop(alias), BY_ALIAS)
    matchers = {candidate: SequenceMatcher(None, "", candidate.lower()) for candidate in _select_comparable(cmp_names)}
    for name in _select_comparable(bench_names):
        similar, ratio = _find_most_similar(name, matchers, rules.name_similarity)
        if similar is not None:
            del matchers[similar]
            yield _ParameterPair(bench_names.pop(name), cmp_names.pop(similar), f"{BY_SIMILARITY}:{ratio}")
    yield from (_ParameterPair(full, None) for full in bench_names.values())
    yield from (_ParameterPair(None, full) for full in cmp_names.values())


def _replace_hyphens(name: str) -> str:
    return name.replace("-", "_")


def _index_unique(names: Iterable[str], make_key: Callable[[str], str]) -> dict[str, str]:
    """Return the names by their keys, without names that share their key with another name."""
    full_names: dict[str, list[str]] = {}
    for name in names:
        full_names.setdefault(make_key(name), []).append(name)
    return {key: group[0] for key, group in full_names.items() if len(group) == 1}


def _index_by_plain_name(names: Sequence[str]) -> dict[str, str]:
    """Return full names by the names that are compared: the plain name if it is unique, or else the full name."""
    unique = {full: plain for plain, full in _index_unique(names, normalize_parameter_name).items()}
    return {unique.get(full, full): full for full in names}


def _list_spellings(name: str, rules: ConfigRules) -> tuple[str, ...]:
    """Return the other spellings of a name, the standard one first. Flags of one parameter are not spellings."""
    for standard, aliases in rules.aliases.items():
        if name == standard or name in aliases:
            return standard, *aliases
    for standard, flags in rules.flags.items():
        if name in flags:
            return (standard,)
    return rules.flags.get(name, ())


def _select_comparable(names: Iterable[str]) -> list[str]:
    """Return the names that are short and few enough to be compared with each other."""
    return [name for name in names if len(name) <= MAX_FUZZY_LENGTH][:MAX_FUZZY_NAMES]


def _find_most_similar(
    name: str, matchers: Mapping[str, SequenceMatcher[str]], limit: float
) -> tuple[str | None, float]:
    """Return the name of the highest similarity above a limit, and the similarity."""
    best, best_ratio = None, limit
    for candidate, matcher in matchers.items():
        matcher.set_seq1(name.lower())
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = candidate, ratio
    return best, best_ratio
