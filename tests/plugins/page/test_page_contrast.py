"""The colours of the page: enough contrast in both themes, computed from the style's variables."""

from __future__ import annotations

import re

import pytest
from probe_page.templates import read_asset

TEXT, PICTURE = 4.5, 3.0
"""Smallest ratios of WCAG AA: for text, and for what a picture needs to be understood."""
ON = {
    "text": ("ground", "panel", "active", "code"),
    "muted": ("ground", "panel", "active", "code"),
    "blue": ("ground", "panel", "active"),
    "red": ("ground", "panel", "red-ground"),
    "green": ("ground", "panel", "green-ground"),
    "amber": ("ground", "panel", "amber-ground"),
}
DRAWN = ("red", "blue", "green", "amber", "violet", "muted", "bars")


def themes() -> dict[str, dict[str, str]]:
    """Return the variables of each block of the style that sets them."""
    found = {}
    for selector, body in re.findall(r"(:root[^{,]*)\{([^}]*)\}", read_asset("page.css")):
        variables = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]+)", body))
        if "ground" in variables:
            found[f"{len(found)} {selector.strip()}"] = variables
    return found


def light(colour: str) -> float:
    """Return the relative luminance of a colour."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear))


def ratio(first: str, second: str) -> float:
    """Return the contrast of two colours."""
    high, low = sorted((light(first), light(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, ground: str, share: float) -> str:
    """Return the colour of which a share covers a ground."""
    parts = [[int(one[place : place + 2], 16) for place in (1, 3, 5)] for one in (colour, ground)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(*parts))


def test_the_themes_are_those_of_the_style() -> None:
    blocks = list(themes().values())
    assert len(blocks) == 4  # light, dark by the system, dark by the button, print
    assert blocks[1] == blocks[2] and blocks[3] == blocks[0]
    assert all(block.keys() == blocks[0].keys() for block in blocks)


@pytest.mark.parametrize("theme", themes())
def test_texts_have_enough_contrast(theme: str) -> None:
    colours = themes()[theme]
    poor = {
        (name, ground): ratio(colours[name], colours[ground])
        for name, grounds in ON.items()
        for ground in grounds
        if ratio(colours[name], colours[ground]) < TEXT
    }
    assert poor == {}


@pytest.mark.parametrize("theme", themes())
def test_pictures_have_enough_contrast(theme: str) -> None:
    colours = themes()[theme]
    poor = {name: ratio(colours[name], colours["ground"]) for name in DRAWN}
    assert {name: found for name, found in poor.items() if found < PICTURE} == {}


@pytest.mark.parametrize("theme", themes())
def test_the_numbers_of_a_heat_map_can_be_read(theme: str) -> None:
    colours = themes()[theme]
    shares = [int(share) / 100 for share in re.findall(r"var\(--red\) (\d+)%", read_asset("page.css"))]
    assert len(shares) == 5
    for share in shares:
        ground = mixed(colours["red"], colours["ground"], share)
        assert ratio(colours["text"], ground) >= TEXT, share
