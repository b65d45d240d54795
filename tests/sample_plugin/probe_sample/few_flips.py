"""A third-party policy: few elements may change their sign."""

from probe_core.model import Level, Reason, Verdict


class FewFlips:
    """Policy that fails a pair if a larger share of its elements than ``share`` changes its sign.

    A pair whose signs were not counted is skipped.
    """

    def __init__(self, share=0.0):
        self.share = share

    def judge(self, pair, measurements):
        """Return the verdict on a pair by the metric sign_flips."""
        flips = measurements["sign_flips.Sign flips"].number
        if flips is None:
            return Verdict(Level.SKIP, "", measured=False)
        if flips <= self.share:
            return Verdict(Level.PASS, "few")
        return Verdict(Level.ERROR, "many", (Reason("flipped", f"{flips:.0%} change their sign"),), failed=True)
