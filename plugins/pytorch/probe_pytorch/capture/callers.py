"""Calls made from frames that imitate the script's line, so that warnings name that line.

Python and torch find the line of a warning by counting frames, and show a warning once for each line. The
recorder's frames between a line and the function that it calls would be counted, too. Therefore functions
are called from a frame with the file, line number and global variables of the script's line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from probe_recording.sites import STAND_IN, use_stack_finder

try:
    from probe_pytorch import _frames
except ImportError:  # there was no C compiler at installation
    _call_from: Any = None
else:
    _call_from = _frames.call_from
    use_stack_finder(_frames.find_stack)

MAX_FRAMES = 4
"""Maximum number of imitated frames: the frames of torch's modules, up to the line that called the outermost module."""

MAX_SITES = 65_536
"""Maximum number of cached lines, which is needed for scripts that create code at run time."""

TORCH_DIRECTORY = str(Path(torch.__file__).parent)
"""The directory of torch."""

ORIGINAL_ATTRIBUTE = "_probe_original"
"""Attribute of a function that replaces a function of torch: the original function."""

_CALL: CodeType = (lambda function, /, *args, **kwargs: function(*args, **kwargs)).__code__


class _Site(NamedTuple):
    """A line that makes calls.

    Attributes:
        code: The code of its frame, kept alive so that its id stays unique.
        stand_in: The code of the frame that imitates it.
        is_torch: True for a line in torch.
    """

    code: CodeType
    stand_in: CodeType
    is_torch: bool


_sites: dict[tuple[int, int], _Site] = {}


def wrap_with_caller(frame: FrameType | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` wrapped so that ``frame``, and frames of torch around it, seem to call it."""
    if _call_from is not None and frame is not None:
        bound: Callable[..., Any] = _call_from(frame, function, _sites, _create_site, MAX_FRAMES)
        return bound
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        site = _sites.get((id(frame.f_code), frame.f_lasti)) or _create_site(frame)
        stand_in = FunctionType(site.stand_in, frame.f_globals)
        function = MethodType(stand_in, function)  # the first argument of the stand-in is the function
        if not site.is_torch:
            break
        frame = frame.f_back
    return function


def _create_site(frame: FrameType) -> _Site:
    code = frame.f_code
    stand_in = _CALL.replace(co_filename=code.co_filename, co_firstlineno=frame.f_lineno or 1, co_name=STAND_IN)
    if len(_sites) >= MAX_SITES:
        _sites.clear()
    site = _Site(code, stand_in, code.co_filename.startswith(TORCH_DIRECTORY))
    _sites[id(code), frame.f_lasti] = site
    return site
