"""Looks at the picture of the neurons on the chat page.

    test_page_neurons.py HEARTH MODEL SCREENSHOTS

scripts/test_page.sh makes the virtual environment and runs it. Screenshots at desktop and phone width
are written to the folder SCREENSHOTS.
"""
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from pathlib import Path

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from page_browser import HEARTH, PHONE, SCREENSHOTS, Page


class NeuronMapTest(Page):
    """The picture of a model of which only a part is in memory."""
    LAYERS, NEURONS = 12, 2048
    SHAPE = {"hidden_size": 128, "intermediate_size": NEURONS, "num_layers": LAYERS, "num_heads": 4,
             "num_kv_heads": 2, "head_dim": 32, "vocab_size": 2000, "activation": "drelu"}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        shape, model = cls.folder.name + "/shape.json", cls.folder.name + "/sparse.gguf"
        Path(shape).write_text(json.dumps(cls.SHAPE))
        subprocess.run([HEARTH, "synth", "--shape", shape, "--active", "0.1", "--packed", "-o", model],
                       check=True, capture_output=True)
        options = ["--ctx", "512", "--parallel", "1", "--mode", "predicted"]
        refusal = subprocess.run([HEARTH, "serve", model, "--memory", "1M", *options],
                                 capture_output=True, text=True).stderr
        smallest = int(re.search(r"smallest that can is (\d+)M", refusal).group(1))
        cls.serve(model, "--memory", f"{smallest + 2}M", *options)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def setUp(self):
        super().setUp()
        self.scheme("light")
        self.resting = threading.Event()
        self.worker = threading.Thread(target=self.generate, daemon=True)
        self.worker.start()
        self.until(lambda: self.find("#map").is_displayed())

    def tearDown(self):
        self.rest()

    # Answers to others, one after the other.
    def generate(self):
        while not self.resting.is_set():
            request = {"prompt": [5, 6, 7], "max_tokens": 100, "logit_bias": {"1": -100, "2": -100}}
            urllib.request.urlopen(urllib.request.Request(
                self.address + "/v1/completions", json.dumps(request).encode(),
                {"Content-Type": "application/json"})).read()
            time.sleep(0.2)

    # Until the last picture is shown.
    def rest(self):
        self.resting.set()
        self.worker.join()
        with urllib.request.urlopen(self.address + "/v1/hearth/neurons") as response:
            last = json.load(response)["last_pass"]["pass"]
        self.until(lambda: self.browser.execute_script("return map.pass") == last)

    # Colours of the canvas, and how many points have each.
    def colours(self):
        return self.browser.execute_script("""
            const canvas = document.getElementById('map'), seen = {};
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            for (let i = 0; i < data.length; i += 4) {
              if (data[i + 3] === 0) continue;
              const colour = [data[i], data[i + 1], data[i + 2]].map(v => v >> 4).join();
              seen[colour] = (seen[colour] || 0) + 1;
            }
            return seen;""")

    # By place, all, and how many there are.
    def counts(self):
        text = self.find("#map-legend").text + " " + self.find("#map-text").text
        found = re.search(r"pinned in memory\s+([\d,]+) . [\d.]+%\s+found in the cache\s+([\d,]+) . "
                          r"[\d.]+%\s+read from storage\s+([\d,]+) . [\d.]+%\s+([\d,]+) of ([\d,]+) "
                          r"neurons were computed: [\d.]+%", text)
        self.assertTrue(found, text)
        return [int(part.replace(",", "")) for part in found.groups()]

    def test_it_shows_where_neurons_were(self):
        self.rest()
        *counts, computed, there = self.counts()
        self.assertEqual(there, self.LAYERS * self.NEURONS)
        self.assertTrue(0 < computed < there)
        self.assertEqual(sum(counts), computed)
        self.assertGreater(len(self.colours()), 1)
        height = self.browser.execute_script("return document.documentElement.scrollHeight")
        self.assertLessEqual(height, self.browser.execute_script("return window.innerHeight"))
        for scheme in ("light", "dark"):
            self.scheme(scheme)
            self.assertEqual(self.complaints(), [])
            self.browser.execute_script("document.getElementById('live').scrollTop = 0")
            self.browser.save_screenshot(f"{SCREENSHOTS}/neurons_{scheme}.png")

    def test_the_keyboard_and_the_mouse_point_at_cells(self):
        self.rest()
        canvas = self.find("#map")
        canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        self.assertIn("Layer 1, neurons 32 to 47", self.find("#tip").text)
        self.assertIn("read from storage", self.find("#map-cell").get_attribute("textContent"))
        canvas.send_keys(Keys.END)
        self.assertIn("Layer 1, neurons 2,032 to 2,047", self.find("#tip").text)
        ActionChains(self.browser).move_to_element(canvas).perform()
        self.assertRegex(self.find("#tip").text, "Layer [56], neurons 1,0(08 to 1,023|24 to 1,039)")
        self.browser.save_screenshot(f"{SCREENSHOTS}/neurons_tip.png")
        ActionChains(self.browser).move_to_element(self.find("#question")).perform()
        self.until(lambda: not self.find("#tip").is_displayed())

    def test_the_table_says_the_same(self):
        self.rest()
        self.find("#map-details summary").click()
        self.until(lambda: len(self.rows()) == self.LAYERS)
        counted = sum(int(cell.text.replace(",", "")) for row in self.rows()
                      for cell in row.find_elements(By.TAG_NAME, "td"))
        self.assertEqual(counted, self.counts()[3])
        self.assertEqual(self.complaints(), [])

    def rows(self):
        return self.browser.find_elements(By.CSS_SELECTOR, "#map-body tr")

    def test_it_moves_and_pauses(self):
        seen = self.find("#map-text").text
        self.until(lambda: self.find("#map-text").text != seen)
        self.find("#map-pause").click()
        asked = self.falls_silent()
        self.find("#map-pause").click()
        self.until(lambda: self.requests() > asked)

    def test_a_server_without_pictures_may_have_some_again(self):
        self.browser.execute_script("""
            window.really = window.fetch;
            window.fetch = (url, options) => url.endsWith('/neurons')
                ? Promise.resolve(Response.json({shape: null, last_pass: null}))
                : really(url, options);""")
        self.until(lambda: not self.find("#map").is_displayed())
        self.assertIsNone(self.browser.execute_script("return map"))
        self.browser.execute_script("window.fetch = really")
        self.until(lambda: self.find("#map").is_displayed())

    def requests(self):
        return self.browser.execute_script(
            "return performance.getEntriesByType('resource')"
            ".filter(e => e.name.endsWith('/neurons')).length")

    # Waits until the page asks no more for pictures; how many it asked for.
    def falls_silent(self):
        def silent():
            asked = self.requests()
            time.sleep(1.2)
            return self.requests() == asked
        self.until(silent)
        return self.requests()

    def test_phones_show_it_with_the_live_view(self):
        self.browser.set_window_size(*PHONE)
        asked = self.falls_silent()  # nobody sees it
        self.find("#show-live").click()
        self.until(lambda: self.requests() > asked)
        self.assertTrue(self.find("#map").is_displayed())
        width = self.browser.execute_script("return document.documentElement.scrollWidth")
        self.assertLessEqual(width, self.browser.execute_script("return window.innerWidth"))
        self.assertEqual(self.complaints(), [])
        self.browser.execute_script("document.getElementById('map-section').scrollIntoView()")
        self.browser.save_screenshot(f"{SCREENSHOTS}/neurons_phone.png")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
