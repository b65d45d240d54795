"""Formats, limits and names of ``precision.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache

from probe_core.files.packaged import load_yaml
from probe_core.store.names import get_api_name, is_forward, is_module


class Arrangement(str, Enum):
    """Ways in which a matrix product arranges its inputs."""

    LINEAR = "linear"
    MATMUL = "matmul"
    ADDMM = "addmm"
    CONVOLUTION = "convolution"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PrecisionSettings:
    """The content of ``precision.yaml``, which describes each field.

    Attributes:
        formats: The bits of the significand of each format.
        rounding: The root mean square rounding error, as a share of the largest.
        factors: The largest factor between measured and expected errors, by the evidence.
        scatter: The largest factor between the rounding of one product and the median of all.
        extrema: The expected difference of extrema, as a share of the root mean square error.
        precise: The largest error of full precision, as a multiple of the most precise format.
        explained: The multiple of eps of a format that its rounding explains.
        calls: The least number of calls that are not computed again.
        conditions: The names of conditions that decide how products are rounded.
        recomputed: The largest number of calls that are computed again.
        multiplications: The largest number of multiplications in each of them.
        extent: The largest number of rows and of columns that are computed again.
        coarse_noise: The least noise of values whose dtype is coarser than float32.
        products: The arrangement of each API that is a matrix product, by its name.
        modules: The classes of modules that are matrix products.
    """

    formats: Mapping[str, int]
    rounding: float
    factors: Mapping[str, float]
    scatter: float
    extrema: float
    precise: float
    explained: float
    calls: int
    conditions: frozenset[str]
    recomputed: int
    multiplications: int
    extent: int
    coarse_noise: float
    products: Mapping[str, Arrangement]
    modules: frozenset[str]


@cache
def load_settings() -> PrecisionSettings:
    """Return the content of ``precision.yaml``."""
    content = load_yaml(__package__, "precision.yaml")
    products = {name: Arrangement(arrangement) for arrangement, names in content["products"].items() for name in names}
    names = {name: frozenset(content[name]) for name in ("modules", "conditions")}
    return PrecisionSettings(**{**content, **names, "products": products})


def find_arrangement(key: str) -> Arrangement | None:
    """Return how a forward call arranges the inputs of a matrix product; None for any other call."""
    settings, name = load_settings(), get_api_name(key)
    arrangement = settings.products.get(name.strip("_"))
    if (arrangement is None and name not in settings.modules) or not is_forward(key):
        return None
    if is_module(key):
        return Arrangement.OTHER if name in settings.modules else None
    return arrangement


def is_gradient_of_product(key: str) -> bool:
    """Return True for the backward call of a function that is a matrix product."""
    return key.endswith(".backward") and get_api_name(key).strip("_") in load_settings().products
