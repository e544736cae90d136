"""What makes no sense is refused in one short sentence that names the parameter."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hearth
import pytest
from hearth import ErrorCode, Sampling

PROMPT = "a prompt that no message repeats"


@pytest.fixture(scope="module")
def model(dense_path: Path) -> Iterator[Any]:
    """Any: a type checker would refuse what is refused here."""
    with hearth.Model(dense_path, threads=1) as loaded:
        yield loaded


def said_of(raised: pytest.ExceptionInfo[Exception]) -> str:
    said = str(raised.value)
    assert len(said) < 200
    assert PROMPT not in said
    return said


@pytest.mark.parametrize(("arguments", "name"), [
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 2.5}, "max_tokens"),
    ({"stop": [b"x"]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"top_logprobs": "5"}, "top_logprobs"),
    ({"json_schema": 5}, "json_schema"),
    ({"sampling": {"seed": 3}}, "sampling"),
    ({"sampling": Sampling(seed=None)}, "seed"),  # type: ignore[arg-type]
    ({"sampling": Sampling(temperature="x")}, "temperature"),  # type: ignore[arg-type]
    ({"sampling": Sampling(logit_bias=[1])}, "logit_bias"),  # type: ignore[arg-type]
    ({"sampling": Sampling(logit_bias={1: "x"})}, "logit_bias"),  # type: ignore[dict-item]
])
def test_types(model: Any, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError) as raised:
        model.generate(PROMPT, **arguments)
    assert said_of(raised).startswith(f"{name}: expected ")


@pytest.mark.parametrize(("arguments", "name"), [
    ({"max_tokens": 1 << 70}, "max_tokens"),
    ({"max_tokens": 10 ** 5000}, "max_tokens"),
    ({"top_logprobs": 1001}, "top_logprobs"),
    ({"stop": ["\ud800"]}, "stop"),
    ({"json_schema": "\ud800"}, "json_schema"),
    ({"json_schema": {"const": object()}}, "json_schema"),
    ({"sampling": Sampling(seed=-1)}, "seed"),
    ({"sampling": Sampling(temperature=10 ** 400)}, "temperature"),
    ({"sampling": Sampling(min_p=1e300)}, "min_p"),
    ({"sampling": Sampling(logit_bias={1 << 40: 1})}, "logit_bias"),
])
def test_values(model: Any, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(hearth.Error) as raised:
        model.generate(PROMPT, **arguments)
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT
    assert said_of(raised).startswith(f"{name}: ")


def test_prompts_texts_and_conversations(model: Any) -> None:
    session: Any = hearth.Session(model)
    wrong: list[tuple[type[Exception], Callable[[], object], str]] = [
        (TypeError, lambda: model.generate(PROMPT.encode()), "prompt: expected"),
        (TypeError, lambda: session.generate(PROMPT.encode()), "prompt: expected"),
        (TypeError, lambda: model.generate([1, "x"]), "prompt: expected"),
        (hearth.Error, lambda: model.generate([1 << 40]), "prompt: expected"),
        (hearth.Error, lambda: model.generate(PROMPT + "\ud800"), "prompt: it has a lone"),
        (TypeError, lambda: model.tokenize(None), "text: expected"),
        (TypeError, lambda: model.detokenize("x"), "tokens: expected"),
        (hearth.Error, lambda: model.token_bytes(1 << 40), "token id: expected"),
        (TypeError, lambda: model.embed_many(PROMPT), "texts: expected"),
        (TypeError, lambda: model.chat(PROMPT), "messages: expected"),
        (TypeError, lambda: model.chat([PROMPT]), "messages: expected"),
        (hearth.Error, lambda: model.chat([{}]), "messages: each needs"),
        (TypeError, lambda: model.chat([{"role": "user", "content": None}]), "content: expected"),
    ]
    for kind, use, beginning in wrong:
        with pytest.raises(kind) as raised:
            use()
        assert said_of(raised).startswith(beginning)


def test_paths_need_not_be_utf8(dense_path: Path, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/m\xff.gguf"
    shutil.copy(dense_path, os.fsdecode(path))
    with hearth.Model(os.fsdecode(path), threads=1) as model:
        assert os.fsencode(model.info.path) == path
        assert os.fsencode(model.info.name) == b"m\xff"
        repr(model)
    with pytest.raises(hearth.Error, match="nowhere") as raised:
        hearth.Model(os.fsdecode(b"/nowhere\xff.gguf"))
    assert raised.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize(("options", "kind", "beginning"), [
    ({"path": "m\0.gguf"}, hearth.Error, "path: no file"),
    ({"path": "\ud800"}, hearth.Error, "path: no file"),
    ({"path": 5}, TypeError, "path: expected"),
    ({"plan": "p\0"}, hearth.Error, "plan: no file"),
    ({"mode": 5}, TypeError, "mode: expected"),
    ({"activation": 5}, TypeError, "activation: expected"),
    ({"chat_format": "klingon"}, hearth.Error, "chat_format: name of a format: expected chatml"),
    ({"threads": "2"}, TypeError, "threads: expected"),
    ({"queue": (1 << 31) - 1}, hearth.Error, "queue: "),
    ({"memory": True}, TypeError, "memory: expected"),
    ({"memory": 2.5}, TypeError, "memory: expected"),
    ({"memory": " 1G "}, hearth.Error, "memory: expected"),
    ({"memory": "1Gi"}, hearth.Error, "memory: expected"),
    ({"memory": "1e999"}, hearth.Error, "memory: expected"),
    ({"memory": "-1G"}, hearth.Error, "memory: expected"),
])
def test_loading(dense_path: Path, options: dict[str, Any], kind: type[Exception],
                 beginning: str) -> None:
    with pytest.raises(kind) as raised:
        hearth.Model(**{"path": dense_path, **options})
    assert said_of(raised).startswith(beginning)


@pytest.mark.parametrize("memory", ["0.5G", "0.5GB", "0.5GiB", ".5g", "512M", "512mb", "536870912",
                                    "536870912B", "5.36870912e8", 1 << 29])
def test_sizes_are_those_of_the_command_line(dense_path: Path, memory: int | str) -> None:
    with hearth.Model(dense_path, threads=1, context=64, memory=memory) as model:
        assert model.info.memory_limit_bytes == 1 << 29
