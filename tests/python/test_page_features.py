"""Uses what the chat page offers around an answer, with answers that the test writes.

    test_page_features.py HEARTH MODEL SCREENSHOTS

scripts/test_page.sh makes the virtual environment and runs it.
"""
import sys
import tempfile
import unittest
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from page_stage import STAGE, StagedPage


class FeaturesTest(StagedPage):
    def test_any_storage_leaves_a_page(self):
        whole = '{"id": "a", "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}'
        for kept in ("5", "{}", '"x"', "[null, 7, [], {}]", "[{", '[{"id": 5, "messages": {"length": 2}}]',
                     '[{"id": "b", "messages": [{"role": "user", "content": {"x": 1}}, null, 3, '
                     '{"role": "assistant", "content": ["y"]}, {"role": "tool", "content": "z"}]}]',
                     '[{"id": "b", "title": 5, "system": [], "messages": [{"role": "user", "content": "Q"}, '
                     '{"role": "assistant", "content": "A", "note": {}, "usage": {"prompt": "x"}, "from": -1, '
                     '"thinking": 3, "thoughtMs": "x", "fork": {"tails": [null, [null]], "at": 0}}]}]'):
            self.run_script("""
                localStorage.setItem('hearth.conversations', arguments[0]);
                for (const name of ['current', 'temperature', 'system', 'max_tokens'])
                  localStorage.setItem('hearth.' + name, '{"a": [1]}');
                sessionStorage.setItem('hearth.drafts', '[{}, 5]');
                sessionStorage.setItem('hearth.current', '[]');
                sessionStorage.setItem('hearth.key', '{}');""", kept)
            self.browser.refresh()
            self.until(lambda: self.texts(".welcome") or self.messages() == ["Q", "A"])
            self.assertEqual(self.find("#temperature").get_attribute("value"), "0.8")
        # What is sound stays, beside what is not.
        self.run_script("localStorage.setItem('hearth.conversations', arguments[0])", f"[4, {whole}]")
        self.browser.refresh()
        self.until(lambda: self.titles() == ["New conversation", "Q"])
        self.find("#list li:nth-child(2) .chat").click()
        self.assertEqual(self.messages(), ["Q", "A"])
        self.assertEqual([e["message"] for e in self.browser.get_log("browser") if e["level"] == "SEVERE"], [])

    def test_an_edited_question_keeps_both_ways(self):
        self.tell("One", "First")
        self.finish()
        self.tell("Two", "Second")
        self.finish()
        self.find("#question").send_keys(Keys.ARROW_UP)
        self.find(".edit textarea").send_keys(" anew")
        self.find(".edit .main").click()
        self.until(lambda: self.run_script("return answers.length") == 3)
        self.assertEqual(self.asked(), ["user: One", "assistant: First", "user: Two anew"])
        self.reply("say", "Third")
        self.finish()
        self.assertEqual(self.messages(), ["One", "First", "Two anew", "Third"])
        self.press("earlier", "user")
        self.assertEqual(self.messages(), ["One", "First", "Two", "Second"])
        self.browser.refresh()
        self.assertEqual(self.messages(), ["One", "First", "Two", "Second"])
        self.press("later", "user")
        self.assertEqual(self.messages(), ["One", "First", "Two anew", "Third"])
        self.assertIn("2/2", self.texts(".versions")[0])

    def test_an_edit_that_fails_is_not_lost(self):
        self.tell("One", "First")
        self.finish()
        self.press("edit", "user")
        self.find(".edit textarea").send_keys(" more")
        self.find(".edit .main").click()
        self.reply("lose")
        self.until(lambda: "does not answer" in self.note())
        self.assertEqual(self.find(".edit textarea").get_attribute("value"), "One more")
        self.find(".edit [data-act=cancel]").click()
        self.assertEqual(self.messages(), ["One", "First"])

    def test_branches(self):
        self.tell("One", "First")
        self.finish()
        self.tell("Two", "Second")
        self.finish()
        self.browser.find_elements(By.CSS_SELECTOR, "[data-act=branch]")[0].click()
        self.assertEqual(self.messages(), ["One", "First"])
        self.assertEqual(self.titles(), ["One (branch)", "One"])
        self.tell("Other", "Third")
        self.finish()
        self.assertEqual(self.in_storage(), [["One", "First", "Other", "Third"], ["One", "First", "Two", "Second"]])

    def test_thoughts_are_folded(self):
        self.ask("Why?")
        self.reply("think", "Let me ")
        self.until(lambda: self.texts(".thinking summary") == ["Thinking\u2026"])
        self.reply("think", "see.")
        self.reply("say", "Because.")
        self.until(lambda: self.answer() == "Because.")
        self.finish()
        self.assertFalse(self.find(".thought").is_displayed())
        self.find(".thinking summary").click()
        self.assertEqual(self.find(".thought").text, "Let me see.")
        self.shoot("thinking_desktop_light")
        # Tags within the text are the same; the model is not told its thoughts again.
        self.tell("And?", "<think>\nHm", "mm.\n</think>\n\nSo.")
        self.assertEqual(self.asked()[1], "assistant: Because.")

    def test_a_full_context_drops_the_oldest_turns(self):
        self.until(lambda: self.inside("live", "return it.numbers.now !== null"))  # its context is known: 512
        for i in range(3):
            self.tell(f"Question {i}", f"Answer {i} " + "word " * 40)
            self.reply("count", 100 * i + 50, 60)
            self.finish()
        self.assertEqual(self.texts(".forgotten"), [])
        # From what earlier answers took the page can tell that this does not fit.
        self.tell("Question 3 " + "long " * 60, "Answer 3")
        self.assertEqual(self.asked()[0], "user: Question 2")
        self.assertEqual(len(self.texts(".forgotten")), 1)
        self.assertEqual(self.browser.find_element(By.XPATH, "//*[@class='forgotten']/preceding-sibling::*[1]")
                         .get_attribute("data-index"), "3")
        self.finish()
        # What the server refuses is shortened turn by turn.
        self.ask("Question 4")
        self.until(lambda: self.run_script("return answers.length") == 5)
        self.reply("refuse", "too long", 400, "context_length_exceeded")
        self.until(lambda: self.run_script("return answers.length") == 6)
        self.assertTrue(self.asked()[0].startswith("user: Question 3"))
        self.reply("say", "Answer 4")
        self.finish()
        self.assertIn("Question 0", self.messages())

    def test_a_question_that_fits_nowhere_says_so(self):
        self.ask("Long")
        self.reply("refuse", "too long", 400, "context_length_exceeded")
        self.until(lambda: "longer than the model\u2019s context" in self.note())
        self.assertEqual(self.question(), "Long")

    def test_a_key_is_asked_for_in_place(self):
        self.run_script("""
            const before = window.fetch;
            window.fetch = (url, options) => url === '/v1/chat/completions' || options.headers.Authorization
                ? before(url, options) : Promise.resolve(Response.json({error: {message: 'no'}}, {status: 401}));""")
        self.ask("Hello")
        self.reply("refuse", "a key is needed", 401, "invalid_api_key")
        self.until(lambda: "wants a key" in self.note())
        self.assertEqual(self.complaints(), [])
        self.shoot("key_desktop_light")
        self.find("#key").send_keys("secret", Keys.ENTER)
        self.until(lambda: self.run_script("return answers.length") == 2)
        self.assertEqual(self.run_script("return answers[1].key"), "Bearer secret")
        self.reply("say", "Hi")
        self.finish()
        self.assertEqual(self.messages(), ["Hello", "Hi"])
        self.until(lambda: not self.find("#key-form").is_displayed())
        self.browser.refresh()
        self.assertEqual(self.inside("server", "return it.theKey()"), "secret")

    def test_what_failed_is_tried_again(self):
        for failure, words in ((("lose",), "does not answer"), (("refuse", "x", 429), "busy"),
                               (("refuse", "m: the model carries no chat template", 400), "--chat-format"),
                               (("refuse", "the disk", 503, "model_fault"), "the disk")):
            self.ask("Hello")
            self.until(lambda: self.find("#stop").is_displayed())
            self.reply(*failure)
            self.until(lambda: words in self.note())
            if "Try again" not in self.note():
                self.find("#question").clear()
                continue
            self.find(".failure [data-act=retry]").click()
            self.until(lambda: self.find("#stop").is_displayed())
            self.reply("say", "Hi")
            self.finish()
            self.assertEqual(self.asked()[-1], "user: Hello")

    def test_a_cut_answer_is_continued(self):
        self.tell("Count", "1 2 3")
        self.finish("the context is full", "length")
        self.press("continue")
        self.until(lambda: self.run_script("return answers.length") == 2)
        self.assertEqual(self.asked()[-1], "user: Continue.")

    def test_copies(self):
        self.run_script("""
            window.copied = [];
            navigator.clipboard.writeText = text => { copied.push(text); return Promise.resolve(); };""")
        self.ask("Show")
        self.reply("say", "Here:\n\n```py\nx = 1\n```\n")
        self.finish()
        self.until(lambda: self.texts("[data-act=copy-code]"))
        self.press("copy-code")
        self.press("copy")
        self.press("copy", "user")
        self.assertEqual(self.run_script("return copied"), ["x = 1", "Here:\n\n```py\nx = 1\n```\n", "Show"])
        self.assertEqual(self.texts(".user [data-act=copy]"), ["Copied"])

    def test_system_messages_belong_to_conversations(self):
        self.set("system", "Be brief.")
        self.tell("One", "a")
        self.assertEqual(self.asked(), ["system: Be brief.", "user: One"])
        self.finish()
        self.find("#new").click()
        self.set("system", "Be long.")
        self.tell("Two", "b")
        self.assertEqual(self.asked(), ["system: Be long.", "user: Two"])
        self.finish()
        self.find("#list li:nth-child(2) .chat").click()
        self.browser.refresh()
        self.run_script(STAGE)
        self.tell("Three", "c")
        self.assertEqual(self.asked()[0], "system: Be brief.")

    def test_search_and_titles(self):
        for question, answer in (("Foxes", "They are red."), ("Boats", "They float.")):
            self.find("#new").click()
            self.tell(question, answer)
            self.finish()
        self.find("#search").send_keys("RED")
        self.assertEqual(self.titles(), ["Foxes"])
        self.find("#search").send_keys("x")
        self.assertEqual(self.titles(), [])
        self.assertTrue(self.find("#list-none").is_displayed())
        self.find("#search").send_keys(Keys.BACKSPACE * 4)
        self.find("#list [aria-label^=Rename]").click()
        self.browser.switch_to.active_element.send_keys("Ships", Keys.ENTER)
        self.assertEqual(self.titles(), ["Ships", "Foxes"])
        self.browser.refresh()
        self.assertEqual(self.titles(), ["Ships", "Foxes"])
        self.assertEqual(self.complaints(), [])

    def test_export_and_import(self):
        self.tell("One", "First")
        self.finish()
        text = self.inside("conversations", "return it.exported()")
        markdown = self.inside("conversations", "return it.asMarkdown(it.conversation())")
        self.assertEqual(markdown, "# One\n\n## You\n\nOne\n\n## Model\n\nFirst\n")
        self.run_script("""
            window.saved = [];
            HTMLAnchorElement.prototype.click = function() { saved.push(this.download); };""")
        self.find("#export-all").click()
        self.find("#list [aria-label^=Export]").click()
        self.assertEqual(self.run_script("return saved"), ["hearth-conversations.json", "One.md"])
        with tempfile.TemporaryDirectory() as folder:
            for content, said in ((text, "Imported 1 conversation."), ("{", "not JSON"), ("[1]", "no conversations")):
                file = Path(folder, "file.json")
                file.write_text(content)
                self.find("#import-file").send_keys(str(file))
                self.until(lambda: said in self.find("#list-said").text)
        self.assertEqual(self.titles(), ["One", "One"])
        self.assertEqual(self.in_storage(), [["One", "First"], ["One", "First"]])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
