"""Former place of ``probe_core.terminal.plugin_options``; it works until version 0.3."""

from probe_core.exports import create_deprecated_exporter

NAMES = ("add_plugin_options", "collect_option_actions", "find_set_parameters")
__getattr__ = create_deprecated_exporter(__name__, dict.fromkeys(NAMES, "probe_core.terminal.plugin_options"))
