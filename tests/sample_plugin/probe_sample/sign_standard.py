"""A third-party standard of the pre-check, imported when it is asked for."""

import numpy as np
from probe_precheck import Judgement, Message, Status


class SameSigns:
    """No more elements on the wrong side of zero than on the device to trust."""

    def measure(self, output, release):
        """The share of elements above zero on one side and below on the other."""
        flips = np.sign(output.bench.values) * np.sign(output.device.values) < 0
        return {"sign_flip_share": float(np.count_nonzero(flips) / flips.size)}

    def judge(self, npu, gpu, release):
        """Pass, or an error with both shares."""
        ours, theirs = npu["sign_flip_share"], gpu["sign_flip_share"]
        if ours <= theirs:
            return Judgement(Status.PASS, {})
        return Judgement(
            Status.ERROR, {}, (Message(f"ERROR: 符号错误 {ours}, {theirs}", f"signs flip: {ours}, {theirs}"),)
        )
