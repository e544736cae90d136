#!/usr/bin/env python3
"""Draws what offload.py measured as an SVG: draw_offload.py IN.json OUT.svg

Decode speed over the memory that a run was given, a line per pipeline and one for llama.cpp; the
dashed line is the run with everything in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from svg import TEXT, draw_file, key, picture, polyline, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 150, 48, 48
COLORS = ["#d1603d", "#3d7fd1", "#5a9e57", "#a05fb4", "#8a94a0", "#c9a227"]


class Scale:
    """From gigabytes and tokens per second to points of the picture."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.most_gb = 1.05 * max(row["budget_bytes"] for row in rows) / 1e9
        self.most_speed = 1.1 * max(row["decode"]["max"] for row in rows)

    def x(self, gb: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * gb / self.most_gb

    def y(self, speed: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - speed / self.most_speed)


def axes(scale: Scale) -> list[str]:
    right, base = WIDTH - RIGHT, HEIGHT - BOTTOM
    shapes = [f'<line x1="{LEFT}" x2="{right}" y1="{base}" y2="{base}" stroke="{TEXT}"/>',
              f'<line x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{base}" stroke="{TEXT}"/>',
              text((LEFT + right) / 2, HEIGHT - 10, "memory, GB"),
              text(LEFT, TOP - 8, "tokens per second", anchor="start")]
    for i in range(5):
        gb, speed = scale.most_gb * i / 4, scale.most_speed * i / 4
        shapes.append(text(scale.x(gb), base + 18, f"{gb:.1f}", 11))
        shapes.append(text(LEFT - 8, scale.y(speed) + 4, f"{speed:.1f}", 11, "end"))
    return shapes


def curve(rows: list[dict[str, Any]], name: str, color: str, place: int,
          scale: Scale) -> list[str]:
    points = sorted((row["budget_bytes"] / 1e9, row["decode"]) for row in rows)
    shapes = []
    for gb, decode in points:
        x = scale.x(gb)
        shapes.append(f'<circle cx="{x:.1f}" cy="{scale.y(decode["median"]):.1f}" r="3.5" '
                      f'fill="{color}"/>')
        shapes.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{scale.y(decode["min"]):.1f}" '
                      f'y2="{scale.y(decode["max"]):.1f}" stroke="{color}"/>')
    line = [(scale.x(gb), scale.y(decode["median"])) for gb, decode in points]
    return [*shapes, polyline(line, color), *key(WIDTH - RIGHT + 14, TOP + 18 * place, color, name)]


def draw(result: dict[str, Any]) -> str:
    rows = [row for row in result["settings"] if row["decode"] is not None]
    scale = Scale(rows)
    shapes = [text(LEFT, 20, f"Decoding {Path(result['model']).name} in less memory than it takes, "
                   f"{result['threads']} threads", 13, "start"), *axes(scale)]
    names = dict.fromkeys(row["name"] for row in rows if row["is_limited"])
    for place, name in enumerate(names):
        own = [row for row in rows if row["name"] == name and row["is_limited"]]
        shapes += curve(own, name, COLORS[place % len(COLORS)], place, scale)
    for row in rows:
        if row["is_limited"]:
            continue
        y = scale.y(row["decode"]["median"])
        shapes.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                      f'stroke="{TEXT}" stroke-dasharray="5 4"/>')
        shapes.append(text(WIDTH - RIGHT + 6, y + 4, f"{row['name']} in memory", 11, "start"))
    return picture(WIDTH, HEIGHT, shapes)


if __name__ == "__main__":
    draw_file(draw, __doc__)
