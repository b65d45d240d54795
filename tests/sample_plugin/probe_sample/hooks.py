"""Hooks of the sample plugin; probe imports them at every start, so they import nothing heavy."""

from probe_precheck.api import StandardSpec

from probe_core.model import Mode
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.parameters import Parameter
from probe_core.plugins.specs import JudgeSpec, MetricSpec, PolicySpec, ReporterSpec


@hookimpl
def probe_metrics():
    """Return one metric with one column."""
    return [
        MetricSpec(
            name="sign_flips",
            summary="share of elements whose sign differs",
            columns=("Sign flips",),
            factory="probe_sample.sign_flips:SignFlips",
        )
    ]


@hookimpl
def probe_policies():
    """Return one policy that judges by that metric, for runs with tensors."""
    return [
        PolicySpec(
            name="few_flips",
            summary="few elements change their sign",
            standard="sample",
            metrics=("sign_flips",),
            modes=(Mode.TENSOR,),
            factory="probe_sample.few_flips:FewFlips",
            parameters=(Parameter("share", float, "largest share that may change, 0 unless given"),),
        )
    ]


@hookimpl
def probe_judges():
    """Return one judge that comes after those of probe."""
    return [JudgeSpec("masks", "skips random masks", "probe_sample.masks:Masks", order=200)]


@hookimpl
def probe_reasons():
    """Return the text that tables show for the policy's reason."""
    from probe_reporters.api import Text

    return {"flipped": Text("Signs flip: {}.", rank=35)}


@hookimpl
def probe_reporters():
    """Return one reporter."""
    bold = Parameter("bold", bool, "bold headers, false unless given")
    return [ReporterSpec("markdown", "Markdown", "probe_sample.markdown:Markdown", ".md", parameters=(bold,))]


@hookimpl
def probe_standards():
    """Return one standard of the pre-check, with a column of its own and a list of the APIs that it judges."""
    return [
        StandardSpec(
            name="same_signs",
            summary="no more signs flip than on the trusted device",
            factory="probe_sample.sign_standard:SameSigns",
            label="符号比对法",
            english_label="Same Signs",
            apis="probe_sample:apis.yaml",
            columns=(("sign_flip_share", "符号错误占比", "Sign Flip Share"),),
        )
    ]
