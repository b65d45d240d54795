"""Former place of ``probe_core.terminal.spelling``; it works until version 0.3."""

from probe_core.exports import create_deprecated_exporter

NAMES = ("Command", "Option", "list_spellings", "option")
__getattr__ = create_deprecated_exporter(__name__, dict.fromkeys(NAMES, "probe_core.terminal.spelling"))
