"""The evidence of a verdict as text."""

from __future__ import annotations

from probe_core.model import Drift, Quantity, Verdict


def format_evidence_texts(verdict: Verdict) -> list[str]:
    """Return the evidence of a verdict for the summary; ``drift`` stands for the distance of the verdict."""
    texts: list[str] = []
    for code, detail in verdict.reasons:
        if code == "drift" and verdict.drift is not None:
            texts.append(format_drift(verdict.drift))
        elif code == "evidence":
            texts.append(detail)
    return texts


def format_drift(drift: Drift) -> str:
    """Return the text of a distance that rounding does not explain."""
    difference, scale, noise, _, quantity = drift
    kind = Quantity(int(quantity))
    is_rms = kind in (Quantity.RMS, Quantity.UNMASKED_RMS)
    shown = "" if kind is Quantity.RMS else f"{kind.name.lower().replace('_', ' ')} "
    explained = f"rounding explains at most {noise:.2g}" if noise else "nothing is rounded"
    if scale:
        unit = "root mean square" if is_rms else "largest magnitude"
        relative = drift.relative_to(scale)
        return f"{shown}off by {relative:.3g} times the golden's {unit}; {explained}"
    exactly = "" if noise else f"; {explained}"  # rounding is relative, and has no limit beside zero
    return f"{shown}off by {difference:.3g}, where the golden is zero{exactly}"
