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

from page_browser import HEARTH, PHONE, Page


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
        refusal = subprocess.run([HEARTH, "serve", model, "--memory", "1M", "--session-dir", "none",
                                  *options], capture_output=True, text=True).stderr
        smallest = int(re.search(r"smallest that can is (\d+)M", refusal).group(1))
        cls.serve(model, "--memory", f"{smallest + 2}M", *options)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def setUp(self):
        super().setUp()
        # The browser's own list of requests ends at 250.
        self.run_script("""
            const fetched = window.fetch;
            window.asked = 0;
            window.fetch = (url, options) => {
              if (url.endsWith('/neurons')) window.asked++;
              return fetched(url, options);
            };""")
        self.find("#show-live").click()
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
        self.until(lambda: self.inside("neurons", "return it.picture().pass") == last)

    # By place, all, and how many there are.
    def counts(self):
        legend, text = self.find("#map-legend").text, self.find("#map-text").text
        places = re.search(r"always kept\s+([\d,]+)\s+.*read earlier\s+([\d,]+)\s+.*meanwhile\s+([\d,]+)", legend)
        said = re.fullmatch(r"For the last word the model used ([\d,]+) of ([\d,]+) neurons; (\d+) of 100 were "
                            r"already in memory, (\d+) came from the SSD meanwhile\.", text)
        self.assertTrue(places and said, legend + text)
        numbers = [int(part.replace(",", "")) for part in (*places.groups(), *said.groups())]
        self.assertEqual(sum(numbers[5:]), 100)
        self.assertAlmostEqual(numbers[6], 100 * numbers[2] / numbers[3], delta=0.51)
        return numbers[:5]

    # How much of each place's colour is on the canvas: the sum of the points' strengths.
    def ink(self):
        return self.run_script("""
            const canvas = document.getElementById('map'), context = canvas.getContext('2d');
            const style = getComputedStyle(document.documentElement);
            const hues = ['--pinned', '--cached', '--read'].map(name => {
              const probe = document.createElement('canvas').getContext('2d');
              probe.fillStyle = style.getPropertyValue(name);
              probe.fillRect(0, 0, 1, 1);
              return [...probe.getImageData(0, 0, 1, 1).data];
            });
            const data = context.getImageData(0, 0, canvas.width, canvas.height).data, sums = [0, 0, 0];
            for (let i = 0; i < data.length; i += 4) {
              if (data[i + 3] < 8) continue;  // too faint to tell its colour
              const far = hues.map(h => [0, 1, 2].reduce((sum, k) => sum + (h[k] - data[i + k]) ** 2, 0));
              sums[far.indexOf(Math.min(...far))] += data[i + 3];
            }
            return sums;""")

    def test_it_shows_where_neurons_were_and_draws_amounts(self):
        self.rest()
        *counts, computed, there = self.counts()
        self.assertEqual(there, self.LAYERS * self.NEURONS)
        self.assertTrue(0 < computed < there)
        self.assertEqual(sum(counts), computed)
        ink = self.ink()
        for count, part in zip(counts, ink):
            self.assertAlmostEqual(count / computed, part / sum(ink), delta=0.06)
        height = self.run_script("return document.documentElement.scrollHeight")
        self.assertLessEqual(height, self.run_script("return window.innerHeight"))
        for scheme in ("light", "dark"):
            self.scheme(scheme)
            self.assertEqual(self.complaints(), [])
            self.shoot(f"neurons_desktop_{scheme}")

    def test_the_keyboard_and_the_mouse_point_at_cells(self):
        self.rest()
        canvas = self.find("#map")
        canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        self.assertIn("Layer 1, neurons 32 to 47", self.find("#tip").text)
        self.assertIn("read from the SSD", self.find("#map-cell").get_attribute("textContent"))
        canvas.send_keys(Keys.END)
        self.assertIn("Layer 1, neurons 2,032 to 2,047", self.find("#tip").text)
        ActionChains(self.browser).move_to_element(canvas).perform()
        self.assertRegex(self.find("#tip").text, "Layer [56], neurons 1,0(08 to 1,023|24 to 1,039)")
        self.shoot("neurons_tip_desktop_light")
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
        self.assertIsNone(self.inside("neurons", "return it.picture()"))
        self.browser.execute_script("window.fetch = really")
        self.until(lambda: self.find("#map").is_displayed())

    def requests(self):
        return self.run_script("return window.asked")

    # Waits until the page asks no more for pictures; how many it asked for.
    def falls_silent(self):
        def silent():
            asked = self.requests()
            time.sleep(1.2)
            return self.requests() == asked
        self.until(silent)
        return self.requests()

    def test_nobody_is_asked_for_what_nobody_sees(self):
        self.find("#show-live").click()
        asked = self.falls_silent()
        self.find("#show-live").click()
        self.until(lambda: self.requests() > asked)

    def test_phones_show_a_strip_over_the_question(self):
        self.find("#show-live").click()
        self.resize(PHONE)
        self.until(lambda: self.find("#strip").is_displayed())
        self.rest()
        self.assertEqual(self.find("#strip").size["height"], 48)
        self.assertIn("For the last word the model used", self.find("#strip").get_attribute("aria-label"))
        self.assertEqual(self.complaints(), [])
        self.shoot("strip_phone_light")
        self.find("#strip").click()
        self.assertTrue(self.find("#map").is_displayed())
        self.assertFalse(self.find("#strip").is_displayed())
        self.assertEqual(self.overflow(), 0)
        self.assertEqual(self.complaints(), [])
        for scheme in ("light", "dark"):
            self.scheme(scheme)
            self.shoot(f"neurons_phone_{scheme}")

    # The synthesized model has no chat template: its completions come as a chat's answer.
    AS_CHAT = """
        const really = window.fetch, words = 'Once upon a time there was a fox'.split(' ');
        let count = 0;
        window.fetch = async (url, options) => {
          if (url !== '/v1/chat/completions') return really(url, options);
          const response = await really('/v1/completions', {...options, body: JSON.stringify({
              prompt: [5, 6, 7], max_tokens: 40, stream: true, logit_bias: {1: -100, 2: -100}})});
          const retold = new TransformStream({transform(text, to) {
            to.enqueue(text.replace(/"text":"(?:[^"\\\\]|\\\\.)*"/g, () =>
                `"delta":{"content":"${words[count++ % words.length]} "}`));
          }});
          return new Response(response.body.pipeThrough(new TextDecoderStream()).pipeThrough(retold)
              .pipeThrough(new TextEncoderStream()));
        };"""

    def test_an_answer_is_replayed_word_by_word(self):
        self.rest()
        self.run_script(self.AS_CHAT)
        self.ask("Tell me")
        self.until(lambda: self.find("#replay").is_displayed())
        seen = self.browser.find_elements(By.CSS_SELECTOR, "#replay-words [data-record]")
        self.assertGreater(len(seen), 4)
        seen[1].click()
        self.assertIn("\u201c" + seen[1].text.strip() + "\u201d", self.find("#map-title").text)
        self.assertTrue(self.find("#map-text").text.startswith("For this word the model used"))
        shown = "return it.picture().pass"
        first = self.inside("neurons", shown)
        self.find("#replay-at").send_keys(Keys.ARROW_RIGHT)
        self.assertGreater(self.inside("neurons", shown), first)
        self.assertEqual(self.complaints(), [])
        self.shoot("replay_desktop_light")
        self.find("#replay-at").send_keys(Keys.HOME)
        begin = self.inside("neurons", shown)
        self.find("#replay-play").click()
        self.until(lambda: self.inside("neurons", shown) > begin)
        self.find("#replay-now").click()
        self.assertIn("For the last word", self.find("#map-text").text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
