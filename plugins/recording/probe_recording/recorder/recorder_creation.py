"""Creation of a framework's recorder by other plugins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from probe_core.errors import UserError
from probe_recording.recorder.recorder import Recorder
from probe_recording.settings.config import Config


def new_recorder(config: Config, framework: str) -> Recorder[Any]:
    """Return a recorder of a framework, which records whatever models are called.

    Args:
        config: The settings of the recording.
        framework: The name of the framework.

    Raises:
        UserError: No installed plugin records the framework.
        PluginError: The framework cannot be imported.
    """
    from probe_recording.installed import find_spec  # loads the plugins
    from probe_recording.specs import RecorderSpec

    spec = find_spec("recorders", RecorderSpec, framework)
    if spec is None:
        raise UserError(
            f"No installed plugin records {framework}.", f"Install the distribution for it: probe-{framework}."
        )
    recorder = replace(spec, values={"config": config, "finds_models": True}).make()
    assert isinstance(recorder, Recorder)
    return recorder
