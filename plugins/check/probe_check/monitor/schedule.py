"""The steps that are observed (docs/monitor.md#steps)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from probe_recording.messages import note

from probe_check.monitor.settings import MonitorSettings, load_settings
from probe_core.errors import UserError
from probe_core.files.atomic import write_text
from probe_core.files.user_files import load_object

DYNAMIC_VARIABLE = "DYNAMIC_MONITOR"


def is_dynamic() -> bool:
    """Return True if the configuration is read again during the training."""
    return os.environ.get(DYNAMIC_VARIABLE, "").lower() == "true"


class Schedule:
    """The observed steps of one configuration.

    Args:
        settings: The configuration.
        first_step: The first step that may be observed.
    """

    def __init__(self, settings: MonitorSettings, first_step: int) -> None:
        self._settings = settings
        self._first_step = first_step
        self._observed_count = 0

    def includes(self, step: int) -> bool:
        """Return True if a step is observed."""
        offset = step - self._first_step
        return offset >= 0 and offset % self._settings.step_interval == 0 and not self.is_finished

    def count_step(self) -> None:
        """Count a step that was observed."""
        self._observed_count += 1

    @property
    def is_finished(self) -> bool:
        """True if ``collect_times`` steps were observed."""
        return self._observed_count >= self._settings.collect_times


class ConfigurationFile:
    """The configuration file of a training that is switched on and off while it runs.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._modified: float | None = None

    def load_changed_settings(self) -> MonitorSettings | None:
        """Return the settings if the file was changed and ``dynamic_on`` is true; otherwise None.

        A file that cannot be used is reported, and the monitor continues as before.
        """
        try:
            modified = self.path.stat().st_mtime
            if modified == self._modified:
                return None
            self._modified = modified
            settings = load_settings(self.path)
        except UserError as error:
            note(f"probe: the changed configuration is not used: {error.what}")
            return None
        except OSError as error:
            note(f"probe: the configuration {self.path} cannot be read: {error.strerror}.")
            return None
        return settings if settings.is_on("dynamic_on") else None

    def switch_off(self) -> None:
        """Set ``dynamic_on`` to false in the file."""
        try:
            values = load_object(self.path, "configuration") | {"dynamic_on": False}
            write_text(self.path, json.dumps(values, indent=2))
            self._modified = self.path.stat().st_mtime
        except (UserError, OSError) as error:
            note(f'probe: "dynamic_on" is not set to false in {self.path}: {error}.')
