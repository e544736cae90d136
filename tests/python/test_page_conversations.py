"""Asks on the chat page, with answers that the test writes.

    test_page_conversations.py HEARTH MODEL SCREENSHOTS

scripts/test_page.sh makes the virtual environment and runs it.
"""
import sys
import unittest

from selenium.webdriver.common.keys import Keys

from page_browser import DESKTOP, PHONE
from page_stage import STAGE, StagedPage


class ConversationsTest(StagedPage):
    def test_a_question_that_failed_comes_back(self):
        self.ask("Too long")
        self.reply("refuse", "it does not fit")
        self.until(lambda: self.note() == "it does not fit")
        self.assertEqual(self.question(), "Too long")
        self.assertEqual(self.messages(), [])
        self.find("#question").clear()
        self.tell("Short", "Yes.")
        self.assertEqual(self.asked(), ["user: Short"])
        self.finish()
        self.assertEqual(self.texts(".failure"), [])

    def test_stop_before_the_first_word_leaves_nothing(self):
        self.ask("Hello")
        self.until(lambda: self.find("#stop").is_displayed())
        self.find("#question").send_keys(Keys.ESCAPE)
        self.until(lambda: self.note() == "stopped")
        self.assertEqual((self.question(), self.messages(), self.in_storage()), ("Hello", [], []))

    def test_a_reload_keeps_what_had_come(self):
        self.tell("A story", "Once ")
        self.browser.refresh()
        self.assertEqual(self.messages(), ["A story", "Once"])
        self.assertEqual(self.note(), "not finished")
        self.run_script(STAGE)
        self.ask("Go on")
        self.until(lambda: "Go on" in self.messages())
        self.browser.refresh()
        self.assertEqual((self.question(), self.messages()), ("Go on", ["A story", "Once"]))

    def test_a_spoiled_conversation_is_mended(self):
        self.run_script("""
            const said = (role, content) => ({role, content});
            localStorage.setItem('hearth.conversations', JSON.stringify([{id: 'old', messages: [
                said('user', 'a'), said('assistant', 'b'), said('user', 'c'), said('assistant', '\\u2026'),
                said('user', 'd'), said('user', 'e'), said('assistant', 'f')]}]));
            sessionStorage.setItem('hearth.current', '"old"');""")
        self.browser.refresh()
        self.assertEqual(self.messages(), ["a", "b", "e", "f"])

    def test_regenerate_keeps_the_old_answer_until_there_is_a_new_one(self):
        self.tell("Who?", "An owl.")
        self.finish()
        self.press("again")
        self.until(lambda: self.run_script("return answers.length") == 2)
        self.assertIn("An owl.", self.messages())
        self.reply("refuse", "too busy")
        self.until(lambda: self.note() == "too busy")
        self.assertEqual(self.messages(), ["Who?", "An owl."])
        self.press("again")
        self.until(lambda: self.run_script("return answers.length") == 3)
        self.assertEqual(self.asked(), ["user: Who?"])
        self.reply("say", "A fox")
        self.until(lambda: self.messages() == ["Who?", "A fox"])
        self.finish("the context is full", "length")
        self.assertEqual(self.in_storage(), [["Who?", "A fox"]])

    def test_an_answer_goes_on_while_somebody_looks_around(self):
        self.tell("First", "One ")
        self.find("#new").click()
        self.until(lambda: self.messages() == [])
        self.assertTrue(self.find("#send").is_displayed())
        self.reply("say", "two")
        self.reply("end", "stop")
        self.until(lambda: self.in_storage() == [["First", "One two"]])
        self.tell("Second", "Yes")
        self.assertEqual(self.titles(), ["Second", "First"])
        self.find("#list li:nth-child(2) button").click()
        self.assertEqual(self.messages(), ["First", "One two"])
        self.find("#list [aria-label^=Delete]").click()
        self.assertEqual(self.titles(), ["Second"])
        self.assertIn("First", self.find("#undo-text").text)
        self.find("#undo").click()
        self.assertEqual(self.titles(), ["First", "Second"])
        self.assertEqual(self.messages(), ["First", "One two"])
        self.find("#list [aria-label^=Delete]").click()
        self.until(lambda: self.titles() == ["Second"])
        self.reply("say", ".")
        self.until(lambda: self.answer() == "Yes.")
        self.finish()

    def test_tabs_leave_each_others_conversations_alone(self):
        self.tell("Here", "a")
        self.finish()
        here = self.browser.current_window_handle
        self.browser.switch_to.new_window("tab")
        self.resize(DESKTOP)
        self.addCleanup(self.leave, here)
        self.browser.get(self.address)
        self.run_script(STAGE)
        self.find("#new").click()
        self.tell("There", "b")
        self.finish()
        self.assertEqual(self.in_storage(), [["There", "b"], ["Here", "a"]])
        self.browser.switch_to.window(here)
        self.until(lambda: self.titles() == ["There", "Here"])
        self.find("#list li:nth-child(1) .chat").click()
        self.find("#list [aria-label^=Delete]").click()
        self.assertEqual(self.titles(), ["Here"])
        self.tell("Once more", "c")
        self.finish()
        self.assertEqual(self.in_storage(), [["Here", "a", "Once more", "c"]])

    def leave(self, window):
        self.browser.close()
        others = self.browser.window_handles
        self.browser.switch_to.window(window if window in others else others[0])

    def test_full_storage_is_said(self):
        self.run_script("Storage.prototype.setItem = () => { throw new DOMException('full'); }")
        self.tell("Hello", "Hi")
        self.finish()
        self.assertIn("not kept", self.find("#model").text)

    def test_a_page_without_storage_works(self):
        closed = self.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": """
            for (const name of ['localStorage', 'sessionStorage'])
              Object.defineProperty(window, name, {get() { throw new DOMException('closed'); }});"""})
        self.addCleanup(self.browser.execute_cdp_cmd, "Page.removeScriptToEvaluateOnNewDocument", closed)
        self.browser.refresh()
        self.run_script(STAGE)
        self.tell("Hello", "Hi")
        self.finish()
        self.assertEqual(self.titles(), ["Hello"])

    def test_the_reader_stays_where_it_is(self):
        self.tell("Count", "\n\n".join(str(i) for i in range(99)))
        top = "return document.getElementById('messages').scrollTop"
        self.assertGreater(self.run_script(top), 0)
        self.run_script("document.getElementById('messages').scrollTop = 0")
        self.reply("say", "\n\nthe end")
        self.until(lambda: self.answer().endswith("the end"))
        self.finish()
        self.assertEqual(self.run_script(top), 0)

    def test_screen_readers_hear_an_answer_as_a_whole(self):
        said = "return document.getElementById('said').textContent"
        self.tell("Hello", "Good ", "day.")
        self.assertEqual(self.run_script(said), "")
        self.assertEqual(self.find(".assistant").get_attribute("aria-busy"), "true")
        self.finish()
        self.assertIn("Good day.", self.run_script(said))
        self.assertIsNone(self.find(".assistant").get_attribute("aria-busy"))

    def test_the_focus_follows_send_and_stop(self):
        focus = "return document.activeElement.id"
        self.find("#question").send_keys("Hello", Keys.TAB, Keys.ENTER)
        self.until(lambda: self.run_script(focus) == "stop")
        self.reply("say", "Hi")
        self.finish()
        self.assertEqual(self.run_script(focus), "send")

    def test_keys_that_compose_neither_send_nor_stop(self):
        press = """document.getElementById('question').dispatchEvent(
            new KeyboardEvent('keydown', {bubbles: true, key: arguments[0], ...arguments[1]}))"""
        self.find("#question").send_keys("Hello")
        for composing in ({"isComposing": True}, {"keyCode": 229}):
            self.run_script(press, "Enter", composing)
            self.assertEqual(self.question(), "Hello")
        self.find("#question").send_keys(Keys.ENTER)
        self.reply("say", "Hi")
        for composing in ({"isComposing": True}, {"keyCode": 229}):
            self.run_script(press, "Escape", composing)
        self.reply("say", " there")
        self.finish()
        self.assertEqual(self.answer(), "Hi there")

    def test_phones_break_lines(self):
        self.resize(PHONE)
        self.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setTouchEmulationEnabled",
                        {"enabled": False})
        self.until(lambda: self.inside("composer", "return it.isTouched.matches"))
        low = self.find("#question").size["height"]
        self.find("#question").send_keys("one", Keys.ENTER, "two", Keys.ENTER, "three")
        self.assertEqual(self.question(), "one\ntwo\nthree")
        self.assertGreater(self.find("#question").size["height"], low)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
