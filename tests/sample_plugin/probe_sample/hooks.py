"""What this plugin contributes; imported at every start of probe, so nothing heavy here."""

from probe_precheck import StandardSpec

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import MetricSpec


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


@hookimpl
def probe_standards():
    """One standard of the pre-check, with a column of its own and a list of the APIs that it judges."""
    return [
        StandardSpec(
            name="same_signs",
            summary="no more signs flip than on the device to trust",
            factory="probe_sample.sign_standard:SameSigns",
            label="符号比对法",
            english_label="Same Signs",
            apis="probe_sample:apis.yaml",
            columns=(("sign_flip_share", "符号错误占比", "Sign Flip Share"),),
        )
    ]
