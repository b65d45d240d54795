"""Former place of the texts of reason codes; it works until version 0.3."""

from probe_core.exports import create_deprecated_exporter

__getattr__ = create_deprecated_exporter(
    __name__, dict.fromkeys(("NAN", "NOT_AVAILABLE", "UNSUPPORTED", "Text"), "probe_reporters.messages")
)
