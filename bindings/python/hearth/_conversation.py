"""Conversations and tools, as the native part takes them: OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._arguments import _refused, _wrong_type, each, json_text, text


def _mapping(value: object, name: str, expected: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _wrong_type(name, expected, value)
    return value


def _function_of(value: object, name: str) -> Mapping[Any, Any]:
    """Of {"type": "function", "function": {...}}, the function."""
    outer = _mapping(value, name, "a mapping with a type and a function")
    if outer.get("type") != "function":
        raise _refused(f"{name}.type", "expected 'function': there are no others")
    return _mapping(outer.get("function"), f"{name}.function", "a mapping with a name")


def _calls(values: object, name: str) -> list[dict[str, bytes]]:
    calls = []
    for i, value in enumerate(each(values, name, "a list of calls")):
        path = f"{name}[{i}]"
        function = _function_of(value, path)
        calls.append({"id": text(value.get("id"), f"{path}.id"),
                      "name": text(function.get("name"), f"{path}.function.name"),
                      "arguments": text(function.get("arguments"), f"{path}.function.arguments")})
    return calls


def messages(conversation: object) -> list[dict[str, Any]]:
    checked: list[dict[str, Any]] = []
    called: set[bytes] = set()
    for i, value in enumerate(each(conversation, "messages", "a list of messages")):
        name = f"messages[{i}]"
        message = _mapping(value, name, "a mapping with a role and a content")
        if "role" not in message:
            raise _refused(name, "it needs a role")
        calls = _calls(message.get("tool_calls") or (), f"{name}.tool_calls")
        called.update(call["id"] for call in calls)
        content = message.get("content")
        if content is None and calls:
            content = ""
        if content is None and "content" not in message:
            raise _refused(name, "it needs a content")
        call_id = text(message.get("tool_call_id", ""), f"{name}.tool_call_id")
        role = text(message["role"], f"{name}.role")
        if role == b"tool" and call_id not in called:
            raise _refused(f"{name}.tool_call_id", "expected the id of a call in a message before")
        checked.append({
            "role": role, "content": text(content, f"{name}.content"), "tool_calls": calls,
            "tool_call_id": call_id,
            "reasoning_content": text(message.get("reasoning_content", ""),
                                      f"{name}.reasoning_content")})
    return checked


def _tool(value: object, name: str) -> dict[str, Any]:
    function = _function_of(value, name)
    parameters = function.get("parameters")
    return {"name": text(function.get("name"), f"{name}.function.name"),
            "description": text(function.get("description") or "", f"{name}.function.description"),
            "parameters": (b"" if parameters is None
                           else json_text(parameters, f"{name}.function.parameters")),
            "strict": bool(function.get("strict"))}


def tool_options(tools: object, choice: object, parallel: object) -> dict[str, Any]:
    """choice: "auto", "none", "required", the name of a tool, or OpenAI's mapping for one."""
    listed = [_tool(tool, f"tools[{i}]")
              for i, tool in enumerate(each(tools, "tools", "a list of tools"))]
    options = {"tools": listed, "must_call": False, "function": b"", "parallel": bool(parallel)}
    if choice == "auto":
        return options
    if choice == "none":
        return {**options, "tools": []}
    if not listed:
        raise _refused("tool_choice", "it needs tools")
    options["must_call"] = True
    if choice == "required":
        return options
    name = choice if isinstance(choice, str) else _function_of(choice, "tool_choice").get("name")
    options["function"] = text(name, "tool_choice")
    if options["function"] not in (tool["name"] for tool in listed):
        raise _refused("tool_choice",
                       "expected 'auto', 'none', 'required' or the name of one of the tools")
    return options


def template_variables(variables: object) -> bytes:
    if variables is None:
        return b""
    return json_text(variables, "chat_template_kwargs")
