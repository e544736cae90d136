"""A text that goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import _arguments
from ._errors import Error, ErrorCode
from ._generation import AsyncGeneration, Generation
from ._model import Model
from ._native import AnswerForm, Stream
from ._types import GenerateOptions, Result

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Session:
    """What a text holds so far, and continuations of it.

    What was computed before is usually found in the KV cache, so that a continuation costs what is
    new. One thread at a time, but for `cancel`.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._history: tuple[int, ...] = ()
        self._current: weakref.ref[Generation | AsyncGeneration] | None = None
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

    def generate(self, prompt: str | Sequence[int] = (),
                 **options: Unpack[GenerateOptions]) -> Generation:
        """Adds the prompt and generates as `Model.generate` does; what comes is added too.

        Both are added when the generation is iterated to its end, closed, or asked for its
        `result()`; one that fails or is dropped adds nothing. One at a time.
        """
        start, keep = self._begin(prompt, options)
        generation = Generation(self._model, start(), options.get("progress"), keep)
        self._current = weakref.ref(generation)
        if self._is_cancelled:  # while it was started
            generation.cancel()
        return generation

    def agenerate(self, prompt: str | Sequence[int] = (),
                  **options: Unpack[GenerateOptions]) -> AsyncGeneration:
        """As `generate`, for asyncio."""
        start, keep = self._begin(prompt, options)
        generation = AsyncGeneration(self._model, start, options.get("progress"), keep)
        self._current = weakref.ref(generation)
        return generation

    def _begin(self, prompt: str | Sequence[int], options: GenerateOptions
               ) -> tuple[Callable[[], Stream], Callable[[Result], None]]:
        """What starts a generation, and what keeps its result."""
        self._refuse_while_generating()
        self._is_cancelled = False
        request = _arguments.request(options)
        history = self._history
        read = self._model._reader(prompt, as_prompt=not history)
        self._turn = turn = object()
        tokens = history

        def start() -> Stream:
            nonlocal tokens
            tokens = (*history, *read())
            return self._model._native.start(tokens, request, AnswerForm())

        def keep(result: Result) -> None:
            if self._turn is turn:
                # The last token of a full context is not remembered.
                self._history = (*tokens, *result.tokens)[:self._model.info.context]

        return start, keep

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
