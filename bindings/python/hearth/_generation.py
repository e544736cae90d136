"""A text that is being generated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType

from ._errors import Error
from ._native import Stream
from ._types import Result, ScoredToken, TokenScore


class Generation(Iterator[str]):
    """Yields the text as it comes; `result()` waits for all of it.

    It runs from the moment it was asked for, whether or not it is iterated, and ends within one
    token of `close()` or `cancel()`, of leaving its `with` block, of Ctrl-C while it waits, or of
    being dropped. One thread at a time, but for `cancel()`.
    """

    def __init__(self, model: object, stream: Stream,
                 on_result: Callable[[Result], None] | None = None) -> None:
        self._model = model  # which lives until the end, though nobody else may have it
        self._stream = stream
        self._on_result = on_result
        self._text: list[str] = []
        self._result: Result | None = None
        self._is_over = False

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        """The next piece, whole characters. Raises Error for what the request failed of."""
        if self._result is not None:
            raise StopIteration
        try:
            text = self._stream.next()
        except BaseException:  # its error, or Ctrl-C, which has cancelled it
            self._is_over = True
            raise
        if text is None:
            self._finish()
            raise StopIteration
        self._text.append(text)
        return text

    @property
    def text(self) -> str:
        """What was taken so far."""
        return "".join(self._text)

    @property
    def is_over(self) -> bool:
        """It has given all it had, failed, or was interrupted."""
        return self._is_over

    def result(self) -> Result:
        """Waits for the end; the whole text and how it came about. Raises Error.

        An exception of the program's own, such as KeyboardInterrupt, ends the generation.
        """
        try:
            for _ in self:
                pass
            return self._finish()
        except Error:
            raise
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends it within one token, without waiting for that; from any thread."""
        self._stream.cancel()

    def close(self) -> None:
        """Ends it and waits for the end; what came of it, its error too, stays in `result()`."""
        self.cancel()
        with contextlib.suppress(Error):
            self.result()

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _finish(self) -> Result:
        if self._result is None:
            outcome = self._stream.finish()
            tokens = outcome.pop("generated")
            scores = outcome.pop("scores")
            self._result = Result(
                text=self.text, tokens=tuple(tokens),
                scores=tuple(ScoredToken(TokenScore(id, logprob), tuple(TokenScore(*t) for t in top))
                             for id, logprob, top in scores),
                **outcome)
            self._is_over = True
            self._model = None
            if self._on_result is not None:
                self._on_result(self._result)
        return self._result
