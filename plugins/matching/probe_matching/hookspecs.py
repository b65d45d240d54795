"""The hook of matching: what two frameworks call the same calls."""

from __future__ import annotations

from collections.abc import Mapping

from probe_core.plugins.hookspecs import hookspec
from probe_core.plugins.specs import Spec
from probe_matching.specs import NameRule

KINDS: Mapping[str, type[Spec]] = {"name_rules": NameRule}


@hookspec
def probe_name_rules() -> list[NameRule]:  # type: ignore[empty-body]
    """Names of one framework in another, as data. Called when runs of two frameworks are compared.

    The factory makes a ``probe_matching.NameTable``; docs/plugins.md explains its fields, with an example.

    Example::

        return [NameRule(name="mine-to-yours", summary="my names in yours", source="mine",
                         target="yours", factory="my_package.names:table")]
    """
