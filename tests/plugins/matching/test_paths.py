"""Translation of module paths by mappings of names and of layers (docs/pairing.md#modules)."""

from __future__ import annotations

from probe_matching.paths import ModulePathTranslator


def test_a_layer_mapping_takes_the_longest_name_first() -> None:
    names = ["Cell.net.Net.forward.0", "Cell.net.a.A.forward.0", "Cell.net.a.b.B.forward.0"]
    layers = {"Cell": {"net": ""}, "Net": {"a": "x", "a.b": "y"}, "A": {"b": "never"}}
    translate = ModulePathTranslator(names, layers=layers)
    assert translate("net.a.b", "B") == ("y", "B")
    assert translate("net.a", "A") == ("x", "A")
    assert translate("net.a.c", "C") == ("x.c", "C")


def test_a_part_of_a_path_does_not_cut_a_number() -> None:
    translate = ModulePathTranslator([], {"layer1": "block.1", "1.Linear": "one.Dense"})
    assert translate("net.layer1.fc", "Linear") == ("net.block.1.fc", "Linear")
    assert translate("net.layer10.fc", "Linear") == ("net.layer10.fc", "Linear")
    assert translate("net.layer10.layer1", "Linear") == ("net.layer10.block.1", "Linear")
    assert translate("net.11", "Linear") == ("net.11", "Linear")
    assert translate.used == {"layer1"}


def test_a_part_may_be_within_a_name_and_replaces_its_first_occurrence() -> None:
    translate = ModulePathTranslator([], {"layer": r"block\1"})
    assert translate("net.layer1.layer2", "Linear") == (r"net.block\11.layer2", "Linear")


def test_a_whole_name_has_priority_over_a_part() -> None:
    translate = ModulePathTranslator([], {"fc": "part", "net.fc.Dense": "whole.Linear"})
    assert translate("net.fc", "Dense") == ("whole", "Linear")
