#!/usr/bin/env python3
"""Draws what kv_flash.py measured as an SVG (M Figure 2): draw_kv_flash.py IN.json OUT.svg

Milliseconds per token over the tokens whose keys and values lie on flash, both axes logarithmic:
from memory, from flash, and of reading alone. The bar is 1.25 times the longer of the first and the
last.
"""

from __future__ import annotations

import math
from typing import Any

from svg import TEXT, draw_file, key, picture, polyline, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 340, 56, 140, 48, 48
BAR = 1.25
COLORS = {"from memory": "#3d7fd1", "from flash": "#d1603d", "reading alone": "#8a94a0",
          "the bar": "#c9a227"}


def lines(rows: list[list[Any]]) -> dict[str, list[tuple[float, float]]]:
    """Of each kind, tokens on flash and milliseconds."""
    tokens = [float(row[3]) for row in rows]
    memory = [row[4]["median"] for row in rows]
    flash = [row[5]["median"] for row in rows]
    reading = [float(row[6]) for row in rows]
    bar = [BAR * max(pair) for pair in zip(memory, reading)]
    return {name: list(zip(tokens, values))
            for name, values in zip(COLORS, (memory, flash, reading, bar))}


class Scale:
    """From tokens and milliseconds to points of the picture."""

    def __init__(self, curves: dict[str, list[tuple[float, float]]]) -> None:
        points = [point for curve in curves.values() for point in curve]
        self.tokens = [math.log2(edge([x for x, _ in points])) for edge in (min, max)]
        self.ms = [math.floor(math.log2(min(y for _, y in points))),
                   math.ceil(math.log2(max(y for _, y in points)))]

    def x(self, tokens: float) -> float:
        low, high = self.tokens
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(tokens) - low) / (high - low)

    def y(self, ms: float) -> float:
        low, high = self.ms
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log2(ms)) / (high - low)


def draw(result: dict[str, Any]) -> str:
    curves = lines(result["rows"])
    scale = Scale(curves)
    right, base = WIDTH - RIGHT, HEIGHT - BOTTOM
    shapes = [text(LEFT, 20, f"{result['model']} with keys and values on flash "
                   f"({result['machine']})", 13, "start"),
              text(LEFT, TOP - 8, "ms per token", anchor="start"),
              text((LEFT + right) / 2, HEIGHT - 10, "tokens on flash")]
    for power in range(scale.ms[0], scale.ms[1] + 1):
        y = scale.y(2.0 ** power)
        shapes += [f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>',
                   text(LEFT - 8, y + 4, str(2 ** power), 11, "end")]
    for tokens, _ in curves["from flash"]:
        shapes.append(text(scale.x(tokens), base + 18, f"{tokens:,.0f}", 11))
    for place, (name, curve) in enumerate(curves.items()):
        line = [(scale.x(tokens), scale.y(ms)) for tokens, ms in curve]
        shapes += [polyline(line, COLORS[name], "5 4" if name == "the bar" else ""),
                   *key(right + 14, TOP + 18 * place, COLORS[name], name)]
    shapes.append(f'<line x1="{LEFT}" x2="{right}" y1="{base}" y2="{base}" stroke="{TEXT}"/>')
    return picture(WIDTH, HEIGHT, shapes)


if __name__ == "__main__":
    draw_file(draw, __doc__)
