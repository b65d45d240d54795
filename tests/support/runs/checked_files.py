"""Results of pre-checks written by hand: calls of five APIs on two devices, one of which is wrong."""

from __future__ import annotations

import csv
from pathlib import Path

from support.runs.details_csv import ENGLISH, row, write

TIME = "20260101120000"
APIS = ("Functional.linear", "Functional.softmax", "Torch.exp", "Tensor.mul", "Torch.abs")
CALLS = 6
"""Number of calls of each API."""
WRONG = "Functional.softmax.3"
"""The only call that is wrong on the device, forward and backward; the largest error of all is its forward."""
STATUSES = {"error": 1, "warning": 1, "pass": 27, "SKIP": 1}
"""Number of calls by status: one to check, one skipped."""
TO_CHECK, SKIPPED = "Tensor.mul.2", "Torch.abs.5"


def write_check(directory: Path, *, wrong: bool = True, hostile: str = "") -> Path:
    """Write the result and the details of a device, and return the result.

    Args:
        directory: The directory.
        wrong: False for the trusted device.
        hostile: Text that the message of the wrong call, and the name of an API, hold.
    """
    hostile = " ".join(hostile.replace("\0", "").encode("utf-8", "replace").decode().splitlines())
    names = [f"{api}.{number}" for api in APIS for number in range(CALLS)]
    results, details = [], []
    for place, name in enumerate(names):
        is_wrong = wrong and name == WRONG
        status = "error" if is_wrong else "warning" if name == TO_CHECK else "SKIP" if name == SKIPPED else "pass"
        shown = name.replace("Torch.exp", f"Torch.exp{hostile}")
        message = f"The error is too large. {hostile}" if is_wrong else " "
        results.append([shown, status, " " if status == "SKIP" else status, message])
        for phase in ("forward", "backward") if status != "SKIP" else ():
            error = 1e-7 * (place + 1) * (2e5 if is_wrong else 1) * (2 if phase == "forward" else 1)
            cells = {
                "bench": "torch.float64", "shape": "(8, 16)", "cosine": 1 - error**2, "max_abs": error / 3,
                "binary": min(1.0, error) if is_wrong else 0.0, "balance": 0.0, "rmse": error / 5, "small": error / 9, "max_rel": error,
                "mean_rel": error / 4, "inf_nan": 0.0, "relative": 0.0, "absolute": 0.0, "ulp_max": error * 1e7,
                "ulp_mean": error * 1e6, "ulp_share": error, "status": status, "message": message,
            }  # fmt: skip
            details.append(row(f"{shown}.{phase}.output.0", "float32" if place % 2 else "float16", **cells))
    result = directory / f"accuracy_checking_result_{TIME}.csv"
    write(directory / f"accuracy_checking_details_{TIME}.csv", details, ENGLISH)
    with result.open("w", encoding="utf-8-sig", newline="") as file:
        headers = ["API name", "Forward Test Success", "Backward Test Success", "Message"]
        csv.writer(file).writerows([headers, *results])
    return result


def details_of(result: Path) -> Path:
    return result.with_name(result.name.replace("_result_", "_details_"))
