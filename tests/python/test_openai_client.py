"""Drives `hearth serve` with the official client of the OpenAI API.

    test_openai_client.py HEARTH MODEL

scripts/test_openai.sh makes the virtual environment and runs it.
"""
import contextlib
import io
import json
import math
import re
import signal
import subprocess
import sys
import textwrap
import threading
import unittest
from typing import Literal

import openai
import pydantic

HEARTH, MODEL = sys.argv[1:3]
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "parameters": {"type": "object", "properties": {
            "city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]
QUESTION = [{"role": "user", "content": "Tell me a story about a fox."}]


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen([HEARTH, "serve", MODEL, "--port", "0", "--parallel", "4",
                                       "--session-dir", "none"],
                                      stderr=subprocess.PIPE, text=True)
        for line in cls.server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        # What the server says later must not fill the pipe.
        threading.Thread(target=cls.server.stderr.read, daemon=True).start()
        cls.client = openai.OpenAI(base_url=found.group() + "/v1", api_key="none", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        assert cls.server.wait(60) == 0

    def chat(self, **more):
        return self.client.chat.completions.create(
            **{"model": self.model, "messages": QUESTION, "seed": 5, "max_tokens": 80, **more})

    def test_chat_and_stream_are_the_same(self):
        whole = self.chat()
        text, reasons, usage = "", [], None
        for event in self.chat(stream=True, stream_options={"include_usage": True}):
            usage = event.usage or usage
            for choice in event.choices:
                text += choice.delta.content or ""
                reasons.append(choice.finish_reason)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(reasons[-1], whole.choices[0].finish_reason)
        self.assertEqual(usage.total_tokens, whole.usage.total_tokens)
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)

    def test_seed_repeats_and_temperature_zero_is_greedy(self):
        first = self.chat(temperature=1.5).choices[0].message.content
        self.assertEqual(first, self.chat(temperature=1.5).choices[0].message.content)
        greedy = [self.client.chat.completions.create(
            model=self.model, messages=QUESTION, temperature=0, max_tokens=20, seed=seed)
            .choices[0].message.content for seed in (1, 2)]
        self.assertEqual(*greedy)

    def test_stop(self):
        text = self.chat().choices[0].message.content
        stopped = self.chat(stop=[text[10:16]]).choices[0]
        self.assertEqual(stopped.message.content, text[:10])
        self.assertEqual(stopped.finish_reason, "stop")

    def test_logprobs(self):
        choice = self.chat(logprobs=True, top_logprobs=3).choices[0]
        self.assertEqual("".join(t.token for t in choice.logprobs.content), choice.message.content)
        for token in choice.logprobs.content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)

    def test_several_answers(self):
        texts = [c.message.content for c in self.chat(n=3).choices]
        self.assertEqual(len(set(texts)), 3)

    def test_json_schema(self):
        class Weather(pydantic.BaseModel):
            city: Literal["Oslo", "Rome"]
            degrees: int = pydantic.Field(ge=-50, le=50)
            is_wet: bool

        # The client turns the class into a schema, and the answer into one of the class.
        parsed = self.client.chat.completions.parse(
            model=self.model, messages=QUESTION, seed=5, max_tokens=100,
            response_format=Weather).choices[0]
        self.assertEqual(parsed.finish_reason, "stop")
        self.assertIsInstance(parsed.message.parsed, Weather)
        with self.client.chat.completions.stream(model=self.model, messages=QUESTION, seed=5,
                                                 max_tokens=100, response_format=Weather) as stream:
            streamed = stream.get_final_completion().choices[0].message
        self.assertEqual(streamed.parsed, parsed.message.parsed)

    def test_json_object(self):
        choice = self.chat(response_format={"type": "json_object"}, max_tokens=100).choices[0]
        self.assertTrue(choice.message.content.startswith("{"))
        if choice.finish_reason == "stop":
            self.assertIsInstance(json.loads(choice.message.content), dict)

    def test_the_example_of_the_documentation(self):
        with open("docs/server.md", encoding="utf-8") as page:
            block = re.search(r"\n    from openai .*?\n(?=\n\S)", page.read(), re.DOTALL).group()
        address = str(self.client.base_url).rstrip("/")
        code = textwrap.dedent(block).replace("http://127.0.0.1:8080/v1", address)
        self.assertIn(address, code)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {})
        self.assertTrue(printed.getvalue().strip())

    def assert_calls_fit(self, calls):
        for call in calls:
            self.assertEqual(call.type, "function")
            self.assertTrue(call.id.startswith("call_"))
            arguments = json.loads(call.function.arguments)
            if call.function.name == "now":
                self.assertEqual(arguments, {})
            else:
                self.assertEqual(call.function.name, "weather")
                self.assertIn(arguments["city"], ("Oslo", "Rome"))

    def test_tools_that_must_be_called(self):
        named = {"type": "function", "function": {"name": "weather"}}
        for choice in ("required", named):
            answer = self.chat(tools=TOOLS, tool_choice=choice, n=2, max_tokens=180,
                               parallel_tool_calls=False).choices
            for one in answer:
                self.assertEqual(one.finish_reason, "tool_calls")
                self.assertIsNone(one.message.content)
                self.assertTrue(one.message.tool_calls)
                self.assert_calls_fit(one.message.tool_calls)
        self.assertEqual(answer[0].message.tool_calls[0].function.name, "weather")

    def test_tools_in_a_stream(self):
        # The client's own helper puts the parts together.
        with self.client.chat.completions.stream(model=self.model, messages=QUESTION, tools=TOOLS,
                                                 tool_choice="required", seed=5,
                                                 parallel_tool_calls=False) as stream:
            kinds = {event.type for event in stream}
            choice = stream.get_final_completion().choices[0]
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(len(choice.message.tool_calls), 1)
        self.assert_calls_fit(choice.message.tool_calls)
        whole = self.client.chat.completions.create(
            model=self.model, messages=QUESTION, tools=TOOLS, tool_choice="required", seed=5,
            parallel_tool_calls=False).choices[0].message
        self.assertEqual(whole.tool_calls[0].function.arguments,
                         choice.message.tool_calls[0].function.arguments)

    def test_tools_that_may_be_called(self):
        strict = [{"type": "function", "function": {**tool["function"], "strict": True}}
                  for tool in TOOLS]
        for tools in (TOOLS, strict):
            choice = self.chat(tools=tools, tool_choice="auto").choices[0]
            if choice.message.tool_calls:  # a model of stories does not
                self.assertEqual(choice.finish_reason, "tool_calls")
            else:
                self.assertTrue(choice.message.content)
        self.assertIsNone(self.chat(tools=TOOLS, tool_choice="none").choices[0].message.tool_calls)

    def test_results_of_tools(self):
        message = self.chat(tools=TOOLS, tool_choice="required", max_tokens=150,
                            parallel_tool_calls=False).choices[0].message
        results = [{"role": "tool", "tool_call_id": call.id, "content": "It rains."}
                   for call in message.tool_calls]
        answer = self.client.chat.completions.create(
            model=self.model, messages=[*QUESTION, message, *results], tools=TOOLS, seed=5,
            max_tokens=20)
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens, 0)
        with self.assertRaises(openai.BadRequestError) as bad:
            self.client.chat.completions.create(model=self.model, messages=[*QUESTION, *results])
        self.assertEqual(bad.exception.param, "messages[1].tool_call_id")

    def test_completions(self):
        answer = self.client.completions.create(model=self.model, prompt="Once upon a time",
                                                max_tokens=12, logprobs=2, seed=1)
        self.assertEqual(answer.usage.completion_tokens, 12)
        self.assertEqual("".join(answer.choices[0].logprobs.tokens), answer.choices[0].text)
        streamed = "".join(part.choices[0].text for part in self.client.completions.create(
            model=self.model, prompt="Once upon a time", max_tokens=12, seed=1, stream=True))
        self.assertEqual(streamed, answer.choices[0].text)

    def test_embeddings_in_both_formats(self):
        texts = ["A fox ran.", "The boat is red."]
        coded = self.client.embeddings.create(model=self.model, input=texts)  # base64 on the wire
        plain = self.client.embeddings.create(model=self.model, input=texts,
                                              encoding_format="float")
        for a, b in zip(coded.data, plain.data):
            self.assertTrue(all(math.isclose(x, y, abs_tol=1e-7)
                                for x, y in zip(a.embedding, b.embedding)))
            self.assertAlmostEqual(sum(x * x for x in b.embedding), 1, places=4)

    def test_errors_are_the_clients(self):
        with self.assertRaises(openai.BadRequestError) as bad:
            self.chat(temperature=1, top_p=7)
        self.assertEqual(bad.exception.param, "top_p")
        with self.assertRaises(openai.BadRequestError):
            self.chat(extra_body={"invented": 1})

    def test_any_model_name_is_answered_by_the_one_there_is(self):
        answer = self.client.chat.completions.create(model="gpt-4o", messages=QUESTION,
                                                     max_tokens=1)
        self.assertEqual(answer.model, self.model)

    def test_a_stream_that_is_closed_ends(self):
        stream = self.client.chat.completions.create(model=self.model, messages=QUESTION,
                                                     stream=True)
        next(iter(stream))
        stream.close()
        self.assertTrue(self.chat().choices[0].message.content)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
