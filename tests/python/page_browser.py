"""What the tests of the chat page share: a server, and headless Chromium at its page.

Their arguments are HEARTH MODEL SCREENSHOTS; screenshots are written to the folder SCREENSHOTS.
"""
import re
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path

from axe_selenium_python import Axe
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

HEARTH, MODEL, SCREENSHOTS = sys.argv[1:4]
DESKTOP, PHONE = (1280, 800), (390, 844)


class Page(unittest.TestCase):
    @classmethod
    def serve(cls, model, *options):
        # Slow enough that a person could stop it.
        cls.server = subprocess.Popen(
            [HEARTH, "serve", model, "--port", "0", "--threads", "1", "--isa", "scalar",
             "--session-dir", "none", *options],
            stderr=subprocess.PIPE, text=True)
        for line in cls.server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        threading.Thread(target=cls.server.stderr.read, daemon=True).start()
        cls.address = found.group()
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.browser = webdriver.Chrome(
            options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.send_signal(signal.SIGTERM)
        assert cls.server.wait(60) == 0

    def setUp(self):
        self.resize(DESKTOP)
        self.scheme("light")
        self.browser.get(self.address)
        # The same answers in every run: one that happened to end early would fail what counts its tokens.
        self.browser.execute_script(
            "localStorage.clear(); sessionStorage.clear(); localStorage.setItem('hearth.seed', '1')")
        self.browser.refresh()

    # The page's own width and height, without the window's frame.
    def resize(self, size):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE})

    def shoot(self, name):
        self.browser.save_screenshot(f"{SCREENSHOTS}/{name}.png")

    # Runs a script; what it returns.
    def run_script(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    # The same with the page's module FILE.js as `it`.
    def inside(self, file, script, *arguments):
        return self.run_script(f"return import('/page/{file}.js').then(it => {{ {script} }})", *arguments)

    # Pixels by which anything but what scrolls by itself is wider than the page.
    def overflow(self):
        return self.run_script("""
            const log = document.getElementById('messages'), root = document.documentElement;
            return Math.max(root.scrollWidth - innerWidth, log.scrollWidth - log.clientWidth);""")

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def until(self, condition):
        # The page may exchange an element between finding and reading it.
        wait = WebDriverWait(self.browser, 60, ignored_exceptions=[StaleElementReferenceException])
        return wait.until(lambda _: condition())

    # At once: while an answer grows, its nodes come and go.
    def texts(self, selector):
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector)

    def answer(self):
        return ([""] + self.texts(".assistant [data-body]"))[-1]

    def note(self):
        return ([""] + self.texts(".assistant .note, .failure"))[-1]

    def ask(self, question):
        self.find("#question").send_keys(question, Keys.ENTER)

    def set(self, name, value):
        if not self.find("#settings").is_displayed():
            self.find("#show-settings").click()
        field = self.find("#" + name)
        field.clear()
        field.send_keys(value, Keys.TAB)
        self.find("#show-settings").click()

    def complaints(self):
        axe = Axe(self.browser)
        axe.inject()
        return [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in axe.run()["violations"]]

    def scheme(self, name):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": name}]})
