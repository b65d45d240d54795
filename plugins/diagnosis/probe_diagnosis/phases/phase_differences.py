"""Statements on what a phase of a step shows, with their evidence (docs/diagnosis.md#step-phases)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.phases.optimizer_steps import OptimizerStep
from probe_diagnosis.phases.phase_distances import PhaseDistances, load_limits, measure_distances
from probe_diagnosis.phases.phases_file import Setting, StepPhase

Evidence = dict[str, "float | int | str"]

UNTIL_BACKWARD, AFTER_BACKWARD = "before", "behind"
"""Parts of a step: up to the backward pass, and from its gradients to the end."""


@dataclass(frozen=True, slots=True)
class PhaseDifference:
    """A phase of a step that differs.

    Attributes:
        step_phase: The phase that shows it.
        part: ``UNTIL_BACKWARD`` or ``AFTER_BACKWARD``.
        statement: A clause on it that can stand alone.
        is_effective: True if values differ by it beyond rounding.
        evidence: The numbers behind it.
        where: The line of code, if it is not that of the phase.
        optimizer_step: The number of steps of optimizers before it.
    """

    step_phase: StepPhase
    part: str
    statement: Statement
    is_effective: bool = True
    evidence: Evidence = field(default_factory=dict)
    where: str = ""
    optimizer_step: int = 0


def describe_stage(
    stage: str,
    target: OptimizerStep,
    golden: OptimizerStep,
    phase_distances: PhaseDistances,
    names: Sequence[str],
    agree: str,
) -> PhaseDifference:
    """Return the stage at which gradients differ that agreed before."""
    shown = format_worst(phase_distances, names)
    numbers = build_evidence(phase_distances, names)
    step_phase = next(
        (step_phase for step_phase in target.find_phases(stage)[::-1] if names[0] in step_phase.values), target.applied
    )
    where = target.line
    if stage == "accumulated":
        return _describe_accumulation(target, golden, step_phase, shown, numbers)
    if stage == "reduced":
        clause = f"gradients {agree} before their reduction over the ranks, and differ after it"
        return PhaseDifference(step_phase, AFTER_BACKWARD, Statement(clause, "", shown), evidence=numbers, where=where)
    factor = _find_factor(phase_distances)
    times = f": all {len(phase_distances.multiples)} are {factor:.6g} times the golden's" if factor else ""
    changed, line = _describe_clipping(target, golden)
    clause = (
        f"gradients {agree} at the end of the backward pass, and differ when "
        f"{target.applied.subject} takes them{times}{changed}"
    )
    if factor:
        numbers["factor"] = factor
    return PhaseDifference(
        step_phase, AFTER_BACKWARD, Statement(clause, "", shown), evidence=numbers, where=line or where
    )


def _describe_accumulation(
    target: OptimizerStep, golden: OptimizerStep, step_phase: StepPhase, shown: str, evidence: Evidence
) -> PhaseDifference:
    """Return that a backward pass adds its gradients to earlier ones, in one run if there is such a pass."""
    name = str(evidence["step_phase_parameter"])
    target_passes, golden_passes = target.find_accumulations(name), golden.find_accumulations(name)
    only = sorted(target_passes.keys() ^ golden_passes.keys())
    if not only:
        clause = "both runs add the gradients of this backward pass to earlier ones, and the sums differ"
    else:
        who, other = ("target", "golden") if only[0] in target_passes else ("golden", "target")
        step_phase = target_passes.get(only[0], step_phase)
        clause = (
            f"the {who} adds the gradients of this backward pass to earlier ones, the {other} does not, "
            "and the sums differ"
        )
    losses = target.find_phases("loss") or [step_phase]
    loss = losses[only[0]] if only and only[0] < len(losses) else losses[-1]
    return PhaseDifference(
        step_phase, AFTER_BACKWARD, Statement(clause, "", shown), evidence=evidence, where=loss.where
    )


def _find_factor(phase_distances: PhaseDistances) -> float:
    """Return the factor between the norms of all gradients, if there is one; else 0."""
    factors = []
    for name in phase_distances.multiples:
        target, golden = phase_distances.target[name], phase_distances.golden[name]
        if target is not None and golden is not None and golden.statistics[3]:
            factors.append(target.statistics[3] / golden.statistics[3])
    if len(factors) < 2 or min(factors) <= 0:
        return 0.0
    middle = sorted(factors)[len(factors) // 2]
    return middle if max(factors) - min(factors) <= load_limits()["one_factor"] * middle else 0.0


def _describe_clipping(target: OptimizerStep, golden: OptimizerStep) -> tuple[str, str]:
    """Return a clause on clipping and unscaling that differ, with its line of code; else empty texts."""
    changes = [
        [step_phase for step_phase in side.phases if step_phase.name in ("unscaled", "clipped")]
        for side in (target, golden)
    ]
    call_texts = [[_format_call(step_phase) for step_phase in side] for side in changes]
    if call_texts[0] == call_texts[1]:
        for first, second in zip(*changes):
            phase_distances = measure_distances(first.values, second.values, 0.0)
            if names := phase_distances.find_differing(0.0):
                return f"; {_format_call(first)} meets another {phase_distances.format_value(names[0])}", first.where
        return "", ""
    line = next((step_phase.where for step_phase in (*changes[0], *changes[1]) if step_phase.where), "")
    if not call_texts[1] or not call_texts[0]:
        who, other_run = ("target", "golden") if call_texts[0] else ("golden", "target")
        calls = ", ".join(call_texts[0] or call_texts[1])
        return f"; between these, the {who} calls {calls}, the {other_run} does not", line
    return f"; the target calls {', '.join(call_texts[0])}, the golden {', '.join(call_texts[1])}", line


def _format_call(step_phase: StepPhase) -> str:
    """Return a call of clipping or unscaling as text."""
    if step_phase.name == "unscaled":
        return "GradScaler.unscale_"
    limits_of = [f"{key}={format_setting(value)}" for key, value in step_phase.facts.items() if key != "function"]
    return f"{step_phase.subject}({', '.join(limits_of)})"


def describe_unchanged(target: OptimizerStep, golden: OptimizerStep) -> Iterator[PhaseDifference]:
    """Yield that a step left far more elements unchanged than the golden's did, or far fewer."""
    step_phases = target.find_last_phase("parameters_after"), golden.find_last_phase("parameters_after")
    if step_phases[0] is None or step_phases[1] is None:
        return
    counts = [
        [sum(pair[n] for pair in step_phase.unchanged.values()) for n in (0, 1)]
        for step_phase in step_phases
        if step_phase
    ]
    if not counts[0][1] or counts[0][1] != counts[1][1]:
        return
    shares = [count / size for count, size in counts]
    if abs(shares[0] - shares[1]) < load_limits()["unchanged"]:
        return
    kinds = [
        ", ".join(sorted({v.dtype for v in step_phase.values.values() if v}))
        for step_phase in step_phases
        if step_phase
    ]
    dtypes = f"; they are of {kinds[0]}, the golden's of {kinds[1]}" if kinds[0] != kinds[1] else ""
    text = (
        f"{target.applied.subject} leaves {shares[0]:.0%} of {counts[0][1]:,} sampled elements of its "
        f"parameters unchanged, the golden's {shares[1]:.0%}{dtypes}"
    )
    evidence: Evidence = {"unchanged": shares[0], "golden_unchanged": shares[1], "sampled": counts[0][1]}
    yield PhaseDifference(step_phases[0], AFTER_BACKWARD, Statement(text), False, evidence, target.line)


def build_evidence(phase_distances: PhaseDistances, names: Sequence[str]) -> Evidence:
    """Return the evidence of values that differ, the worst first."""
    return {
        "step_phase_parameter": names[0],
        "step_phase_differing": len(names),
        "step_phase_compared": len(phase_distances.multiples),
        "step_phase_times_rounding": phase_distances.multiples[names[0]],
    }


def format_worst(phase_distances: PhaseDistances, names: Sequence[str]) -> str:
    """Return the value that differs most, with the number of the others."""
    return phase_distances.format_value(names[0]) + (f"; {len(names) - 1} more differ" if len(names) > 1 else "")


def format_setting(value: Setting) -> str:
    """Return a setting as text."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(format_setting, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
