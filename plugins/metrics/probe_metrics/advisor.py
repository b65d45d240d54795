"""What to do about the first row that fails."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from probe_core.model import Advice, Side, Suspect
from probe_core.report import Report

NOTHING = "NA"


def advise(report: Report) -> Advice:
    """Advice on the first failing row, with its line in the sheet counted from 1 (spec/compare 10).

    Scalars that differ count as failing (decision D20).
    """
    suspect = report.first_failure
    if suspect is None:
        return Advice(NOTHING, NOTHING, _texts()["met"])
    return Advice(suspect.line, suspect.row, _text(suspect))


def _text(suspect: Suspect) -> str:
    texts = _texts()
    takes_in = suspect.side.is_source
    name = suspect.row
    if suspect.side is Side.DEBUG:
        return str(texts["saved"])
    forward = "forward" in suspect.op
    if "Functional.batch_norm" in name and name.endswith("forward.input.1"):
        return str(texts["batch_norm"])
    if takes_in:
        return str(texts["forward_input" if forward else "backward_input"])
    if any(api in name for api in texts["may_be_random"]):
        return str(texts["deterministic"])
    return str(texts["forward" if forward else "backward"])


@cache
def _texts() -> dict[str, Any]:
    import yaml

    loaded: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("advice.yaml").read_text("utf-8"))
    return loaded
