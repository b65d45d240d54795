"""What this plugin contributes; imported at every start of probe, so nothing heavy here."""

from probe_core.hookspecs import hookimpl
from probe_core.specs import MetricSpec


@hookimpl
def probe_metrics():
    """One metric with one column."""
    return [
        MetricSpec(
            name="sign_flips",
            summary="share of elements whose sign differs",
            columns=("Sign flips",),
            factory="probe_sample.sign_flips:SignFlips",
        )
    ]
