"""Drives `hearth serve` with libraries that agents are built with: each completes a call of a tool and
a structured answer.

    test_clients.py HEARTH MODEL

scripts/test_clients.sh makes the virtual environment and runs it. The model may be too small to choose
a tool by itself: where a library can demand a call it does.
"""
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import unittest
from typing import Literal

import pydantic

HEARTH, MODEL = sys.argv[1:3]
os.environ.update(OPENAI_API_KEY="none", LITELLM_LOCAL_MODEL_COST_MAP="True",
                  OPENAI_AGENTS_DISABLE_TRACING="1")
NAME = "gpt-4o-mini"  # what clients are set up with; there is one model, which answers
QUESTION = "How is the weather in Oslo?"
CITIES = Literal["Oslo", "Rome"]


class Weather(pydantic.BaseModel):
    city: CITIES
    is_raining: bool
    mood: Literal["glad", "sad"] | None = None


def weather(city: CITIES) -> str:
    """Tells the weather of a city."""
    called.append(city)
    return "It rains."


called: list[str] = []
TOOL = {"type": "function", "function": {
    "name": "weather", "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
                   "required": ["city"]}}}
FORMAT = {"type": "json_schema", "json_schema": {
    "name": "weather", "strict": True, "schema": {
        "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "is_raining": {"type": "boolean"}},
        "required": ["city", "is_raining"], "additionalProperties": False}}}


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen([HEARTH, "serve", MODEL, "--port", "0", "--ctx", "4096",
                                       "--session-dir", "none"],
                                      stderr=subprocess.PIPE, text=True)
        for line in cls.server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        threading.Thread(target=cls.server.stderr.read, daemon=True).start()
        cls.url = found.group() + "/v1"

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        assert cls.server.wait(60) == 0

    def setUp(self):
        called.clear()

    def assert_called(self):
        self.assertTrue(called)
        self.assertTrue(all(city in ("Oslo", "Rome") for city in called), called)

    def assert_weather(self, document):
        if isinstance(document, str):
            document = json.loads(document)
        Weather.model_validate(document if isinstance(document, dict) else document.model_dump())

    def test_autogen(self):
        from autogen_agentchat.agents import AssistantAgent
        from autogen_core import CancellationToken
        from autogen_core.models import UserMessage
        from autogen_core.tools import FunctionTool
        from autogen_ext.models.openai import OpenAIChatCompletionClient

        class Forced(OpenAIChatCompletionClient):
            """Demands a call while none was made."""
            async def create(self, messages, **more):
                if more.get("tools") and not called:
                    more["tool_choice"] = "required"
                return await super().create(messages, **more)

        def client(kind, **more):
            return kind(model="hearth", base_url=self.url, api_key="none", temperature=0, max_tokens=200,
                        model_info={"vision": False, "function_calling": True, "json_output": True,
                                    "structured_output": True, "family": "unknown"}, **more)

        async def run():
            agent = AssistantAgent("writer", client(Forced), reflect_on_tool_use=True, tools=[FunctionTool(
                weather, description="Tells the weather of a city.")])
            result = await agent.run(task=QUESTION)
            self.assertTrue(result.messages[-1].content)
            answer = await client(OpenAIChatCompletionClient).create(
                [UserMessage(content=QUESTION, source="user")], json_output=Weather,
                cancellation_token=CancellationToken())
            return answer.content

        document = asyncio.run(run())
        self.assert_called()
        self.assert_weather(document)

    def test_langchain(self):
        from langchain_core.messages import HumanMessage, ToolMessage
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI
        model = ChatOpenAI(model=NAME, base_url=self.url, api_key="none", temperature=0, max_tokens=200,
                           max_retries=0)
        bound = tool(weather)
        messages = [HumanMessage(QUESTION, name="asker")]
        messages.append(model.bind_tools([bound], tool_choice="weather").invoke(messages))
        for call in messages[-1].tool_calls:
            messages.append(ToolMessage(bound.invoke(call["args"]), tool_call_id=call["id"]))
        self.assert_called()
        self.assertTrue(model.bind_tools([bound]).invoke(messages).id)
        streamed = "".join(part.content for part in model.stream(messages[:1]))
        self.assertTrue(streamed)
        for method in ("json_schema", "function_calling"):
            self.assert_weather(model.with_structured_output(Weather, method=method).invoke(QUESTION))

    def test_litellm(self):
        import litellm
        def ask(messages, **more):
            return litellm.completion(model="openai/" + NAME, api_base=self.url, api_key="none",
                                      messages=messages, temperature=0, max_tokens=200, num_retries=0,
                                      user="u-1", metadata={"a": "b"}, **more).choices[0].message
        messages = [{"role": "user", "content": QUESTION}]
        answer = ask(messages, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
        messages.append(answer.model_dump())
        for call in answer.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "name": call.function.name,
                             "content": weather(**json.loads(call.function.arguments))})
        self.assert_called()
        self.assertIsNotNone(ask(messages, tools=[TOOL], tool_choice="none").content)
        self.assert_weather(ask(messages[:1], response_format=FORMAT).content)

    def test_instructor(self):
        import instructor
        import openai
        client = openai.OpenAI(base_url=self.url, api_key="none", max_retries=0)
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
            answer = instructor.from_openai(client, mode=mode).chat.completions.create(
                model=NAME, response_model=Weather, max_retries=0, max_tokens=300, temperature=0,
                messages=[{"role": "user", "content": QUESTION}])
            self.assert_weather(answer)

    def test_pydantic_ai(self):
        from pydantic_ai import Agent, NativeOutput, Tool, ToolOutput
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        model = OpenAIChatModel(NAME, provider=OpenAIProvider(base_url=self.url, api_key="none"))
        settings = {"temperature": 0, "max_tokens": 300}
        agent = Agent(model, output_type=ToolOutput(Weather), model_settings=settings)
        self.assert_weather(agent.run_sync(QUESTION).output)
        agent = Agent(model, output_type=NativeOutput(Weather), model_settings=settings)
        self.assert_weather(agent.run_sync(QUESTION).output)
        # A tool of the agent's: with an output by tool a call is demanded, which is sooner or later
        # this one; then the output is the only one left.
        async def while_not_called(_, definition):
            return None if called else definition
        for seed in range(1, 30):
            agent = Agent(model, tools=[Tool(weather, prepare=while_not_called)], output_type=ToolOutput(Weather),
                          model_settings={"max_tokens": 300, "seed": seed, "temperature": 1.0})
            self.assert_weather(agent.run_sync(QUESTION).output)
            if called:
                break
        self.assert_called()

    def test_openai_agents(self):
        import agents
        import openai
        client = openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)
        model = agents.OpenAIChatCompletionsModel(model=NAME, openai_client=client)
        agents.set_tracing_disabled(True)
        forced = agents.ModelSettings(tool_choice="weather", temperature=0, max_tokens=200)
        agent = agents.Agent(name="forecaster", instructions="Be brief.", model=model,
                             tools=[agents.function_tool(weather)], model_settings=forced)
        result = agents.Runner.run_sync(agent, QUESTION)
        self.assert_called()
        self.assertIsNotNone(result.final_output)

        class Strict(pydantic.BaseModel):
            city: CITIES
            is_raining: bool
        agent = agents.Agent(name="reporter", model=model, output_type=Strict,
                             model_settings=agents.ModelSettings(temperature=0, max_tokens=200))
        self.assert_weather(agents.Runner.run_sync(agent, QUESTION).final_output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2, warnings="ignore")
