"""Former place of functions of ``probe_reporters``; it works until version 0.3."""

from probe_core.exports import create_deprecated_exporter

HOMES = {"neutralise": "probe_reporters", "replace_surrogates": "probe_reporters"}

__getattr__ = create_deprecated_exporter(__name__, HOMES)
