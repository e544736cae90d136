"""Chooses a model on the chat page of a server that has several.

    test_page_models.py HEARTH MODEL SCREENSHOTS

scripts/test_page.sh makes the virtual environment and runs it.
"""
import shutil
import sys
import tempfile
import unittest

from selenium.webdriver.support.ui import Select

from page_browser import MODEL, Page


class ModelsTest(Page):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for name in ("first", "second"):
            shutil.copy(MODEL, f"{cls.folder.name}/{name}.gguf")
        cls.serve("first", "--models", cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def status(self):
        return self.find("#model").text

    def choice(self):
        if not self.find("#settings").is_displayed():
            self.find("#show-settings").click()
        return Select(self.find("#model-choice"))

    def test_another_model_answers_once_it_is_chosen(self):
        self.until(lambda: self.status().startswith("first \u00b7 context 512"))
        choice = self.choice()
        self.assertEqual([option.text for option in choice.options], ["first", "second"])
        self.assertEqual(self.complaints(), [])
        choice.select_by_visible_text("second")
        self.until(lambda: self.status() == "second")
        self.find("#show-settings").click()
        self.set("max_tokens", "20")
        self.ask("Tell me a story.")
        self.until(lambda: self.status().startswith("second \u00b7 context 512"))
        self.until(lambda: "20 tokens" in self.note())
        self.browser.refresh()
        self.until(lambda: self.status().startswith("second \u00b7 context 512"))
        self.assertEqual(self.choice().first_selected_option.text, "second")

    def test_new_models_can_be_chosen(self):
        self.until(lambda: self.status())
        shutil.copy(MODEL, f"{self.folder.name}/third.gguf")
        self.find("#show-settings").click()
        self.until(lambda: [option.text for option in self.choice().options][-1] == "third")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
