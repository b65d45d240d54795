"""The rules for single APIs in ``rules.yaml``, by section."""

from __future__ import annotations

from probe_precheck.rules import Rules

rules = Rules(__package__)
