"""Rules of the pre-check for single APIs, by the sections of ``rules.yaml``."""

from __future__ import annotations

from probe_precheck.rules import Rules

rules = Rules(__package__)
"""Sections of ``rules.yaml``, loaded when first needed."""
