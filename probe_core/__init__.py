"""probe finds the operator that diverged first between two recorded runs of a model.

``probe_core.compare(target, golden)`` is its entrance for programs (docs/python.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_core.errors import UserError as UserError
    from probe_core.library import Comparison as Comparison
    from probe_core.library import compare as compare

__version__ = "0.2.0"

__getattr__ = create_exporter(__name__, {"library": "Comparison compare", "errors": "UserError"})
