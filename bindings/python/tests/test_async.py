"""Generations in asyncio."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import hearth
import pytest
from hearth import ErrorCode, Sampling
from test_generation import ENDLESS, LONG, wait_until_idle


@pytest.fixture(scope="module")
def model(dense_path: Path) -> Iterator[hearth.Model]:
    with hearth.Model(dense_path, threads=1, context=8192, parallel=3, queue=8) as loaded:
        yield loaded


def test_streams_and_results(stories: hearth.Model) -> None:
    expected = stories.generate("Once upon a time", max_tokens=30, seed=4).result()

    async def run() -> None:
        generation = stories.agenerate("Once upon a time", max_tokens=30, seed=4)
        pieces = [text async for text in generation]
        assert len(pieces) > 10
        assert "".join(pieces) == generation.text == expected.text
        assert generation.is_over
        assert (await generation).tokens == expected.tokens
        assert (await generation.result()).finish_reason == "length"
        chat = await stories.achat([{"role": "user", "content": "Tell me a story."}], max_tokens=5)
        assert len(chat.tokens) == 5

    asyncio.run(run())


def test_two_at_a_time_say_what_they_say_alone(stories: hearth.Model) -> None:
    alone = [stories.generate("Once upon a time", max_tokens=25, seed=seed).result().text
             for seed in range(2)]

    async def run() -> list[str]:
        results = await asyncio.gather(
            *(stories.agenerate("Once upon a time", max_tokens=25, seed=seed) for seed in range(2)))
        return [result.text for result in results]

    assert asyncio.run(run()) == alone


def test_two_run_together(model: hearth.Model) -> None:
    async def run() -> None:
        one = model.agenerate([7], max_tokens=LONG, sampling=ENDLESS)
        other = model.agenerate([8], max_tokens=LONG, sampling=ENDLESS)
        async with one, other:
            await anext(one)
            await anext(other)
            await anext(one)
            stats = await asyncio.to_thread(model.stats)
            assert stats.running == 2
        assert (await one).finish_reason == (await other).finish_reason == "cancelled"

    asyncio.run(run())
    wait_until_idle(model)


def test_the_loop_goes_on_while_it_waits(model: hearth.Model) -> None:
    async def run() -> None:
        generation = model.agenerate([7], max_tokens=LONG, sampling=ENDLESS)
        result = asyncio.ensure_future(generation)
        while not generation.text:
            await asyncio.sleep(0)
        generation.cancel()  # which it lives to see only where others had a turn
        assert (await result).finish_reason == "cancelled"

    asyncio.run(run())


def test_cancelling_the_task_cancels_the_generation(model: hearth.Model) -> None:
    before = model.stats().generated_tokens

    async def run() -> None:
        generation = model.agenerate([7], max_tokens=LONG, sampling=ENDLESS)
        began = asyncio.Event()

        async def drain() -> None:
            async for _ in generation:
                began.set()

        task = asyncio.create_task(drain())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert generation.is_over
        result = await generation
        assert result.finish_reason == "cancelled"
        assert 0 < len(result.tokens) < LONG

    asyncio.run(run())
    assert wait_until_idle(model).generated_tokens - before < LONG


def test_cancelling_while_it_starts(model: hearth.Model) -> None:
    before = model.stats().generated_tokens

    async def run() -> None:
        generation = model.agenerate([7], max_tokens=LONG, sampling=ENDLESS)
        task = asyncio.ensure_future(generation)
        await asyncio.sleep(0)  # it begins, and waits for the thread that starts the generation
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await generation).finish_reason == "cancelled"

    asyncio.run(run())
    assert wait_until_idle(model).generated_tokens - before < LONG


def test_leaving_the_loop_ends_it(model: hearth.Model) -> None:
    before = model.stats().generated_tokens

    async def run() -> None:
        async for _ in model.agenerate([7], max_tokens=LONG, sampling=ENDLESS):
            break
        gc.collect()
        async with model.agenerate([7], max_tokens=LONG, sampling=ENDLESS) as generation:
            async for _ in generation:
                break
        assert (await generation).finish_reason == "cancelled"

    asyncio.run(run())
    assert wait_until_idle(model).generated_tokens - before < LONG


def test_one_that_was_never_awaited_never_runs(model: hearth.Model) -> None:
    before = model.stats().prompt_tokens + model.stats().reused_tokens

    async def run() -> None:
        async with model.agenerate([7], sampling=ENDLESS) as generation:
            pass
        assert generation.is_over

    asyncio.run(run())
    assert model.stats().prompt_tokens + model.stats().reused_tokens == before


def test_errors(model: hearth.Model) -> None:
    async def run() -> None:
        with pytest.raises(hearth.Error, match="^top_p: ") as raised:
            await model.agenerate([7], top_p=2)
        assert raised.value.field == "top_p"
        with pytest.raises(hearth.Error, match="^prompt: ") as raised:
            async for _ in model.agenerate([7] * 9000):
                pass
        assert raised.value.code is ErrorCode.CONTEXT_FULL
        with pytest.raises(TypeError, match="max_tokens: "):
            model.agenerate([7], max_tokens="x")  # type: ignore[arg-type]

    asyncio.run(run())


def test_closing_the_model_ends_it(dense_path: Path) -> None:
    async def run() -> None:
        model = hearth.Model(dense_path, threads=1, context=8192)
        generation = model.agenerate([7], max_tokens=LONG, sampling=ENDLESS)
        await anext(generation)
        await asyncio.to_thread(model.close)
        assert (await generation).finish_reason == "cancelled"

    asyncio.run(run())


def test_progress(model: hearth.Model) -> None:
    told: list[tuple[int, int]] = []

    async def run() -> None:
        await model.agenerate(range(3, 290), max_tokens=2, sampling=ENDLESS,
                              progress=lambda done, total: told.append((done, total)))
        assert told == sorted(told)
        assert told[-1] == (287, 287)

        def stop(*_: int) -> None:
            raise ZeroDivisionError

        generation = model.agenerate(range(4, 290), max_tokens=LONG, sampling=ENDLESS,
                                     progress=stop)
        with pytest.raises(ZeroDivisionError):
            await generation
        assert (await generation).finish_reason == "cancelled"

    asyncio.run(run())


def test_a_session(stories: hearth.Model) -> None:
    greedy = Sampling(temperature=0)
    whole = stories.generate("Once upon a time", max_tokens=20, sampling=greedy).result().tokens

    async def run() -> None:
        session = hearth.Session(stories)
        first = session.agenerate("Once upon a time", max_tokens=10, sampling=greedy)
        with pytest.raises(hearth.Error, match="close that first"):
            session.agenerate(" and")
        await first
        assert session.history[-10:] == whole[:10]
        assert (await session.agenerate(max_tokens=10, sampling=greedy)).tokens == whole[10:]

    asyncio.run(run())
