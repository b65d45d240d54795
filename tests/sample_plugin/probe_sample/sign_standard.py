"""A third-party standard of the pre-check, imported when it is first used."""

import numpy as np
from probe_precheck.api import Judgement, Message, Status


class SameSigns:
    """Standard that allows no more elements on the wrong side of zero than the trusted device has."""

    def measure(self, output, release):
        """Return the share of elements above zero on one side and below on the other."""
        flips = np.sign(output.bench.values) * np.sign(output.device.values) < 0
        return {"sign_flip_share": float(np.count_nonzero(flips) / flips.size)}

    def judge(self, npu, gpu, release):
        """Return a pass, or an error with both shares."""
        share, trusted = npu["sign_flip_share"], gpu["sign_flip_share"]
        if share <= trusted:
            return Judgement(Status.PASS, {})
        return Judgement(
            Status.ERROR,
            {},
            (Message(f"ERROR: 符号错误 {share}, {trusted}", f"signs flip: {share}, {trusted}"),),
        )
