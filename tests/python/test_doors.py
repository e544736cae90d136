"""Drives `hearth serve` through the Responses API (official openai client) and the Messages API (official
anthropic client), and with requests as coding agents write them.

    test_doors.py HEARTH MODEL

scripts/test_openai.sh makes the virtual environment and runs it.
"""
import json
import re
import signal
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

import anthropic
import openai

HEARTH, MODEL = sys.argv[1:3]
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
           "required": ["city"], "additionalProperties": False}
QUESTION = "Tell me a story about a fox."
# The Anthropic client of 2026 has no argument for it; the API has the field.
GREEDY = {"temperature": 0}


class DoorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen([HEARTH, "serve", MODEL, "--port", "0", "--parallel", "4",
                                       "--session-dir", "none"],
                                      stderr=subprocess.PIPE, text=True)
        for line in cls.server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        threading.Thread(target=cls.server.stderr.read, daemon=True).start()
        cls.url = found.group()
        cls.openai = openai.OpenAI(base_url=cls.url + "/v1", api_key="none", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.url, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        assert cls.server.wait(60) == 0

    def respond(self, **more):
        return self.openai.responses.create(
            **{"model": "any", "input": QUESTION, "temperature": 0, "max_output_tokens": 40, **more})

    def message(self, **more):
        return self.anthropic.messages.create(
            **{"model": "any", "messages": [{"role": "user", "content": QUESTION}],
               "extra_body": GREEDY, "max_tokens": 40, **more})

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json", "x-api-key": "none"})
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode()

    # Responses

    def test_response_is_the_answer_of_a_chat(self):
        chat = self.openai.chat.completions.create(
            model="any", messages=[{"role": "user", "content": QUESTION}], temperature=0,
            max_tokens=40)
        response = self.respond()
        self.assertEqual(response.output_text, chat.choices[0].message.content)
        self.assertEqual(response.usage.output_tokens, chat.usage.completion_tokens)
        cut = chat.choices[0].finish_reason == "length"
        self.assertEqual(response.status, "incomplete" if cut else "completed")
        if cut:
            self.assertEqual(response.incomplete_details.reason, "max_output_tokens")

    def test_response_stream_builds_the_same(self):
        whole = self.respond()
        deltas, numbers, last = "", [], None
        with self.openai.responses.create(model="any", input=QUESTION, temperature=0,
                                          max_output_tokens=40, stream=True) as stream:
            for event in stream:
                numbers.append(event.sequence_number)
                if event.type == "response.output_text.delta":
                    deltas += event.delta
                last = event
        self.assertEqual(numbers, list(range(len(numbers))))
        self.assertIn(last.type, ("response.completed", "response.incomplete"))
        self.assertEqual(deltas, whole.output_text)
        self.assertEqual(last.response.output_text, whole.output_text)
        self.assertEqual(last.response.usage.total_tokens, whole.usage.total_tokens)

    def test_response_goes_on_after_another(self):
        first = self.respond()
        second = self.respond(input="Go on.", previous_response_id=first.id)
        sent = self.respond(input=[{"role": "user", "content": QUESTION},
                                   {"role": "assistant", "content": first.output_text},
                                   {"role": "user", "content": "Go on."}])
        self.assertEqual(second.output_text, sent.output_text)
        self.assertEqual(second.usage.input_tokens, sent.usage.input_tokens)
        self.assertEqual(second.previous_response_id, first.id)
        unstored = self.respond(store=False)
        for lost in (unstored.id, "resp_nothing"):
            with self.assertRaises(openai.NotFoundError) as refused:
                self.respond(previous_response_id=lost)
            self.assertEqual(refused.exception.body["code"], "previous_response_not_found")

    def test_response_calls_a_tool_and_reads_its_result(self):
        tools = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}]
        for stream in (False, True):
            if stream:
                with self.openai.responses.stream(model="any", input=QUESTION, tools=tools,
                                                  tool_choice="required", parallel_tool_calls=False,
                                                  temperature=0) as events:
                    response = events.get_final_response()
            else:
                response = self.respond(tools=tools, tool_choice="required", max_output_tokens=100)
            call = response.output[-1]
            self.assertEqual((call.type, call.name), ("function_call", "weather"))
            self.assertIn(json.loads(call.arguments)["city"], ("Oslo", "Rome"))
        after = self.respond(tools=tools, input=[
            {"role": "user", "content": QUESTION}, call.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}])
        self.assertGreater(after.usage.input_tokens, response.usage.input_tokens)

    def test_response_keeps_to_a_schema(self):
        response = self.respond(max_output_tokens=100, text={"format": {
            "type": "json_schema", "name": "w", "schema": WEATHER, "strict": True}})
        self.assertIn(json.loads(response.output_text)["city"], ("Oslo", "Rome"))

    def test_response_errors_name_the_field(self):
        for more, field in (({"temperature": 3}, "temperature"), ({"tools": [{"type": "web_search"}]}, "tools"),
                            ({"background": True}, "background")):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.respond(**more)
            self.assertIn(field, str(refused.exception))

    # Messages

    def test_message_and_its_stream_are_the_same(self):
        whole = self.message()
        with self.anthropic.messages.stream(
                model="any", messages=[{"role": "user", "content": QUESTION}],
                extra_body=GREEDY, max_tokens=40) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        counted = self.anthropic.messages.count_tokens(
            model="any", messages=[{"role": "user", "content": QUESTION}])
        usage = whole.usage
        self.assertEqual(counted.input_tokens,
                         usage.input_tokens + (usage.cache_read_input_tokens or 0))

    def test_message_stops_at_a_text(self):
        text = self.message().content[0].text
        stopped = self.message(stop_sequences=[text[8:14]])
        self.assertEqual(stopped.content[0].text, text[:8])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", text[8:14]))
        self.assertEqual(self.message(max_tokens=3).stop_reason, "max_tokens")

    def test_message_uses_a_tool(self):
        tools = [{"name": "weather", "description": "The weather.", "input_schema": WEATHER}]
        choice = {"type": "tool", "name": "weather"}
        used = self.message(tools=tools, tool_choice=choice, max_tokens=100)
        self.assertEqual(used.stop_reason, "tool_use")
        block = used.content[-1]
        self.assertIn(block.input["city"], ("Oslo", "Rome"))
        with self.anthropic.messages.stream(
                model="any", messages=[{"role": "user", "content": QUESTION}], tools=tools,
                tool_choice=choice, max_tokens=100) as stream:
            self.assertIn(stream.get_final_message().content[-1].input["city"], ("Oslo", "Rome"))
        after = self.message(tools=tools, messages=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": [block.model_dump()]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id,
                                          "content": [{"type": "text", "text": "Rain."}]}]}])
        self.assertEqual(after.role, "assistant")

    def test_message_errors_have_their_form(self):
        with self.assertRaises(anthropic.BadRequestError) as refused:
            self.message(extra_body={"temperature": 2})
        self.assertEqual(refused.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.BadRequestError):
            self.message(messages=[{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "http://x"}}]}])
        with self.assertRaises(anthropic.BadRequestError) as full:
            self.message(messages=[{"role": "user", "content": "fox " * 2000}])
        self.assertIn("maximum context length", str(full.exception))

    # Requests as agents write them.

    def test_a_coding_agent_on_responses(self):
        stream = self.post("/v1/responses", {
            "model": "gpt-5-codex", "instructions": "You are a coding agent.",
            "input": [{"type": "message", "role": "developer", "content": [
                           {"type": "input_text", "text": "Be brief."}]},
                      {"type": "message", "role": "user", "content": [
                           {"type": "input_text", "text": QUESTION}]}],
            "tools": [{"type": "function", "name": "shell", "description": "Runs a command.",
                       "strict": False, "parameters": {"type": "object", "properties": {
                           "command": {"type": "array", "items": {"type": "string"}},
                           "timeout_ms": {"type": "number"}}, "required": ["command"]}},
                      {"type": "custom", "name": "apply_patch", "description": "Edits files.",
                       "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}],
            "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": {"effort": "medium"},
            "store": False, "stream": True, "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "1", "max_output_tokens": 30})
        events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
        self.assertEqual(events[0]["type"], "response.created")
        self.assertIn(events[-1]["type"], ("response.completed", "response.incomplete"))
        names = re.findall(r"^event: (.+)$", stream, re.M)
        self.assertEqual(names, [event["type"] for event in events])

    def test_a_custom_tool_gets_a_text(self):
        answer = json.loads(self.post("/v1/responses", {
            "model": "any", "input": QUESTION, "max_output_tokens": 200, "temperature": 0,
            "tools": [{"type": "custom", "name": "patch", "description": "Edits."}],
            "tool_choice": {"type": "custom", "name": "patch"}}))
        item = answer["output"][-1]
        self.assertEqual((item["type"], item["name"]), ("custom_tool_call", "patch"))
        self.assertIsInstance(item["input"], str)

    def test_a_coding_agent_on_messages(self):
        stream = self.post("/v1/messages?beta=true", {
            "model": "claude-sonnet-4-5", "max_tokens": 30, "stream": True, "temperature": 1,
            "system": [{"type": "text", "text": "You are a coding agent.",
                        "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>None.</system-reminder>"},
                {"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]}],
            "tools": [{"name": "Bash", "description": "Runs a command.", "input_schema": {
                "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
                "required": ["command"], "additionalProperties": False},
                "cache_control": {"type": "ephemeral"}}],
            "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 1024}})
        names = re.findall(r"^event: (.+)$", stream, re.M)
        self.assertEqual(names[0], "message_start")
        self.assertEqual(names[-2:], ["message_delta", "message_stop"])

    def test_what_is_missing_is_said_in_their_words(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.post("/v1/messages", {"model": "any"})
        self.assertEqual(json.load(refused.exception)["type"], "error")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
