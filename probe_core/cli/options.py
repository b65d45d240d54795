"""Former place of ``probe_core.terminal.option_types``; it works until version 0.3."""

from probe_core.exports import create_deprecated_exporter

NAMES = ("Location", "NumberRanges")
__getattr__ = create_deprecated_exporter(__name__, dict.fromkeys(NAMES, "probe_core.terminal.option_types"))
