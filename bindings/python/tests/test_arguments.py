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
    ({"seed": 2.5}, "seed"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"progress": 5}, "progress"),
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
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"top_k": -1}, "top_k"),
    ({"top_p": 2}, "top_p"),
    ({"min_p": 2}, "min_p"),
    ({"repetition_penalty": -1}, "repetition_penalty"),
    ({"repetition_window": -2}, "repetition_window"),
    ({"frequency_penalty": 1e9}, "frequency_penalty"),
    ({"presence_penalty": -1e9}, "presence_penalty"),
    ({"logit_bias": {300: 1}}, "logit_bias"),
    ({"json_schema": "{"}, "json_schema"),
    ({"sampling": Sampling(seed=-1)}, "seed"),
    ({"sampling": Sampling(temperature=10 ** 400)}, "temperature"),
    ({"sampling": Sampling(min_p=1e300)}, "min_p"),
    ({"sampling": Sampling(logit_bias={1 << 40: 1})}, "logit_bias"),
])
def test_values(model: Any, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(hearth.Error) as raised:
        model.generate(PROMPT, **arguments)
    assert raised.value.code in {ErrorCode.INVALID_ARGUMENT, ErrorCode.CORRUPT}
    assert raised.value.field == name
    assert said_of(raised).startswith(f"{name}: ")


def test_names_that_are_no_arguments(model: Any) -> None:
    session: Any = hearth.Session(model)
    for use in (model.generate, model.agenerate, session.generate):
        with pytest.raises(TypeError, match="there is no argument 'temprature'"):
            use(PROMPT, temprature=0.5)


def test_arguments_by_name_are_those_of_sampling(stories: hearth.Model) -> None:
    chosen = Sampling(temperature=1.5, top_k=7, seed=9)
    expected = stories.generate("The fox", max_tokens=12, sampling=chosen).result().tokens
    named = stories.generate("The fox", max_tokens=12, temperature=1.5, top_k=7, seed=9)
    assert named.result().tokens == expected
    mixed = stories.generate("The fox", max_tokens=12, sampling=Sampling(temperature=1.5, seed=3),
                             top_k=7, seed=9)
    assert mixed.result().tokens == expected


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
        (TypeError, lambda: model.chat([PROMPT]), "messages[0]: expected"),
        (hearth.Error, lambda: model.chat([{}]), "messages[0]: it needs a role"),
        (TypeError, lambda: model.chat([{"role": "user", "content": None}]),
         "messages[0].content: expected"),
        (hearth.Error, lambda: model.chat([{"role": "user"}]), "messages[0]: it needs a content"),
        (hearth.Error, lambda: model.chat([{"role": "tool", "tool_call_id": "a", "content": ""}]),
         "messages[0].tool_call_id: expected the id of a call in a message before"),
        (TypeError, lambda: model.chat([], chat_template_kwargs="{}"),
         "chat_template_kwargs: expected"),
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
    ({"threads": -1}, hearth.Error, "threads: "),
    ({"mode": "fast"}, hearth.Error, "mode: "),
    ({"kv": "f8"}, hearth.Error, "kv: "),
    ({"isa": "abacus"}, hearth.Error, "isa: "),
    ({"activations": "f32"}, hearth.Error, "activations: "),
    ({"activation": "mish"}, hearth.Error, "activation: "),
    ({"context": -1}, hearth.Error, "context: "),
    ({"parallel": 0}, hearth.Error, "parallel: "),
    ({"streaming": 5}, TypeError, "streaming: expected"),
    ({"streaming": {"speed": 1}}, hearth.Error, "streaming: there is no setting 'speed'"),
    ({"streaming": {"pipeline": "tensor"}}, hearth.Error, "pipeline: value: expected cluster|"),
    ({"streaming": {"pinned": 2}}, hearth.Error, "pinned: value: expected 0 to 1, found 2"),
    ({"streaming": {"merge_gap": "2M"}}, hearth.Error, "merge_gap: value: expected at most"),
    ({"streaming": {"io": "pread"}}, hearth.Error, "io: it has no effect: the model is in memory"),
    ({"session_folder": 5}, TypeError, "session_folder: expected"),
    ({"session_limit": "much"}, hearth.Error, "session_limit: expected"),
    ({"progress": 5}, TypeError, "progress: expected"),
    ({"device": 2.5}, TypeError, "device: expected"),
    ({"device": "gpu"}, hearth.Error, "device: "),
    ({"device_memory": "1G"}, hearth.Error, "device: none is used"),
    ({"device_neurons": "4"}, TypeError, "device_neurons: expected"),
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


def test_a_budget_that_nothing_fits_into_says_which_argument(dense_path: Path) -> None:
    with pytest.raises(hearth.Error) as raised:
        hearth.Model(dense_path, memory="1M")
    assert raised.value.field == "memory"
    assert str(raised.value).startswith("memory: ")


@pytest.mark.parametrize("memory", ["0.5G", "0.5GB", "0.5GiB", ".5g", "512M", "512mb", "536870912",
                                    "536870912B", "5.36870912e8", 1 << 29])
def test_sizes_are_those_of_the_command_line(dense_path: Path, memory: int | str) -> None:
    with hearth.Model(dense_path, threads=1, context=64, memory=memory) as model:
        assert model.info.memory_limit_bytes == 1 << 29
