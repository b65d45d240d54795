"""Training programs of all kinds; importing this registers them in ``PROGRAMS``."""

from __future__ import annotations

from support.programs.models import hard_programs, layers, transformers
from support.programs.training import PROGRAMS, cases

__all__ = ["PROGRAMS", "cases", "hard_programs", "layers", "transformers"]
