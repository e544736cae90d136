"""How far loading and prompts are."""

from __future__ import annotations

from pathlib import Path

import hearth
import pytest
from test_generation import ENDLESS, LONG, wait_until_idle


def stop(*_: int) -> None:
    raise ZeroDivisionError


def test_loading(stories_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with hearth.Model(stories_path, threads=2,
                      progress=lambda done, total: told.append((done, total))):
        pass
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 1 << 20
    with pytest.raises(ZeroDivisionError):
        hearth.Model(stories_path, threads=2, progress=stop)


def test_prompts(dense_path: Path) -> None:
    with hearth.Model(dense_path, threads=1, context=8192) as model:
        told: list[tuple[int, int]] = []
        result = model.generate(
            range(3, 290), max_tokens=2, sampling=ENDLESS,
            progress=lambda done, total: told.append((done, total))).result()
        assert result.prompt_tokens == 287
        assert told == sorted(told)
        assert told[-1] == (287, 287)
        generation = model.generate(range(4, 290), max_tokens=LONG, sampling=ENDLESS, progress=stop)
        with pytest.raises(ZeroDivisionError):
            next(generation)
        assert generation.result().finish_reason == "cancelled"
        wait_until_idle(model)


def test_warnings_and_options(dense_path: Path, tmp_path: Path) -> None:
    prompt = list(range(10, 150))
    folder = tmp_path / "sessions"
    with hearth.Model(dense_path, threads=1, context=512, kv="f32", isa="scalar",
                      session_folder=folder, session_limit="64M") as model:
        assert model.info.instruction_set == "scalar"
        model.generate(prompt, max_tokens=2, sampling=ENDLESS).result()
    assert list(folder.iterdir())
    with hearth.Model(dense_path, threads=1, context=512, kv="f32", isa="scalar",
                      session_folder=folder) as model:
        result = model.generate(prompt, max_tokens=2, sampling=ENDLESS).result()
        assert result.reused_tokens >= 64
