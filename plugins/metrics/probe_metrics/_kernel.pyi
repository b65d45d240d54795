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
