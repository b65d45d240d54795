"""Former place of ``probe_ranks.testing.ExecutorConformance``; it works until version 0.3."""

from probe_core.exports import create_deprecated_exporter

__getattr__ = create_deprecated_exporter(__name__, {"ExecutorConformance": "probe_ranks.testing"})
