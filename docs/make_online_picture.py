"""Write the picture of the online pre-check, who talks to whom: ``python docs/make_online_picture.py [OUT]``.

OUT is ``docs/images/online.svg`` by default. Nothing beside Python is needed.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

OUT = Path(__file__).resolve().parent / "images" / "online.svg"
WIDTH, HEIGHT = 960, 430
INK, QUIET, LINE = "#1f2430", "#5b6474", "#8a93a3"
MACHINE, TRAINING, RECEIVER, FILES = "#f3f5f9", "#dbe7fb", "#dcf1e2", "#fff2d6"
STYLE = "text{font-family:system-ui,sans-serif;font-size:14px}.small{font-size:12px}.bold{font-weight:600}"


def box(x: int, y: int, width: int, height: int, fill: str, *lines: str) -> str:
    """Return a box with centred lines of text, the first of them bold."""
    middle = y + height / 2 - 9 * (len(lines) - 1) + 5
    texts = "".join(
        text(x + width // 2, round(middle + 18 * place), line, "small" if place else "bold")
        for place, line in enumerate(lines)
    )
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{LINE}"/>\n{texts}'


def text(x: int, y: int, line: str, kind: str = "", anchor: str = "middle") -> str:
    """Return a line of text."""
    colour = QUIET if kind == "small" else INK
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}" class="{kind}">{escape(line)}</text>\n'


def arrow(*points: tuple[int, int], dashed: bool = False) -> str:
    """Return a line through points with a head at its end."""
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    path = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.5" marker-end="url(#head)"{dashes}/>\n'
    )


def picture() -> str:
    """Return the picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Trainings send calls to a receiver, through TCP or a shared directory; the receiver '
        'judges them and writes csv files">\n',
        f'<style>{STYLE}</style>\n<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" '
        f'markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{INK}"/>'
        "</marker></defs>\n",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="white"/>\n',
        f'<rect x="16" y="16" width="280" height="398" rx="8" fill="{MACHINE}"/>\n',
        text(156, 40, "training machine", "bold"),
        f'<rect x="500" y="16" width="444" height="398" rx="8" fill="{MACHINE}"/>\n',
        text(722, 40, "checking machine", "bold"),
    ]
    for rank in (0, 1):
        top = 60 + 130 * rank
        parts += [
            box(32, top, 112, 100, TRAINING, f"rank {rank}", "training", "+ recorder"),
            arrow((144, top + 50), (174, top + 50)),
            box(176, top, 104, 100, TRAINING, "queue", "bounded,", "own thread"),
        ]
    parts += [
        box(32, 330, 248, 66, FILES, "online_rank{r}.json", "sent, dropped, by API"),
        # in a network
        arrow((280, 96), (518, 96)),
        text(398, 86, "calls: record + tensors", "small"),
        arrow((518, 124), (282, 124)),
        text(398, 142, "acknowledgements", "small"),
        text(398, 66, "TCP, with or without TLS", "bold"),
        # through a directory
        box(322, 200, 152, 80, FILES, "shared directory", "a file is a call"),
        arrow((280, 240), (320, 240), dashed=True),
        arrow((474, 240), (518, 180), dashed=True),
        text(398, 304, "or: no network needed", "small"),
        # the receiver
        box(520, 60, 150, 150, RECEIVER, "receiver", "probe run-ut", "--listen, --watch", "or config.json"),
        arrow((670, 95), (716, 95)),
        arrow((670, 175), (716, 175)),
        box(718, 60, 210, 70, RECEIVER, "process on device 0", "runs the call again, judges"),
        box(718, 140, 210, 70, RECEIVER, "process on device 1", "runs the call again, judges"),
        arrow((595, 210), (595, 264)),
        box(520, 266, 408, 76, FILES, "csv files of each rank", "accuracy_checking_…, api_precision_compare_…",
            "rows first, then the acknowledgement"),
        box(520, 354, 408, 46, FILES, "online_{time stamp}.json", "status, first call in error"),
        "</svg>\n",
    ]  # fmt: skip
    return "".join(parts)


def main() -> None:
    """Write the picture."""
    out = Path(sys.argv[1]) if sys.argv[1:] else OUT
    out.write_text(picture(), "utf-8")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
