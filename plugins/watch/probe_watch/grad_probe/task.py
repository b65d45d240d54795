"""The task grad_probe of a framework's debugger."""

from __future__ import annotations

from probe_recording.api import Config

from probe_watch.grad_probe.recorder import GradRecorder


def new_recorder(config: Config, framework: str) -> GradRecorder:
    """Return the recorder of a framework, which is imported only now."""
    if framework == "mindspore":
        from probe_watch.grad_probe.mindspore import MindSporeGradRecorder

        return MindSporeGradRecorder(config)
    from probe_watch.grad_probe.pytorch import TorchGradRecorder

    return TorchGradRecorder(config)
