"""Calls made on behalf of the line that asked for them, so that a warning names that line.

Python and torch say of a warning which line it came from by counting frames, and show it once for each
such line. The frames of the recorder between a line and what it calls would be counted, too. So what a
line calls is called from a frame that has that line's file, number and variables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import torch
from probe_recording import STAND_IN

DEEPEST = 4
"""Frames that are repeated: those of modules of torch, up to the line that called the outermost one."""

MOST_SITES = 65_536
"""Places that are remembered; a script that makes code while it runs has no end of them."""

_TORCH = str(Path(torch.__file__).parent)
_CALL: CodeType = (lambda function, /, *args, **kwargs: function(*args, **kwargs)).__code__


class _Site(NamedTuple):
    """The code of a frame, kept so that its id stays its own, and the code of its stand-in."""

    code: CodeType
    stand_in: CodeType
    is_torch: bool


_sites: dict[tuple[int, int], _Site] = {}


def called_from(frame: FrameType | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, to be called as if ``frame`` and those around it in torch had called it."""
    for _ in range(DEEPEST):
        if frame is None:
            break
        site = _sites.get((id(frame.f_code), frame.f_lasti)) or _site(frame)
        function = partial(FunctionType(site.stand_in, frame.f_globals), function)
        if not site.is_torch:
            break
        frame = frame.f_back
    return function


def _site(frame: FrameType) -> _Site:
    code = frame.f_code
    stand_in = _CALL.replace(
        co_filename=code.co_filename, co_firstlineno=frame.f_lineno or 1, co_name=STAND_IN
    )
    if len(_sites) >= MOST_SITES:
        _sites.clear()
    site = _Site(code, stand_in, code.co_filename.startswith(_TORCH))
    _sites[id(code), frame.f_lasti] = site
    return site
