"""Low-rank adapters, from the goldens of this repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import hearth
import pytest
from conftest import ROOT
from hearth import ErrorCode

GOLDENS = ROOT / "tests/goldens"
PROMPT = "Once upon"


@pytest.fixture(scope="module")
def adapted() -> Iterator[hearth.Model]:
    adapters: list[Any] = [GOLDENS / "adapters/llama-a", (str(GOLDENS / "adapters/llama-b"), 0)]
    with hearth.Model(GOLDENS / "llama.gguf", threads=1, adapters=adapters) as model:
        yield model


def tokens_of(model: hearth.Model, adapters: Mapping[int, float] | None = None) -> tuple[int, ...]:
    return model.generate(PROMPT, max_tokens=12, temperature=0, adapters=adapters).result().tokens


def test_requests_choose_among_them(adapted: hearth.Model) -> None:
    by_default = tokens_of(adapted)
    assert tokens_of(adapted, {0: 1}) == by_default
    assert tokens_of(adapted, {}) != by_default
    assert tokens_of(adapted, {0: 1, 1: 1.0}) != by_default
    with hearth.Model(GOLDENS / "llama.gguf", threads=1) as base:
        assert tokens_of(base) == tokens_of(adapted, {})
    assert adapted.stats().ledger["adapters"] > 4096


def test_default_scales(adapted: hearth.Model) -> None:
    before = tokens_of(adapted)
    paths = [path for path, _ in adapted.adapters()]
    assert paths == [str(GOLDENS / "adapters/llama-a"), str(GOLDENS / "adapters/llama-b")]
    adapted.set_adapter_scales({1: 0.5})
    assert [scale for _, scale in adapted.adapters()] == [0, 0.5]
    assert tokens_of(adapted) != before
    adapted.set_adapter_scales({0: 1})
    assert tokens_of(adapted) == before


@pytest.mark.parametrize("adapters", [{2: 1.0}, {-1: 1.0}, {0: 1e9}, {0: float("nan")}])
def test_wrong_scales(adapted: hearth.Model, adapters: dict[int, float]) -> None:
    with pytest.raises(hearth.Error) as raised:
        tokens_of(adapted, adapters)
    assert raised.value.code == ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("wrong", ["a path", {"a": 1}, [3], [("a", "b")], [("a", 1, 2)]])
def test_wrong_adapters(wrong: Any) -> None:
    with pytest.raises(TypeError):
        hearth.Model(GOLDENS / "llama.gguf", adapters=wrong)


def test_of_another_model() -> None:
    with pytest.raises(hearth.Error) as raised:
        hearth.Model(GOLDENS / "llama.gguf", adapters=[GOLDENS / "adapters/gpt2-a"])
    assert raised.value.code == ErrorCode.UNSUPPORTED
