"""Former name of ``probe_metrics.standards``; it works until version 0.3."""

import warnings

from probe_metrics import standards

warnings.warn("probe_metrics.precheck is called probe_metrics.standards now.", DeprecationWarning, stacklevel=2)

__path__ = standards.__path__
