"""The hook of probe-matching, for tables of names that two frameworks have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from probe_matching.specs import NameRule

KINDS = {"name_rules": "probe_matching.specs:NameRule"}
TRIALS = {"name_rules": "probe_matching.across:check_name_rule"}


@hookspec
def probe_name_rules() -> list[NameRule]:  # type: ignore[empty-body]
    """Return tables of names of one framework in another. Called when runs of two frameworks are compared.

    The factory makes a ``probe_matching.api.NameTable``; docs/plugins.md explains its fields, with an example.

    Example::

        return [NameRule(name="mine-to-yours", summary="my names in yours", source="mine",
                         target="yours", factory="my_package.names:table")]
    """
