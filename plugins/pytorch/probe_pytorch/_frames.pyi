from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from probe_recording.sites import Stack

def find_stack(frame: FrameType, stacks: dict[bytes, Stack], add: Callable[[FrameType], Stack], /) -> Stack: ...
def call_from(
    frame: FrameType,
    function: Callable[..., Any],
    sites: dict[tuple[int, int], Any],
    add: Callable[[FrameType], tuple[CodeType, CodeType, bool]],
    depth: int,
    /,
) -> Callable[..., Any]: ...
