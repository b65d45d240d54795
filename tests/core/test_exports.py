"""Names that moved out of the core: they work with a warning until the next release."""

from __future__ import annotations

from importlib import import_module

import pytest

from probe_core.model import MatchKind, Pair

FORMER_HOMES = {
    "probe_core.cli.console": (
        "probe_core.console",
        ["error", "note", "show", "show_json", "show_progress", "style", "warn"],
    ),
    "probe_core.store.layout": ("probe_ranks.api", ["find_ranks", "pair_runs"]),
    "probe_core.matching.matching": ("probe_core.matching.row_order", ["RowOrder"]),
}


@pytest.mark.parametrize("module", FORMER_HOMES)
def test_former_import_gives_the_moved_object_with_a_warning(module: str) -> None:
    home, names = FORMER_HOMES[module]
    for name in names:
        with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} moved to {home}\.{name}"):
            moved = getattr(import_module(module), name)
        assert moved is getattr(import_module(home), name)


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("model.GRAVITY", "SEVERITIES"),
        ("model.How", "MatchKind"),
        ("matching.matching.partners_of", "find_partners"),
    ],
)
def test_renamed_class_is_given_by_its_former_name_with_a_warning(former: str, name: str) -> None:
    module, _, attribute = f"probe_core.{former}".rpartition(".")
    with pytest.warns(DeprecationWarning, match=rf"{attribute} is called {name} now"):
        assert getattr(import_module(module), attribute) is getattr(import_module(module), name)


def test_renamed_attribute_is_given_by_its_former_name_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"Pair\.how is called match_kind now"):
        assert getattr(Pair(None, None), "how") is MatchKind.NAME  # noqa: B009
