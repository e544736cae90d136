"""One mistake that an engine could make, as a change of the HF side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

# max |delta| / max |reference| that a mutation must exceed; the engine's tolerance is 1e-5.
LEAST_CHANGE = 1e-3
FAINT_CHANGE = 1e-4

Edit = Callable[[nn.Module], None]


@dataclass(frozen=True)
class Mutation:
    """Changes to the HF config, an edit of the built model, or both."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    edit: Edit | None = None
    unmasked: bool = False
    least: float = LEAST_CHANGE
