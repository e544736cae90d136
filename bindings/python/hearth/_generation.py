"""A text that is being generated."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from types import TracebackType

from ._errors import Error
from ._native import Stream
from ._types import Result, ScoredToken, TokenScore, ToolCall

Progress = Callable[[int, int], object]


class _Answer:
    """What has come of a generation so far."""

    def __init__(self, model: object, progress: Progress | None,
                 on_result: Callable[[Result], None] | None) -> None:
        self._model = model  # which lives until the end, though nobody else may have it
        self._progress = progress
        self._on_result = on_result
        self._stream: Stream | None = None
        self._text: list[str] = []
        self._result: Result | None = None
        self._is_over = False

    @property
    def text(self) -> str:
        """What was taken so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """What the model has thought so far, before the text, where it is made to."""
        return self._stream.reasoning if self._stream is not None else ""

    @property
    def is_over(self) -> bool:
        """It has given all it had, failed, or was interrupted."""
        return self._is_over

    def _take(self, stream: Stream, *, wait: bool) -> str | None:
        """The next piece; None at the end, an empty one where nothing is there and it must not wait."""
        while isinstance(step := stream.next(wait), tuple):
            if self._progress is None:
                continue
            try:
                self._progress(*step)
            except BaseException:
                self._progress = None  # it wants no more
                raise
        if step is None:
            self._finish(stream)
        elif step:
            self._text.append(step)
        return step

    def _finish(self, stream: Stream) -> Result:
        if self._result is None:
            outcome = stream.finish()
            tokens = outcome.pop("generated")
            scores = outcome.pop("scores")
            calls = outcome.pop("tool_calls")
            self._result = Result(
                text=self.text, reasoning=self.reasoning, tokens=tuple(tokens),
                scores=tuple(ScoredToken(TokenScore(id, logprob), tuple(TokenScore(*t) for t in top))
                             for id, logprob, top in scores),
                tool_calls=tuple(ToolCall(f"call_{secrets.token_hex(12)}", name, arguments)
                                 for name, arguments in calls),
                **outcome)
            self._is_over = True
            self._model = None
            if self._on_result is not None:
                self._on_result(self._result)
        return self._result


class Generation(_Answer, Iterator[str]):
    """Yields the text as it comes; `result()` waits for all of it.

    It runs from the moment it was asked for, whether or not it is iterated, and ends within one
    token of `close()` or `cancel()`, of leaving its `with` block, of Ctrl-C while it waits, or of
    being dropped. One thread at a time, but for `cancel()`.
    """

    def __init__(self, model: object, stream: Stream, progress: Progress | None = None,
                 on_result: Callable[[Result], None] | None = None) -> None:
        super().__init__(model, progress, on_result)
        self._running = stream
        self._stream = stream

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        """The next piece, whole characters. Raises Error for what the request failed of."""
        if self._result is not None:
            raise StopIteration
        try:
            text = self._take(self._running, wait=True)
        except BaseException:  # its error, Ctrl-C, or one of `progress`
            self._is_over = True
            self.cancel()
            raise
        if text is None:
            raise StopIteration
        return text

    def result(self) -> Result:
        """Waits for the end; the whole text and how it came about. Raises Error.

        An exception of the program's own, such as KeyboardInterrupt, ends the generation.
        """
        try:
            for _ in self:
                pass
            return self._finish(self._running)
        except Error:
            raise
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends it within one token, without waiting for that; from any thread."""
        self._running.cancel()

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


class AsyncGeneration(_Answer, AsyncIterator[str]):
    """Yields the text as it comes, in `async for`; awaiting it waits for its Result.

    It starts when it is first awaited, as a coroutine does. It ends within one token of `cancel()`
    or `aclose()`, of leaving its `async with` block, of being dropped, and of the cancellation of
    the task that waits for it. One task at a time, but for `cancel()`.
    """

    def __init__(self, model: object, start: Callable[[], Stream],
                 progress: Progress | None = None,
                 on_result: Callable[[Result], None] | None = None) -> None:
        super().__init__(model, progress, on_result)
        self._start = start
        self._is_cancelled = False

    def __aiter__(self) -> AsyncGeneration:
        return self

    async def __anext__(self) -> str:
        """The next piece, whole characters. Raises Error for what the request failed of."""
        if self._result is not None:
            raise StopAsyncIteration
        try:
            stream = await self._started()
            while (text := self._take(stream, wait=False)) == "":
                await _until_ready(stream)
        except BaseException:  # its error, the task's cancellation, or one of `progress`
            self._is_over = True
            self.cancel()
            raise
        if text is None:
            raise StopAsyncIteration
        return text

    def __await__(self) -> Generator[object, None, Result]:
        return self.result().__await__()

    async def result(self) -> Result:
        """Waits for the end; the whole text and how it came about. Raises Error."""
        async for _ in self:
            pass
        return self._finish(await self._started())

    def cancel(self) -> None:
        """Ends it within one token, without waiting for that; from any thread."""
        self._is_cancelled = True
        if self._stream is not None:
            self._stream.cancel()

    async def aclose(self) -> None:
        """Ends it and waits for the end; what came of it, its error too, stays in `result()`."""
        self.cancel()
        if self._stream is None:
            self._is_over = True  # it never started
            return
        with contextlib.suppress(Error):
            await self.result()

    async def __aenter__(self) -> AsyncGeneration:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.aclose()

    async def _started(self) -> Stream:
        if self._stream is None:
            # A large schema takes a while, and a long text; where the task is cancelled meanwhile,
            # what starts is dropped, and so ends.
            self._stream = await asyncio.to_thread(self._start)
            if self._is_cancelled:
                self._stream.cancel()
        return self._stream


async def _until_ready(stream: Stream) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    descriptor = stream.fileno()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
