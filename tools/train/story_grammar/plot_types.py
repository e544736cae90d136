"""The shape of a plot: linked situations carried by a row of beats."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plot:
    """One skeleton.

    A story picks one situation, and every `{s_...}` in the beats is that
    situation's field, so that a cause and its ending always belong together.
    Each beat is a tuple of sentences that say the same thing in other words.
    """

    key: str
    themes: tuple[str, ...]      # how a request may name the plot
    needs_object: bool
    needs_friend: bool
    situations: tuple[dict[str, str], ...]
    beats: tuple[tuple[str, ...], ...]
    why_question: str            # its answer is the situation's field "why"
    summary: str
    lessons: tuple[str, ...]
