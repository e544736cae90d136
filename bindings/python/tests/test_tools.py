"""Tools in conversations, their calls and results; thoughts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hearth
import pytest
from hearth import ErrorCode, Message, Tool

FIND: Tool = {"type": "function", "function": {
    "name": "find_animal", "description": "Says where an animal is.",
    "parameters": {"type": "object", "properties": {"animal": {"enum": ["fox", "owl"]}},
                   "required": ["animal"], "additionalProperties": False}}}
COUNT: Tool = {"type": "function", "function": {
    "name": "count_trees", "strict": True,
    "parameters": {"type": "object", "properties": {"most": {"enum": [1, 2]}},
                   "required": ["most"], "additionalProperties": False}}}
QUESTION: list[Message] = [{"role": "user", "content": "Where is the fox?"}]


def test_a_named_tool_is_called_and_its_result_read(stories: hearth.Model) -> None:
    generation = stories.chat(QUESTION, tools=[FIND, COUNT], tool_choice="find_animal",
                              max_tokens=200, temperature=0)
    assert list(generation) == [], "a call is no text"
    result = generation.result()
    assert result.finish_reason == "tool_calls"
    assert result.text == ""
    [call] = result.tool_calls
    assert call.name == "find_animal"
    assert call.id.startswith("call_")
    assert call.arguments["animal"] in {"fox", "owl"}
    assert '"animal"' in call.arguments_json

    messages = [*QUESTION, result.message,
                Message(role="tool", tool_call_id=call.id, content="It sleeps under a log.")]
    prompt = stories.encode_chat(messages, tools=[FIND, COUNT])
    read = stories.detokenize(prompt.tokens)
    assert "It sleeps under a log." in read
    assert read.count("find_animal") > read.count("count_trees"), "the call is told again"
    answer = stories.chat(messages, tools=[FIND, COUNT], tool_choice="none", max_tokens=5).result()
    assert answer.text
    assert answer.tool_calls == ()
    assert answer.message == {"role": "assistant", "content": answer.text}


def test_choices(stories: hearth.Model) -> None:
    required = stories.chat(QUESTION, tools=[FIND, COUNT], tool_choice="required",
                            parallel_tool_calls=False, max_tokens=200, seed=3).result()
    assert required.finish_reason == "tool_calls"
    [call] = required.tool_calls
    assert call.name in {"find_animal", "count_trees"}
    named = stories.chat(QUESTION, tools=[FIND, COUNT], max_tokens=200, tool_choice={
        "type": "function", "function": {"name": "count_trees"}}).result()
    assert [call.arguments["most"] in {1, 2} for call in named.tool_calls] == [True]
    assert named.tool_calls[0].id != call.id

    plain = stories.encode_chat(QUESTION)
    assert stories.encode_chat(QUESTION, tools=[FIND], tool_choice="none") == plain
    told = stories.encode_chat(QUESTION, tools=[FIND])
    assert "Says where an animal is." in stories.detokenize(told.tokens)
    assert stories.chat(QUESTION, tools=[FIND], max_tokens=3).result().tokens


def test_an_encoded_conversation_can_be_answered(stories: hearth.Model) -> None:
    prompt = stories.encode_chat(QUESTION, tools=[FIND], tool_choice="required")
    one = stories.generate(prompt, max_tokens=200, seed=5).result()
    other = stories.chat(QUESTION, tools=[FIND], tool_choice="required", max_tokens=200,
                         seed=5).result()
    assert one.tokens == other.tokens
    assert one.tool_calls[0].arguments == other.tool_calls[0].arguments


def test_a_call_that_was_cut_off(stories: hearth.Model) -> None:
    result = stories.chat(QUESTION, tools=[FIND], tool_choice="required", max_tokens=12,
                          temperature=0).result()
    assert result.finish_reason == "length"
    for call in result.tool_calls:
        with pytest.raises(hearth.Error, match="find_animal") as raised:
            print(call.arguments)
        assert raised.value.code is ErrorCode.CORRUPT


@pytest.mark.parametrize("written", ["", "{", "[1]", "5", "[" * 100_000])
def test_arguments_that_are_no_object(written: str) -> None:
    with pytest.raises(hearth.Error, match="arguments that are no JSON object"):
        print(hearth.ToolCall("call_1", "f", written).arguments)


@pytest.mark.parametrize(("arguments", "kind", "beginning"), [
    ({"tools": 5}, TypeError, "tools: expected"),
    ({"tools": [5]}, TypeError, "tools[0]: expected"),
    ({"tools": [{"type": "magic"}]}, hearth.Error, "tools[0].type: expected 'function'"),
    ({"tools": [{"type": "function"}]}, TypeError, "tools[0].function: expected"),
    ({"tools": [FIND, {"type": "function", "function": {}}]}, TypeError,
     "tools[1].function.name: expected"),
    ({"tools": [{"type": "function", "function": {"name": "no name"}}]}, hearth.Error,
     "tools: function 'no name'"),
    ({"tools": [FIND, FIND]}, hearth.Error, "tools: function 'find_animal'"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]}, TypeError,
     "tools[0].function.parameters: expected"),
    ({"tool_choice": "required"}, hearth.Error, "tool_choice: it needs tools"),
    ({"tools": [FIND], "tool_choice": "fly"}, hearth.Error, "tool_choice: expected 'auto'"),
    ({"tools": [FIND], "tool_choice": 5}, TypeError, "tool_choice: expected"),
    ({"chat_template_kwargs": {"messages": []}}, hearth.Error, "chat_template_kwargs.messages: "),
])
def test_what_makes_no_sense(stories: Any, arguments: dict[str, Any], kind: type[Exception],
                             beginning: str) -> None:
    with pytest.raises(kind) as raised:
        stories.chat(QUESTION, **arguments)
    assert str(raised.value).startswith(beginning)


def test_thoughts_are_no_text(thinking_path: Path) -> None:
    with hearth.Model(thinking_path, threads=1) as model:
        generation = model.chat(QUESTION, max_tokens=20, temperature=0)
        assert "<think>" in model.detokenize(model.encode_chat(QUESTION).tokens)
        result = generation.result()
        assert result.text == ""
        assert len(result.reasoning.split()) > 5
        assert generation.reasoning == result.reasoning
        assert result.message.get("reasoning_content") == result.reasoning
        said = model.chat(QUESTION, max_tokens=20, temperature=0,
                          chat_template_kwargs={"enable_thinking": False}).result()
        assert said.text
        assert said.reasoning == ""
