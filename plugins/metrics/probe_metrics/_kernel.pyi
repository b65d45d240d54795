from typing import Any

def measure(
    target: Any,
    golden: Any,
    target_code: int,
    golden_code: int,
    ulp_limit: float,
    threads: int,
    totals: tuple[float, float, float, float, float, float, float, float] = ...,
    /,
) -> tuple[Any, ...]: ...
def measure_many(
    requests: list[tuple[Any, Any, int, int, float]], threads: int, /
) -> list[tuple[Any, ...]]: ...
def watch(memory: Any, /) -> int: ...
def unwatch(number: int, /) -> None: ...
def torn(number: int, /) -> bool: ...
