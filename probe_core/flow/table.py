"""Former place of classes of ``probe_reporters``; it works until version 0.3."""

from probe_core.exports import create_deprecated_exporter

__getattr__ = create_deprecated_exporter(__name__, dict.fromkeys(("CellColumn", "Table"), "probe_reporters.api"))
