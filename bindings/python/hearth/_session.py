"""A text that goes on."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ._errors import Error, ErrorCode
from ._generation import Generation
from ._model import Model
from ._types import Result, Sampling


class Session:
    """What a text holds so far, and continuations of it.

    What was computed before is usually found in the KV cache, so that a continuation costs what is
    new. One thread at a time, but for `cancel`.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._history: tuple[int, ...] = ()
        self._current: weakref.ref[Generation] | None = None
        self._turn = object()  # another one for each generation
        self._is_cancelled = False

    @property
    def model(self) -> Model:
        return self._model

    @property
    def history(self) -> tuple[int, ...]:
        """All tokens so far."""
        return self._history

    def truncate(self, length: int) -> None:
        """Drops tokens from the end."""
        self._refuse_while_generating()
        self._turn = object()
        self._history = self._history[:max(length, 0)]

    def generate(self, prompt: str | Sequence[int] = (), *, max_tokens: int = 256,
                 sampling: Sampling | None = None, stop: Sequence[str] = (),
                 top_logprobs: int | None = None,
                 json_schema: str | Mapping[str, Any] | None = None) -> Generation:
        """Adds the prompt and generates as `Model.generate` does; what comes is added too.

        Both are added when the generation is iterated to its end, closed, or asked for its
        `result()`; one that fails or is dropped adds nothing. One at a time.
        """
        self._refuse_while_generating()
        self._is_cancelled = False
        added = self._model._tokens_of(prompt, "prompt", as_prompt=not self._history)
        tokens = (*self._history, *added)

        self._turn = turn = object()

        def keep(result: Result) -> None:
            if self._turn is turn:
                # The last token of a full context is not remembered.
                self._history = (*tokens, *result.tokens)[:self._model.info.context]

        generation = Generation(
            self._model,
            self._model._start(tokens, max_tokens, sampling, stop, top_logprobs, json_schema), keep)
        self._current = weakref.ref(generation)
        if self._is_cancelled:  # while it was started
            generation.cancel()
        return generation

    def cancel(self) -> None:
        """Ends what it generates, within one token; from any thread. Else without effect."""
        self._is_cancelled = True
        generation = self._current() if self._current is not None else None
        if generation is not None:
            generation.cancel()

    def _refuse_while_generating(self) -> None:
        generation = self._current() if self._current is not None else None
        if generation is not None and not generation.is_over:
            raise Error("the session is generating: close that first", ErrorCode.INVALID_ARGUMENT)
