"""Reloads ``config.json`` when it changes during a run (docs/configuration.md#hot-reload)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_recording.messages import note
from probe_recording.settings.config import Config, load_config


class WatchedConfig:
    """A configuration file that is read again when its time or size has changed.

    Args:
        config: The present configuration, read from a file.
        overrides: The top-level fields that replaced those of the file.

    Attributes:
        config: The present configuration.
        is_broken: True if the file changed and is not valid; nothing is recorded then.
    """

    def __init__(self, config: Config, overrides: Mapping[str, Any]) -> None:
        assert config.path is not None
        self.config = config
        self.is_broken = False
        self._path = config.path
        self._overrides = overrides
        self._time_and_size = _read_time_and_size(self._path)

    def update(self) -> bool:
        """Read the file again if it has changed.

        An invalid file is reported once for each change. If ``dump_enable`` was removed from the file, its former
        value stays in effect.

        Returns:
            True if ``config`` has changed.
        """
        time_and_size = _read_time_and_size(self._path)
        if time_and_size is None or time_and_size == self._time_and_size:
            return False
        self._time_and_size = time_and_size
        try:
            config = load_config(self._path, **self._overrides)
        except UserError as error:
            self.is_broken = True
            note(f"{error} Nothing is recorded until the file is valid.")
            return False
        self.is_broken = False
        if config.enabled is None:
            config = replace(config, enabled=self.config.enabled)
        if config == self.config:
            return False
        self.config = config
        return True


def _read_time_and_size(path: Path) -> tuple[int, int] | None:
    """Return the time of the last change of a file in nanoseconds and its size in bytes; None if it is absent."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
