"""Hooks that are left out of pickles: an interruption while one is removed must not break what comes after."""

from __future__ import annotations

import copy
import copyreg
import pickle
from collections import OrderedDict

import pytest
import torch
from probe_pytorch.capture import transient_hooks


def hook(module: torch.nn.Module, given: object, returned: object) -> None:
    """Do nothing."""


def test_an_interruption_while_a_hook_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = copyreg.dispatch_table.get(OrderedDict)
    model = torch.nn.Linear(2, 2)
    first = transient_hooks.exclude_from_copies(model.register_forward_hook(hook))

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(transient_hooks, "_restore_reducer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            transient_hooks.remove_hook(first)
    ordered = OrderedDict(a=1)
    assert pickle.loads(pickle.dumps(ordered)) == ordered
    second = transient_hooks.exclude_from_copies(model.register_forward_hook(hook))
    assert pickle.loads(pickle.dumps(ordered)) == ordered
    assert second.id not in copy.deepcopy(model)._forward_hooks
    transient_hooks.remove_hook(second)
    assert copyreg.dispatch_table.get(OrderedDict) is before
    assert second.id not in model._forward_hooks
