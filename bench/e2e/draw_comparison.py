#!/usr/bin/env python3
"""Draws what compare_llamacpp.py measured as an SVG: draw_comparison.py IN.json OUT.svg

One group of bars per measure, each on a scale of its own: bars are medians, the lines on them reach
from the least to the most of the runs.
"""

from __future__ import annotations

from html import escape
from typing import Any

from svg import TEXT, draw_file, picture, text

GROUP_WIDTH, BAR_WIDTH, BAR_GAP = 190, 56, 12
PLOT_HEIGHT, TOP, BOTTOM = 170, 54, 62
MARGIN = 16
ENGINES = (("hearth", "Hearth", "#d1603d"), ("llamacpp", "llama.cpp", "#8a94a0"))


def bar(x: float, speeds: dict[str, Any], most: float, color: str) -> list[str]:
    """A bar with its range and, above both, its median."""
    def y(value: float) -> float:
        return TOP + PLOT_HEIGHT * (1 - value / most)

    middle = x + BAR_WIDTH / 2
    top = y(speeds["median"])
    return [f'<rect x="{x:.1f}" y="{top:.1f}" width="{BAR_WIDTH}" '
            f'height="{TOP + PLOT_HEIGHT - top:.1f}" fill="{color}"/>',
            f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{y(speeds["min"]):.1f}" '
            f'y2="{y(speeds["max"]):.1f}" stroke="{TEXT}" stroke-width="1.5"/>',
            text(middle, y(speeds["max"]) - 5, f"{speeds['median']:.1f}", weight="bold")]


def group(row: dict[str, Any], left: float) -> list[str]:
    most = 1.1 * max(row[engine]["max"] for engine, _, _ in ENGINES)
    x = left + (GROUP_WIDTH - 2 * BAR_WIDTH - BAR_GAP) / 2
    shapes = []
    for engine, name, color in ENGINES:
        shapes += bar(x, row[engine], most, color)
        shapes.append(text(x + BAR_WIDTH / 2, TOP + PLOT_HEIGHT + 16, name, 11))
        x += BAR_WIDTH + BAR_GAP
    middle = left + GROUP_WIDTH / 2
    what = f"{row['phase']}, {row['tokens']} tokens"
    shapes.append(text(middle, TOP + PLOT_HEIGHT + 36, what, 13, weight="bold"))
    shapes.append(text(middle, TOP + PLOT_HEIGHT + 53, f"{row['ratio']['median']:.2f} times", 11))
    return shapes


def draw(result: dict[str, Any]) -> str:
    rows = result["measures"]
    width = 2 * MARGIN + GROUP_WIDTH * len(rows)
    height = TOP + PLOT_HEIGHT + BOTTOM
    base = TOP + PLOT_HEIGHT
    shapes = [
        f"<title>Tokens per second of {escape(result['model'])}</title>",
        text(MARGIN, 22, f"Tokens per second, {result['model']}", 14, "start", "bold"),
        text(MARGIN, 40, f"{result['threads']} threads, medians of {result['repetitions']} runs "
             f"taken in turn; lines: least to most", 11, "start"),
        f'<line x1="{MARGIN}" x2="{width - MARGIN}" y1="{base}" y2="{base}" stroke="{TEXT}"/>',
    ]
    for index, row in enumerate(rows):
        shapes += group(row, MARGIN + index * GROUP_WIDTH)
    return picture(width, height, shapes)


if __name__ == "__main__":
    draw_file(draw, __doc__)
