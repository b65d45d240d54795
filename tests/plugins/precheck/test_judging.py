"""Rows of calls that are part of a backward pass themselves."""

from __future__ import annotations

import numpy as np
from probe_precheck.api import Array, Call, Outcome, Outputs, Status
from probe_precheck.assignment import Assignment
from probe_precheck.checking import create_status_rule
from probe_precheck.judging import CallJudge
from probe_precheck.results import build_result_cells

from probe_core.plugins.manager import Manager


def test_a_call_without_a_forward_has_a_status_of_the_backward_alone() -> None:
    manager = Manager()
    judge = CallJudge(create_status_rule(manager, "pytorch"), Assignment(manager, "guide"))
    values = Array(np.ones(3, np.float32), "torch.float32")
    for device, status in ((values, Status.PASS), (Array(-values.values, "torch.float32"), Status.ERROR)):
        result = judge.judge_call(Call("Aten.mm.0", 0, {}), Outcome(None, Outputs([values], [device])))
        assert (result.forward, result.backward) == (None, status)
        assert [detail.name for detail in result.details] == ["Aten.mm.0.backward.output.0"]
        cells = build_result_cells(result, "en")
        assert cells["forward"].strip() == "" and cells["backward"] == status.value
