"""Chats with `hearth run` inside tmux, as a person at a terminal would.

    test_terminal.py HEARTH MODEL

MODEL is models/hearth-stories-5m.gguf. scripts/test_terminal.sh runs it.
"""
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HEARTH, MODEL = (str(Path(path).resolve()) for path in sys.argv[1:3])
PATIENCE_S = 60
# Tokens at which answers of MODEL end, and those of the models that `synth` makes: without them they go on
# until they are stopped.
ENDS = [0, 1, 2, 2046, 2047]
SYNTH_ENDS = [1, 2]
# What follows every answer.
ANSWERED = " tok/s"


def endless(ids):
    return [word for id in ids for word in ("--logit-bias", f"{id}=-inf")]


class TerminalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hearth_terminal.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.socket = None
        self.chats = 0
        self.environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
        self.environment |= {"XDG_STATE_HOME": str(self.folder / "state"), "LC_ALL": "C.UTF-8"}
        self.addCleanup(self.stop)

    def tmux(self, *arguments, text=None, check=True):
        run = subprocess.run(["tmux", "-u", "-S", self.socket, "-f", "/dev/null", *arguments], check=False,
                             input=text, capture_output=True, text=True, env=self.environment)
        if check:
            self.assertEqual(run.returncode, 0, f"tmux {shlex.join(arguments)}: {run.stderr}")
        return run.stdout

    def stop(self):
        if self.socket:
            self.tmux("kill-server", check=False)

    def start(self, *arguments, model=MODEL):
        """Begins a chat in a new terminal, and waits for its first prompt."""
        self.stop()
        # A server that was told to stop answers at its socket for a while yet: each chat has its own.
        self.chats += 1
        self.socket = str(self.folder / f"tmux{self.chats}")
        command = shlex.join([HEARTH, "run", model, *arguments])
        self.tmux("set-option", "-g", "history-limit", "20000", ";", "new-session", "-d", "-x", "120", "-y", "40",
                  f"{command}; echo left with $?; exec sleep {2 * PATIENCE_S}")
        self.until(lambda: self.prompts() == 1, "no prompt")

    def screen(self):
        """All that is and was to be seen, wrapped lines joined."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-")

    def prompts(self):
        return sum(line.startswith(">") for line in self.screen().splitlines())

    def until(self, is_so, otherwise):
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            self.assertLess(time.monotonic(), end, f"{otherwise}:\n{self.screen()[-3000:]}")
            time.sleep(0.02)

    def see(self, words, times=1):
        self.until(lambda: self.screen().count(words) >= times, f"not seen {times} times: {words}")

    def type(self, text, *keys):
        if text:
            self.tmux("send-keys", "-l", text)
        if keys:
            self.tmux("send-keys", *keys)

    def paste(self, text):
        """As terminals paste: in brackets, where the program asked for them."""
        self.tmux("load-buffer", "-", text=text)
        self.tmux("paste-buffer", "-p", "-d")

    def leave(self):
        self.type("", "C-d")
        self.see("left with 0")

    def messages(self):
        """What the conversation holds after all that was typed so far."""
        path = self.folder / f"saved{time.monotonic_ns()}.json"
        self.type(f"/save {path}", "Enter")
        self.until(path.exists, "nothing was saved")
        return json.loads(path.read_text())["messages"]

    def long_model(self):
        """A model whose context no answer fills soon."""
        shape, model = self.folder / "shape.json", self.folder / "long.gguf"
        shape.write_text(json.dumps({
            "arch": "llama", "hidden_size": 32, "intermediate_size": 32, "num_layers": 1, "num_heads": 1,
            "num_kv_heads": 1, "vocab_size": 300, "context_length": 100000}))
        subprocess.run([HEARTH, "synth", "--shape", shape, "-o", model, "--quant", "f32"], check=True,
                       capture_output=True)
        return str(model)

    def test_a_long_paste_is_one_message(self):
        self.start("--chat-format", "llama-2", "--ctx", "60000", "-n", "4", model=self.long_model())
        lines = []
        while sum(len(line) + 1 for line in lines) < 20_000:
            lines.append(f"line {len(lines)} \tof a long text")
        text = "\n".join(lines)[:20_000].rstrip()
        self.assertGreater(len(text), 19_990)
        self.paste(text)
        self.type("", "Enter")
        self.see(ANSWERED)
        messages = self.messages()
        self.assertEqual([message["role"] for message in messages], ["user", "assistant"])
        self.assertEqual(messages[0]["content"], text)
        self.leave()

    def test_pasted_lines_are_one_question(self):
        self.start("-n", "4")
        self.paste("Tell me a story.\nIt has a fox.\nIt has a boat.\n")
        self.see("It has a boat.")
        self.assertNotIn(ANSWERED, self.screen(), "asked before Return was pressed")
        self.type(" And a bird.", "Enter")
        self.see(ANSWERED)
        messages = self.messages()
        self.assertEqual(len(messages), 2)
        self.assertEqual(messages[0]["content"], "Tell me a story.\nIt has a fox.\nIt has a boat. And a bird.")
        self.leave()

    def test_arrows_bring_back_what_was_asked_in_a_later_chat_too(self):
        self.start("-n", "2")
        for i, question in enumerate(("What is first?", "What is second?")):
            self.type(question, "Enter")
            self.see(ANSWERED, i + 1)
        self.type("", "Up", "Up")
        self.see("What is first?", 2)
        self.type("", "Enter")
        self.see(ANSWERED, 3)
        self.assertEqual([message["content"] for message in self.messages()[::2]],
                         ["What is first?", "What is second?", "What is first?"])
        self.leave()
        self.assertTrue((self.folder / "state/hearth/history").exists())
        self.start("-n", "2")
        self.type("", "Up", "Up")  # after what was saved
        self.see("What is first?")
        self.type("", "Enter")
        self.see(ANSWERED)
        self.assertEqual(self.messages()[0]["content"], "What is first?")
        self.leave()

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        self.start("--chat-format", "llama-2", "--ctx", "100000", "--isa", "scalar", *endless(SYNTH_ENDS),
                   model=self.long_model())
        for turn in (1, 2):
            before = len(self.screen())
            self.type("Hello!", "Enter")
            self.until(lambda start=before: len(self.screen()) > start + 200, "no answer comes")
            self.type("", "C-c")
            self.see(", stopped)", turn)
        self.type("half a question", "C-c")
        self.see("(Ctrl-D leaves)")
        self.leave()

    def test_a_full_context_leaves_out_the_oldest_turns(self):
        self.start("--ctx", "64", *endless(ENDS))
        self.type("Hello!", "Enter")
        self.see("cut at the length limit")
        self.type("Hello again!", "Enter")
        self.see("the context of 64 tokens is full: the 2 oldest of 3 messages are left out")
        self.see(ANSWERED, 2)
        self.leave()

    def test_a_saved_conversation_goes_on(self):
        self.start("-n", "8", "--system", "Be kind.")
        self.type("Tell me a story.", "Enter")
        self.see(ANSWERED)
        told = self.messages()
        self.assertEqual([message["role"] for message in told], ["system", "user", "assistant"])
        path = self.folder / "told.json"
        path.write_text(json.dumps({"messages": told}))
        self.leave()
        self.start("-n", "8")
        self.type(f"/load {path}", "Enter")
        self.see("going on after 2 messages")
        self.assertEqual(self.messages(), told)
        self.type("And then?", "Enter")
        self.see(ANSWERED)
        self.assertEqual(self.messages()[:3], told)
        self.assertEqual(len(self.messages()), 5)
        self.leave()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
