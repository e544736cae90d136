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

from page_browser import MODEL, PHONE, SCREENSHOTS, Page


class PageTest(Page):
    @classmethod
    def setUpClass(cls):
        cls.serve(MODEL)

    def test_ask_stop_regenerate_and_reload(self):
        self.ask("Tell me a story about a fox.")
        self.until(lambda: len(self.answer()) > 10)
        early = self.answer()
        self.until(lambda: len(self.answer()) > len(early))  # tokens arrive
        self.browser.save_screenshot(f"{SCREENSHOTS}/chat_desktop.png")
        self.find("#stop").click()
        self.until(lambda: self.note() == "stopped")
        stopped = self.answer()
        time.sleep(0.5)
        self.assertEqual(self.answer(), stopped)
        self.set("max_tokens", "20")
        self.find("#again").click()
        self.until(lambda: "20 tokens" in self.note())
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, ".assistant")), 1)
        told = self.answer()
        self.browser.refresh()
        self.until(lambda: self.answer() == told)
        self.assertIn("fox", self.find("#list").text)

    def test_keyboard_alone(self):
        self.ask("Tell me a story about a boat.")
        self.until(lambda: self.answer())
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.until(lambda: self.note() == "stopped")

    def test_the_live_view_moves(self):
        self.set("max_tokens", "150")
        self.ask("Tell me a story about a dog.")
        self.until(lambda: re.search(r"tokens per second\s+(?!0\.0\b)[\d.]+", self.find("#speed").text))
        self.assertIn("kv cache", self.find("#memory").text)
        self.assertIn("hearth-stories-5m", self.find("#model").text)
        self.assertTrue(self.find("#speed-chart polyline").get_attribute("points"))
        # Its FFNs are matrices.
        self.assertFalse(self.find("#map-section").is_displayed())

    def test_what_a_model_writes_is_no_html(self):
        self.browser.execute_script("""
            const box = document.createElement('div');
            markdown('<img src=x onerror=alert(1)> **bold** `code`\\n```\\n<b>\\n```\\n- one\\n- two',
                     box);
            window.made = box;""")
        html = self.browser.execute_script("return made.innerHTML")
        self.assertNotIn("<img", html)
        self.assertIn("<strong>bold</strong>", html)
        self.assertIn("<pre", html)
        self.assertEqual(html.count("<li>"), 2)

    def test_a_server_that_started_anew_counts_from_nothing(self):
        self.until(lambda: self.browser.execute_script("return last !== null"))
        shown = self.browser.execute_script("last.tokens.generated += 1000; return speeds.length")
        self.until(lambda: self.browser.execute_script("return speeds.length") > shown)
        self.assertGreaterEqual(self.browser.execute_script("return Math.min(...speeds)"), 0)

    # What becomes of a text in Markdown, without the attributes of code.
    def html(self, text):
        return self.browser.execute_script("""
            const box = document.createElement('div');
            markdown(arguments[0], box);
            return box.innerHTML;""", text).replace(' tabindex="0"', "")

    def test_numbers_in_a_text_are_no_list(self):
        text = "The war ended in\n1945. It was over."
        self.assertEqual(self.html(text), f"<p>{text}</p>")
        self.assertEqual(self.html("5*3 and 4*2"), "<p>5*3 and 4*2</p>")

    def test_lists(self):
        def items(*texts):
            return "".join(f"<li><span>{text}</span></li>" for text in texts)
        self.assertEqual(self.html("So:\n1. a\n2. b"),
                         f'<p>So:</p><ol start="1">{items("a", "b")}</ol>')
        self.assertEqual(self.html("1. a\n\nthen\n\n2. b"),
                         f'<ol start="1">{items("a")}</ol><p>then</p><ol start="2">{items("b")}</ol>')
        self.assertEqual(self.html("- a\n  - b\n  - c\n- d"),
                         f"<ul><li><span>a</span><ul>{items('b', 'c')}</ul></li>{items('d')}</ul>")
        self.assertEqual(self.html("1. a\n   - b\n2. c"),
                         f'<ol start="1"><li><span>a</span><ul>{items("b")}</ul></li>{items("c")}</ol>')

    def test_code(self):
        self.assertEqual(self.html("```py\n  x\n\n# y\n```\nz"),
                         "<pre><code>  x\n\n# y</code></pre><p>z</p>")
        self.assertEqual(self.html("- a\n  ```\n    x\n  ```\n- b"),
                         "<ul><li><span>a</span><pre><code>  x</code></pre></li><li><span>b</span></li></ul>")
        self.assertEqual(self.html("```\nnot yet"), "<pre><code>not yet</code></pre>")

    def test_errors_are_said(self):
        self.set("temperature", "9")
        self.ask("Hi")
        self.until(lambda: "temperature" in self.note())

    def test_axe_finds_nothing_and_phones_can_read_it(self):
        self.set("max_tokens", "12")
        self.ask("Tell me a story about a fox.")
        self.until(lambda: "12 tokens" in self.note())
        self.assertEqual(self.complaints(), [])
        self.browser.set_window_size(*PHONE)
        self.assertEqual(self.complaints(), [])
        width = self.browser.execute_script("return document.documentElement.scrollWidth")
        self.assertLessEqual(width, self.browser.execute_script("return window.innerWidth"))
        self.browser.save_screenshot(f"{SCREENSHOTS}/chat_phone.png")
        self.find("#show-live").click()
        self.assertTrue(self.find("#temperature").is_displayed())
        self.assertEqual(self.complaints(), [])
        self.browser.save_screenshot(f"{SCREENSHOTS}/live_phone.png")

    def test_phones_say_when_the_server_is_gone(self):
        self.browser.set_window_size(*PHONE)
        self.assertFalse(self.find("#model").is_displayed())
        self.browser.execute_script("window.fetch = () => Promise.reject(new Error())")
        self.until(lambda: self.find("#model").is_displayed())
        self.assertIn("does not answer", self.find("#model").text)
        self.assertEqual(self.complaints(), [])

    def test_it_asks_nobody_else(self):
        self.ask("Hi")
        self.until(lambda: self.answer())
        for entry in self.browser.get_log("performance"):
            for url in re.findall(r'"url":"(https?://[^"]+)"', entry["message"]):
                self.assertTrue(url.startswith(self.address), url)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
