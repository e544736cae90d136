"""Streaming, cancelling, sessions, threads, and the ends of processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hearth
import pytest
from hearth import ErrorCode, Sampling

GREEDY = Sampling(temperature=0)
# Ids that end a text: with these, generations run as long as they are let.
ENDLESS = Sampling(temperature=0, logit_bias={0: -100, 1: -100, 2: -100})
LONG = 8000


@pytest.fixture(scope="module")
def model(dense_path: Path) -> Iterator[hearth.Model]:
    with hearth.Model(dense_path, threads=1, context=8192, parallel=3, queue=8) as loaded:
        yield loaded


def wait_until_idle(model: hearth.Model) -> hearth.Stats:
    """What was cancelled ends within a token; what is told is told behind that."""
    for _ in range(1000):
        stats = model.stats()
        if stats.running + stats.waiting == 0:
            return stats
        time.sleep(0.01)
    raise AssertionError("it never became idle")


def test_streams_what_it_results_in(stories: hearth.Model) -> None:
    generation = stories.generate("Once upon a time", max_tokens=30, sampling=Sampling(seed=4))
    pieces = list(generation)
    assert len(pieces) > 10
    result = generation.result()
    assert "".join(pieces) == result.text == generation.text
    assert next(generation, None) is None
    assert result.finish_reason == "length"
    assert generation.is_over


def test_a_generation_keeps_its_model(dense_path: Path) -> None:
    generation = hearth.Model(dense_path, threads=1).generate([7], max_tokens=50, sampling=ENDLESS)
    gc.collect()
    assert len(generation.result().tokens) == 50


def test_an_end_token_lets_go_what_was_held_back(stories: hearth.Model) -> None:
    sampling = Sampling(seed=0, logit_bias={0: 12, 1: 12, 2: 12})
    whole = stories.generate("Once upon a time", max_tokens=60, sampling=sampling).result()
    held = stories.generate("Once upon a time", max_tokens=60, sampling=sampling,
                            stop=[whole.text[-1] + "\x02"], top_logprobs=0).result()
    assert whole.finish_reason == "stop"
    assert held.text == whole.text
    assert len(held.scores) == len(held.tokens)


def test_closing_ends_it_in_the_middle(model: hearth.Model) -> None:
    generation = model.generate([7], max_tokens=LONG, sampling=ENDLESS)
    next(generation)
    generation.close()
    result = generation.result()
    assert result.finish_reason == "cancelled"
    assert 0 < len(result.tokens) < LONG
    wait_until_idle(model)
    generation.close()  # again


def test_leaving_a_block_ends_it(model: hearth.Model) -> None:
    with pytest.raises(ZeroDivisionError):
        with model.generate([7], max_tokens=LONG, sampling=ENDLESS) as generation:
            for _ in generation:
                raise ZeroDivisionError
    assert generation.result().finish_reason == "cancelled"


def test_dropping_ends_it(model: hearth.Model) -> None:
    before = model.stats().generated_tokens
    for _ in model.generate([7], max_tokens=LONG, sampling=ENDLESS):
        break
    gc.collect()
    stats = wait_until_idle(model)
    assert stats.generated_tokens - before < LONG


def test_cancelling_from_another_thread(model: hearth.Model) -> None:
    generation = model.generate([7], max_tokens=LONG, sampling=ENDLESS)
    threading.Timer(0.02, generation.cancel).start()
    assert generation.result().finish_reason == "cancelled"


def test_a_full_queue_is_busy(model: hearth.Model) -> None:
    started = [model.generate([7], max_tokens=LONG, sampling=ENDLESS) for _ in range(11)]
    with pytest.raises(hearth.Error) as raised:
        model.generate([7])
    assert raised.value.code is ErrorCode.BUSY
    for generation in started:
        generation.close()


def test_two_threads_with_a_session_each(stories: hearth.Model) -> None:
    def tell(seed: int) -> list[str]:
        session = hearth.Session(stories)
        sampling = Sampling(seed=seed)
        return [session.generate("Once upon a time" if turn == 0 else " Then", max_tokens=25,
                                 sampling=sampling).result().text for turn in range(3)]

    alone = [tell(seed) for seed in range(2)]
    before = stories.stats()
    together: list[list[str]] = [[], []]
    barrier = threading.Barrier(2)

    def run(seed: int) -> None:
        barrier.wait()
        together[seed] = tell(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
    after = stories.stats()
    passes = after.decode_passes - before.decode_passes
    assert after.generated_tokens - before.generated_tokens > passes, "they were computed together"


def test_a_session_goes_on_where_it_stopped(stories: hearth.Model) -> None:
    prompt = stories.tokenize("Once upon a time", as_prompt=True)
    whole = stories.generate(prompt, max_tokens=30, sampling=GREEDY).result().tokens
    session = hearth.Session(stories)
    first = session.generate("Once upon a time", max_tokens=10, sampling=GREEDY)
    with pytest.raises(hearth.Error, match="close that first"):
        session.generate(" and")
    first.result()
    assert session.history == (*prompt, *whole[:10])
    rest = session.generate(max_tokens=20, sampling=GREEDY).result()
    assert rest.tokens == whole[10:]
    assert rest.reused_tokens >= 10
    session.truncate(3)
    assert session.history == tuple(prompt[:3])
    assert session.model is stories


def test_a_session_keeps_what_was_closed_and_forgets_what_was_dropped(model: hearth.Model) -> None:
    session = hearth.Session(model)
    generation = session.generate([7], max_tokens=LONG, sampling=ENDLESS)
    next(generation)
    session.cancel()
    assert generation.result().finish_reason == "cancelled"
    kept = session.history
    assert kept == (7, *generation.result().tokens)
    session.generate([8], max_tokens=LONG, sampling=ENDLESS)
    gc.collect()
    assert session.history == kept
    session.generate([9], max_tokens=1, sampling=ENDLESS).result()
    assert session.history[:-1] == (*kept, 9)
    with pytest.raises(hearth.Error):
        session.generate([9999])
    session.cancel()  # without effect


def test_cancelling_a_session_that_is_starting(model: hearth.Model,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    session = hearth.Session(model)
    reader = model._reader

    def cancelling_reader(*arguments: Any, **options: Any) -> Any:
        read = reader(*arguments, **options)

        def cancel_and_read() -> list[int]:
            session.cancel()
            return read()

        return cancel_and_read

    monkeypatch.setattr(model, "_reader", cancelling_reader)
    result = session.generate([7], max_tokens=LONG, sampling=ENDLESS).result()
    assert result.finish_reason == "cancelled"
    monkeypatch.undo()
    assert session.generate([8], max_tokens=2, sampling=ENDLESS).result().finish_reason == "length"


def test_a_session_is_no_longer_than_its_context(dense_path: Path) -> None:
    with hearth.Model(dense_path, threads=1, context=16) as small:
        session = hearth.Session(small)
        session.generate([7], max_tokens=100, sampling=ENDLESS).result()
        assert len(session.history) == 16
        session.generate(max_tokens=100, sampling=ENDLESS).result()
        assert len(session.history) == 16


def test_closing_a_model_ends_its_generations(dense_path: Path) -> None:
    model = hearth.Model(dense_path, threads=1, context=8192)
    generation = model.generate([7], max_tokens=LONG, sampling=ENDLESS)
    next(generation)
    model.close()
    assert generation.result().finish_reason == "cancelled"


def test_other_threads_run_while_it_computes(model: hearth.Model) -> None:
    generation = model.generate([7], max_tokens=LONG, sampling=ENDLESS)
    waiting = threading.Thread(target=generation.result)
    waiting.start()
    turns = 0
    while turns < 1000 and waiting.is_alive():
        turns += 1
    generation.cancel()
    waiting.join()
    assert turns == 1000


# What a process does at its end is seen from outside.

PRELUDE = """
import os, signal, sys, threading, time
import hearth
from hearth import Sampling
ENDLESS = Sampling(temperature=0, logit_bias={0: -100, 1: -100, 2: -100})
model = hearth.Model(sys.argv[1], threads=2, context=100000)
generation = model.generate([7], max_tokens=90000, sampling=ENDLESS)
"""


def run_program(path: Path, program: str) -> str:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c",
                           PRELUDE + textwrap.dedent(program), str(path)],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_exits_with_an_open_model(dense_path: Path) -> None:
    assert run_program(dense_path, "next(generation); print('end')") == "end\n"


@pytest.mark.parametrize("repetition", range(3))
def test_exits_while_a_daemon_thread_waits(dense_path: Path, repetition: int) -> None:
    run_program(dense_path, """
        def drain():
            for _ in generation: pass
            while True:
                for _ in model.generate([7], max_tokens=90000, sampling=ENDLESS): pass
        threading.excepthook = lambda _: None  # the model is closed under it
        threading.Thread(target=drain, daemon=True).start()
        time.sleep(0.1)
        """)


def test_leaves_no_threads(dense_path: Path) -> None:
    assert run_program(dense_path, """
        del generation
        model.close()
        print(len(os.listdir("/proc/self/task")))
        """) == "1\n"


def test_ctrl_c_ends_a_generation(dense_path: Path) -> None:
    assert run_program(dense_path, """
        # As Ctrl-C, but from the system's clock, which waits for no thread.
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            generation.result()
            print("was never interrupted")
        except KeyboardInterrupt:
            print(generation.result().finish_reason, generation.is_over)
        """) == "cancelled True\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_refuses_to_work_in_a_forked_child(dense_path: Path) -> None:
    said = run_program(dense_path, """
        child = os.fork()
        if child == 0:
            for use in (model.stats, generation.result, lambda: model.generate([7])):
                try:
                    use()
                except hearth.Error as error:
                    print(error, flush=True)
            with hearth.Model(sys.argv[1], threads=1, context=64) as mine:
                print(len(mine.generate([7], max_tokens=3, sampling=ENDLESS).result().tokens))
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        generation.cancel()
        print(generation.result().finish_reason)
        """).splitlines()
    sentence = "the model was loaded before this process was forked: load it here"
    assert said == [sentence] * 3 + ["3", "cancelled"]


def test_signal_is_seen_while_nothing_comes(model: hearth.Model) -> None:
    """Also where the wait is for a long prompt."""
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Stop):
            model.generate([7] * 100, max_tokens=LONG, sampling=ENDLESS).result()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    wait_until_idle(model)
