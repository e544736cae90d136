"""Loading, texts, chats, embeddings, budgets and errors."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import hearth
import pytest
from conftest import run_hearth
from hearth import ErrorCode, Sampling

GREEDY = Sampling(temperature=0)


def code_of(raised: pytest.ExceptionInfo[hearth.Error]) -> ErrorCode:
    assert str(raised.value)
    assert not str(raised.value).endswith(".")
    return raised.value.code


def test_says_what_the_command_line_says(stories: hearth.Model, stories_path: Path) -> None:
    result = stories.generate("Once upon a time", max_tokens=40, sampling=Sampling(seed=7)).result()
    said = run_hearth("run", str(stories_path), "--raw", "-p", "Once upon a time", "-n", "40",
                      "--seed", "7", "--json")
    document = json.loads(said.stdout)
    assert result.text == document["text"]
    assert result.finish_reason == document["finish_reason"]
    assert len(result.tokens) == 40
    assert result.prompt_tokens == len(stories.tokenize("Once upon a time", as_prompt=True))


def test_info_and_stats(stories: hearth.Model) -> None:
    before = stories.stats()
    stories.generate("The fox", max_tokens=5).result()
    after = stories.stats()
    assert after.prompt_tokens + after.reused_tokens > before.prompt_tokens + before.reused_tokens
    assert after.generated_tokens > before.generated_tokens
    assert after.ledger["weights"] > 1 << 20
    assert sum(after.ledger.values()) <= stories.info.memory_limit_bytes
    assert after.hit_rate == 1
    assert stories.info.can_chat
    assert stories.info.threads == 2
    assert stories.info.name == "hearth-stories-5m"
    assert "hearth-stories-5m" in repr(stories)
    with pytest.raises(dataclasses.FrozenInstanceError):
        stories.info.threads = 3  # type: ignore[misc]


def test_tokens(stories: hearth.Model) -> None:
    tokens = stories.tokenize("A fox\0 and ü.")
    assert "A fox\0 and ü." in stories.detokenize(tokens)
    assert len(stories.tokenize("", as_prompt=True)) == 1
    assert b"".join(stories.token_bytes(t) for t in tokens).decode().strip() == "A fox\0 and ü."
    for bad in (-1, 1 << 20):
        with pytest.raises(hearth.Error, match="token id: expected 0 to") as raised:
            stories.token_bytes(bad)
        assert code_of(raised) is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(hearth.Error) as raised:
        stories.tokenize("a" * 100_000, as_prompt=True)
    assert code_of(raised) is ErrorCode.CONTEXT_FULL


def test_chat_ends_where_the_template_says(stories: hearth.Model) -> None:
    messages: list[hearth.Message] = [{"role": "user", "content": "Tell me a story about a fox."}]
    prompt = stories.encode_chat(messages)
    answer = stories.chat(messages, max_tokens=300, sampling=Sampling(seed=1)).result()
    assert "fox" in answer.text.lower()
    same = stories.generate(prompt.tokens, max_tokens=300, stop=prompt.stop,
                            sampling=Sampling(seed=1)).result()
    assert answer.tokens == same.tokens
    messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "Go on."}]
    assert stories.chat(messages, max_tokens=5).result().reused_tokens > prompt.tokens.__len__()
    with pytest.raises(hearth.Error) as raised:
        stories.chat([{"role": "user", "content": "a" * 100_000}])
    assert code_of(raised) is ErrorCode.CONTEXT_FULL


def test_stop_texts_scores_and_schemas(stories: hearth.Model) -> None:
    whole = stories.generate("Once upon a time", max_tokens=30, sampling=GREEDY).result()
    word = whole.text.split()[5]
    stopped = stories.generate("Once upon a time", max_tokens=30, sampling=GREEDY, stop=[word],
                               top_logprobs=3).result()
    assert stopped.finish_reason == "stop"
    assert stopped.text == whole.text[:whole.text.index(word)]
    assert stopped.scores
    for score in stopped.scores:
        assert score.token.logprob <= 0
        assert len(score.top) == 3
        assert score.top[0].logprob == max(t.logprob for t in score.top)
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}},
              "required": ["age"], "additionalProperties": False}
    answer = stories.generate("How old?", max_tokens=100, json_schema=schema, sampling=GREEDY)
    try:
        assert isinstance(json.loads(answer.result().text)["age"], int)
    except json.JSONDecodeError:
        assert answer.result().finish_reason == "length"  # a number may go on
    biased = Sampling(temperature=0, logit_bias={t: -math.inf for t in whole.tokens})
    other = stories.generate("Once upon a time", max_tokens=10, sampling=biased).result()
    assert not set(other.tokens) & set(whole.tokens)


def test_embeddings(stories: hearth.Model) -> None:
    fox, boat = stories.embed_many(["A fox ran.", "The boat is red."])
    assert fox == stories.embed("A fox ran.")
    assert fox == stories.embed(stories.tokenize("A fox ran.", as_prompt=True))
    assert len(fox) == stories.info.embedding_size
    assert math.isclose(sum(x * x for x in fox), 1, rel_tol=1e-5)
    assert sum(x * y for x, y in zip(fox, boat, strict=True)) < 0.999
    assert stories.embed_many([]) == []
    with pytest.raises(hearth.Error) as raised:
        stories.embed_many(["x"] * 1000)
    assert code_of(raised) is ErrorCode.BUSY


def test_a_budget_is_kept_and_changes_no_token(packed_path: Path) -> None:
    prompt = range(259, 275)
    with hearth.Model(packed_path, mode="gated", context=256, parallel=1) as whole:
        assert not whole.info.is_streamed
        expected = whole.generate(prompt, max_tokens=12, sampling=GREEDY).result()
    # After that, when the program takes what it will.
    with pytest.raises(hearth.Error) as raised:
        hearth.Model(packed_path, memory="1M", mode="gated", context=256)
    assert code_of(raised) is ErrorCode.OUT_OF_BUDGET
    least = re.search(r"the smallest that can is (\d+)M", str(raised.value))
    assert least
    memory = (int(least[1]) + 12) << 20
    with hearth.Model(packed_path, memory=memory, mode="gated", context=256, parallel=1) as model:
        assert model.info.is_streamed
        assert model.info.memory_limit_bytes == memory
        result = model.generate(prompt, max_tokens=12, sampling=GREEDY).result()
        stats = model.stats()
        assert sum(stats.ledger.values()) <= memory
        assert stats.bytes_read > 0
        assert stats.neurons > 0
        assert 0 < stats.hit_rate < 1
    assert result.tokens == expected.tokens


def test_plans_are_obeyed_or_refused(packed_path: Path, folder: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    plan = folder / "plan.json"
    measured = run_hearth("doctor", "--quick", "--dir", str(folder))
    assert measured.returncode == 0, measured.stderr
    planned = run_hearth("plan", str(packed_path), "--memory", "4G", "--ctx", "128", "--mode",
                         "predicted", "--tokens", "64", "-o", str(plan))
    assert planned.returncode == 0, planned.stderr
    document = json.loads(plan.read_text())
    with hearth.Model(packed_path, plan=plan) as model:
        assert model.info.mode == "predicted"
        assert model.info.context == 128
        assert model.info.memory_limit_bytes == document["budget_bytes"]
        assert model.info.threads == len(document["cores"]["compute"])
        model.generate([259, 260], max_tokens=2).result()
    with pytest.raises(hearth.Error, match="plan: it says") as raised:
        hearth.Model(packed_path, plan=plan, threads=1)
    assert code_of(raised) is ErrorCode.INVALID_ARGUMENT
    document["hardware_hash"] = "0" * 16
    plan.write_text(json.dumps(document))
    with pytest.raises(hearth.Error, match="another machine"):
        hearth.Model(packed_path, plan=plan)


@pytest.mark.parametrize(("options", "code"), [
    ({"mode": "fast"}, ErrorCode.INVALID_ARGUMENT),
    ({"parallel": 0}, ErrorCode.INVALID_ARGUMENT),
    ({"parallel": 1 << 40}, ErrorCode.INVALID_ARGUMENT),
    ({"queue": -1}, ErrorCode.INVALID_ARGUMENT),
    ({"threads": -1}, ErrorCode.INVALID_ARGUMENT),
    ({"context": -1}, ErrorCode.INVALID_ARGUMENT),
    ({"context": 1 << 40}, ErrorCode.INVALID_ARGUMENT),
    ({"memory": 0}, ErrorCode.INVALID_ARGUMENT),
    ({"memory": -5}, ErrorCode.INVALID_ARGUMENT),
    ({"memory": "2.5 apples"}, ErrorCode.INVALID_ARGUMENT),
    ({"memory": "1M"}, ErrorCode.OUT_OF_BUDGET),
    ({"plan": "/nowhere.plan"}, ErrorCode.NOT_FOUND),
    ({"activation": "mish"}, ErrorCode.INVALID_ARGUMENT),
])
def test_refuses_to_load(dense_path: Path, options: dict[str, object], code: ErrorCode) -> None:
    with pytest.raises(hearth.Error) as raised:
        hearth.Model(dense_path, **options)  # type: ignore[arg-type]
    assert code_of(raised) is code


def test_activation_of_files_that_do_not_say_it(dense_path: Path, stories_path: Path) -> None:
    with hearth.Model(dense_path, activation="fatrelu:0.01", context=64) as model:
        assert model.info.name
    with pytest.raises(hearth.Error, match="drelu, which the file says itself"):
        hearth.Model(stories_path, activation="silu")


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(hearth.Error, match="nowhere") as raised:
        hearth.Model("/nowhere.gguf")
    assert code_of(raised) is ErrorCode.NOT_FOUND
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + b"\xff" * 100)
    with pytest.raises(hearth.Error) as raised:
        hearth.Model(junk)
    assert code_of(raised) in {ErrorCode.CORRUPT, ErrorCode.UNSUPPORTED}


def test_refuses_requests(dense_path: Path) -> None:
    with hearth.Model(dense_path, threads=1) as model:
        with pytest.raises(hearth.Error) as raised:
            model.chat([{"role": "user", "content": "Hi"}])
        assert code_of(raised) is ErrorCode.UNSUPPORTED
        starts: list[Callable[[], hearth.Generation]] = [
            lambda: model.generate("a", sampling=Sampling(temperature=-1)),
            lambda: model.generate("a", sampling=Sampling(top_p=2)),
            lambda: model.generate("a", sampling=Sampling(top_k=1 << 40)),
            lambda: model.generate("a", max_tokens=-1),
            lambda: model.generate("a", top_logprobs=-1),
            lambda: model.generate("a", json_schema="{"),
            lambda: model.generate("a", stop="x"),
            lambda: model.generate([]),
            lambda: model.generate("a", sampling=Sampling(logit_bias={300: 1})),
            lambda: model.generate([300]),
        ]
        for start in starts:
            with pytest.raises(hearth.Error) as raised:
                start().result()
            assert code_of(raised) in {ErrorCode.INVALID_ARGUMENT, ErrorCode.CORRUPT}
        with pytest.raises(TypeError):
            model.generate(17)  # type: ignore[arg-type]
    model.close()
    uses: list[Callable[[], object]] = [lambda: model.tokenize("a"), model.stats,
                                        lambda: model.generate("a")]
    for use in uses:
        with pytest.raises(hearth.Error, match="the model is closed"):
            use()
    assert "closed" in repr(model)
    assert model.info.vocab_size == 300


def test_errors_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(hearth.Error("no", ErrorCode.IO)))
    assert (str(error), error.code) == ("no", ErrorCode.IO)
