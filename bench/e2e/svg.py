"""Pieces of pictures that the drawing scripts share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

TEXT = "#333333"


def text(x: float, y: float, words: str, size: int = 12, anchor: str = "middle",
         weight: str = "normal") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}" fill="{TEXT}">{escape(words)}</text>')


def polyline(points: list[tuple[float, float]], color: str, dashes: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"{dashed}/>'


def key(x: float, y: float, color: str, name: str) -> list[str]:
    """A square of the color, and what it stands for."""
    return [f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{color}"/>',
            text(x + 16, y, name, 12, "start")]


def picture(width: float, height: float, shapes: list[str]) -> str:
    lines = "\n".join([f'<rect width="{width}" height="{height}" fill="white"/>', *shapes])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif">\n{lines}\n</svg>\n')


def draw_file(draw: Callable[[dict[str, Any]], str], description: str | None) -> None:
    """The main function of a script that draws IN.json to OUT.svg."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, metavar="IN.json")
    parser.add_argument("picture", type=Path, metavar="OUT.svg")
    args = parser.parse_args()
    args.picture.write_text(draw(json.loads(args.measured.read_text())))
