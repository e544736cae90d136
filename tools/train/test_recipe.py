#!/usr/bin/env python3
"""Tests of the parts of the recipe that need no training: python -m unittest test_recipe"""

from __future__ import annotations

import random
import re
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch

from make_text import HELD_BACK_SEED, unwrap
from story_grammar.chat import WHY_ANSWERS, chat_turns, request
from story_grammar.compose import ALL_PLOTS, capitalize, compose, tidy, with_article
from story_grammar.practice import scene
from train import (
    FINAL_LR_SHARE, PRACTICE_END, Progress, Windows, learning_rate_share, practice_share, steer_penalty,
)
from vocabulary import BOS_ID

STORIES = 400
# Double spaces, unfilled fields, doubled or misplaced punctuation, "a" before a vowel.
BLEMISH = re.compile(r"  |[{}]|\.\.|,\.| [,.]|[?!][,.]| a [aeiou]| an [^aeiouh]|\"[.,]")


class StoryGrammarTest(unittest.TestCase):
    def test_equal_seeds_give_equal_stories(self) -> None:
        for seed in range(50):
            self.assertEqual(compose(seed).text, compose(seed).text)
            self.assertEqual(chat_turns(seed), chat_turns(seed))

    def test_text_has_no_blemish(self) -> None:
        for seed in range(STORIES):
            story = compose(seed)
            self.assertIsNone(BLEMISH.search(story.text), story.text)
            self.assertIsNone(BLEMISH.search(story.short), story.short)

    def test_every_plot_can_be_told_and_questioned(self) -> None:
        self.assertEqual(set(WHY_ANSWERS), {plot.key for plot in ALL_PLOTS})
        for plot in ALL_PLOTS:
            for seed in range(30):
                words = len(compose(seed, plot).text.split())
                self.assertTrue(120 <= words <= 340, f"{plot.key}: {words} words")

    def test_requests_name_what_the_story_holds(self) -> None:
        for seed in range(STORIES):
            story = compose(seed)
            asked = request(random.Random(seed), story).lower()
            for name in re.findall(r"named (\w+)", asked):
                self.assertIn(name, story.text.lower())

    def test_held_back_stories_are_new(self) -> None:
        trained = {compose(seed).text for seed in range(STORIES)}
        self.assertFalse(trained & {compose(HELD_BACK_SEED + i).text for i in range(STORIES)})

    def test_practice_scenes_have_no_blemish(self) -> None:
        for seed in range(STORIES):
            self.assertIsNone(BLEMISH.search(scene(seed)), scene(seed))

    def test_articles_and_speech_tags(self) -> None:
        self.assertEqual(with_article("owl"), "an owl")
        self.assertEqual(with_article("honest owl"), "an honest owl")
        self.assertEqual(capitalize("\"come,\" he said."), "\"Come,\" he said.")
        self.assertEqual(tidy("\"Come.\" said Tam."), "\"Come,\" said Tam.")


class TrainingTest(unittest.TestCase):
    def test_unwrap_keeps_paragraphs(self) -> None:
        self.assertEqual(unwrap("a\nb\n\n\nc"), "a b\nc")

    def make_windows(self, ids: list[int], length: int) -> Windows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.bin"
            np.array(ids, dtype=np.uint16).tofile(path)
            return Windows(path, length, seed=1)

    def test_windows_begin_with_bos(self) -> None:
        batch = self.make_windows(([BOS_ID] + [7] * 9) * 20, 16).batch(0, 4)
        self.assertEqual(tuple(batch.shape), (4, 17))
        self.assertTrue((batch[:, 0] == BOS_ID).all())

    def test_only_repeated_rare_words_are_emphasized(self) -> None:
        common, rare = [7] * 3, 9
        document = [BOS_ID, rare] + common + [rare] + common
        windows = self.make_windows(document + [BOS_ID] + [7] * 5000, len(document))
        block = torch.tensor([document + [BOS_ID]])
        expected = [1.0] * len(document)
        expected[4] = 3.0  # the loss of predicting `rare` the second time
        self.assertEqual(windows.emphasis(block, 3.0)[0].tolist(), expected)

    def test_practice_ends(self) -> None:
        self.assertEqual(practice_share(0.0, 0.6), 0.6)
        self.assertEqual(practice_share(PRACTICE_END, 0.6), 0.0)

    def test_learning_rate_reaches_its_end(self) -> None:
        self.assertAlmostEqual(learning_rate_share(1.0), FINAL_LR_SHARE)
        self.assertLess(learning_rate_share(0.001), learning_rate_share(0.01))

    def test_penalty_rises_only_where_too_much_is_active(self) -> None:
        progress = Progress(penalty_weight=[0.1, 0.1], active=[0.2, 0.04])
        dense, sparse = steer_penalty(progress, 1.0, target=0.08)
        self.assertGreater(dense, 0.1)
        self.assertLess(sparse, 0.1)


if __name__ == "__main__":
    unittest.main()
