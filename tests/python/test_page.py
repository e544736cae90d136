"""Uses the chat page in headless Chromium, as a person would.

    test_page.py HEARTH MODEL SCREENSHOTS

scripts/test_page.sh makes the virtual environment and runs it. Screenshots at desktop and phone width
are written to the folder SCREENSHOTS.
"""
import re
import sys
import time
import unittest

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from page_browser import DESKTOP, MODEL, PHONE, Page


class PageTest(Page):
    @classmethod
    def setUpClass(cls):
        cls.serve(MODEL)

    def test_ask_stop_regenerate_and_reload(self):
        self.until(lambda: "hearth-stories-5m" in self.find(".welcome h2").text)
        self.shoot("empty_desktop_light")
        self.ask("Tell me a story about a fox.")
        self.until(lambda: len(self.answer()) > 10)
        early = self.answer()
        self.until(lambda: len(self.answer()) > len(early))  # tokens arrive
        self.shoot("chat_desktop_light")
        self.find("#stop").click()
        self.until(lambda: self.note() == "stopped")
        stopped = self.answer()
        time.sleep(0.5)
        self.assertEqual(self.answer(), stopped)
        self.set("max_tokens", "20")
        self.find("[data-act=again]").click()
        self.until(lambda: "20 tokens" in self.note())
        self.assertRegex(self.note(), r"first word after \d+\.\d s . \d+\.\d tokens per second")
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, ".assistant")), 1)
        told = self.answer()
        self.assertRegex(self.find("#room-text").text, r"Context: \d+ of 512 tokens, \d+ left")
        self.browser.refresh()
        self.until(lambda: self.answer() == told)
        self.assertIn("fox", self.find("#list").text)

    def test_a_conversation_goes_on_when_its_context_is_full(self):
        self.set("max_tokens", "40")
        # Two of these are longer than the context of 512 tokens, whatever the first answer takes of it.
        story = "Tell me a story about a fox and a boat and a dog and a bird. " * 15
        for i, question in enumerate(("First: ", "Second: ")):
            self.ask(question + story)
            self.until(lambda: len(self.browser.find_elements(By.CSS_SELECTOR, ".assistant .actions")) == i + 1)
        self.assertIn("no longer sees", self.find(".forgotten").text)
        self.assertEqual(self.texts(".failure"), [])
        self.shoot("full_context_desktop_light")
        self.ask("Longer than all of it. " * 150)
        self.until(lambda: self.texts(".failure"))
        self.assertIn("Shorten it", self.note())

    def test_keyboard_alone(self):
        self.ask("Tell me a story about a boat.")
        self.until(lambda: self.answer())
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.until(lambda: self.note() == "stopped")
        self.browser.switch_to.active_element.send_keys(Keys.ARROW_UP)
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("value"),
                         "Tell me a story about a boat.")
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE, Keys.CONTROL, "k")
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "search")

    def test_the_live_view_moves_and_shows_nothing_that_means_nothing_here(self):
        self.set("max_tokens", "150")
        self.find("#show-live").click()
        self.ask("Tell me a story about a dog.")
        self.until(lambda: re.search(r"tokens per second\s+(?!0\.0\b)[\d.]+", self.find("#speed").text))
        self.assertRegex(self.find("#gauge").text, r"^[\d.]+ tok/s$")
        self.assertIn("are set aside", self.find("#memory-text").text)
        self.find("#live details:not(#map-details) > summary + dl").find_element(By.XPATH, "..").click()
        self.assertIn("kv cache", self.find("#memory").text)
        self.assertIn("hearth-stories-5m", self.find("#model").text)
        self.assertTrue(self.find("#speed-chart polyline").get_attribute("points"))
        # Its FFNs are matrices, all in memory.
        for hidden in ("#map-section", "#hits", "#strip"):
            self.assertFalse(self.find(hidden).is_displayed(), hidden)
        self.assertNotIn("SSD", self.find("#live").text)

    def test_a_server_that_started_anew_counts_from_nothing(self):
        count = "return it.history.speeds.length"
        self.until(lambda: self.inside("live", "return it.numbers.now !== null"))
        shown = self.inside("live", "it.numbers.now.tokens.generated += 1000; " + count)
        self.until(lambda: self.inside("live", count) > shown)
        self.assertGreaterEqual(self.inside("live", "return Math.min(...it.history.speeds)"), 0)

    def test_errors_are_said_and_lead_to_the_setting(self):
        self.set("temperature", "9")
        self.ask("Hi")
        self.until(lambda: "Temperature" in self.note())
        self.find(".failure [data-act=settings]").click()
        self.assertTrue(self.find("#temperature").is_displayed())
        self.find("#defaults").click()
        self.set("seed", "1")
        self.set("max_tokens", "3")
        self.find("#question").send_keys(Keys.ENTER)
        self.until(lambda: "3 tokens" in self.note())

    def test_axe_finds_nothing_and_phones_can_read_it(self):
        self.set("max_tokens", "12")
        self.ask("Tell me a story about a fox.")
        self.until(lambda: "12 tokens" in self.note())
        for size, where in ((DESKTOP, "desktop"), (PHONE, "phone")):
            self.resize(size)
            for drawer in ("live", "settings", "list"):
                if not self.find("#show-" + drawer).is_displayed():
                    continue
                self.find("#show-" + drawer).click()
                self.assertEqual(self.complaints(), [], (where, drawer))
                self.assertEqual(self.overflow(), 0)
                for scheme in ("light", "dark"):
                    self.scheme(scheme)
                    self.shoot(f"{drawer}_{where}_{scheme}")
                self.scheme("light")
                self.find("#show-" + drawer).click()
            self.shoot(f"answer_{where}_light")
        self.find("#show-settings").click()
        # The answer stays in sight beside the drawer.
        box, drawer = self.find("#messages").rect, self.find("#settings").rect
        self.assertGreater(box["height"], 150)
        self.assertLessEqual(box["y"] + box["height"], drawer["y"])
        small = [b.get_attribute("id") for b in self.browser.find_elements(By.CSS_SELECTOR, "button")
                 if b.is_displayed() and b.size["height"] < 44]
        self.assertEqual(small, [])

    def test_phones_say_when_the_server_is_gone(self):
        self.resize(PHONE)
        self.until(lambda: "context" in self.find("#model").text)
        self.run_script("window.fetch = () => Promise.reject(new TypeError('gone'))")
        self.until(lambda: "does not answer" in self.find("#model").text)
        self.assertEqual(self.complaints(), [])
        self.shoot("gone_phone_light")

    def test_it_asks_nobody_else_and_loads_what_it_needs_when_it_needs_it(self):
        self.browser.get_log("performance")
        self.browser.refresh()
        self.until(lambda: "context" in self.find("#model").text)
        seen = self.asked_for()
        self.assertIn(self.address + "/page/main.js", seen)
        self.assertFalse([url for url in seen if "/lib/" in url])
        self.ask("Hi")
        self.until(lambda: self.answer())
        seen = self.asked_for()
        self.assertEqual({url for url in seen if "/lib/" in url}, {self.address + "/page/lib/marked.js"})
        for url in seen:
            self.assertTrue(url.startswith(self.address), url)

    # Addresses of requests since the last call.
    def asked_for(self):
        return {url for entry in self.browser.get_log("performance")
                for url in re.findall(r'"url":"(https?://[^"]+)"', entry["message"])}


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
