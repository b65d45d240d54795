"""Former place of ``probe_core.console``; it works until version 0.3."""

from probe_core.exports import create_deprecated_exporter

__getattr__ = create_deprecated_exporter(
    __name__,
    dict.fromkeys(("error", "note", "show", "show_json", "show_progress", "style", "warn"), "probe_core.console"),
)
