#!/usr/bin/env python3
"""Tests of relufy.py on a model of a few thousand weights: python -m unittest test_relufy"""

from __future__ import annotations

import argparse
import tempfile
import unittest
from pathlib import Path

import gguf
import numpy as np
import torch

import relufy
from llama import Llama, read_model, tensor_names, write_model
from model import ModelConfig
from own_text import KvCache, Mixture, Prose, cut, next_logits, write
from parallel import ParallelStep
from relufy import (
    DECAY_SHARE, FINAL_RATE_SHARE, LayerWorker, Progress, Run, WholeWorker, perplexity, rate_share, relative_error,
    start_layers, steer,
)

SIZES = ModelConfig(vocab_size=96, hidden_size=64, intermediate_size=32, num_layers=2, num_heads=4, num_kv_heads=2,
                    context_length=relufy.CONTEXT)


def write_source(path: Path) -> None:
    """A llama GGUF with random weights."""
    torch.manual_seed(3)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(SIZES.num_layers)
    writer.add_context_length(64)
    writer.add_embedding_length(SIZES.hidden_size)
    writer.add_feed_forward_length(SIZES.intermediate_size)
    writer.add_head_count(SIZES.num_heads)
    writer.add_head_count_kv(SIZES.num_kv_heads)
    writer.add_layer_norm_rms_eps(SIZES.rms_norm_eps)
    writer.add_rope_dimension_count(SIZES.head_dim)
    writer.add_rope_freq_base(SIZES.rope_theta)
    writer.add_token_list([f"t{i}" for i in range(SIZES.vocab_size)])
    writer.add_bos_token_id(1)
    weights = Llama(SIZES, "silu").state_dict()
    for ours, theirs in tensor_names(SIZES):
        writer.add_tensor(theirs, weights[ours].numpy() * (2 if "ffn" in ours else 1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class RelufyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        torch.set_num_threads(1)
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = Path(cls.folder.name)
        cls.source = cls.work / "tiny.gguf"
        write_source(cls.source)
        random = np.random.default_rng(1)
        for name in ("prose.npy", "own-000.npy"):
            np.save(cls.work / name, random.integers(0, SIZES.vocab_size, (5, relufy.CONTEXT)).astype(np.int32))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def arguments(self, work: Path, tokens: int) -> argparse.Namespace:
        for name in ("prose.npy", "own-000.npy"):
            (work / name).write_bytes((self.work / name).read_bytes())
        return argparse.Namespace(work=work, model=self.source, activation="relu", own_share=0.5, seed=1, fit_windows=2,
                                  lr=1e-3, batch=2, workers=1, tokens=tokens, minutes=1e9, active_target=0.2,
                                  save_minutes=10)

    def windows(self, count: int) -> torch.Tensor:
        return Mixture(self.work, 0.5, 1).batch(0, count)

    def test_words_one_by_one_and_at_once_are_the_same(self) -> None:
        model = read_model(self.source, "silu", 32)
        tokens = self.windows(3)[:, :20]
        cache = KvCache(model, 3, 32)
        cache.keys, cache.values = cache.keys.float(), cache.values.float()
        with torch.no_grad():
            for at in range(20):
                last = next_logits(model, tokens[:, at], cache)
            torch.testing.assert_close(last, model(tokens)[0][:, -1], atol=1e-4, rtol=1e-4)

    def test_equal_seeds_write_equal_texts(self) -> None:
        model = read_model(self.source, "silu", 16)
        one, again, other = (write(model, [1, 2], 3, seed) for seed in (1, 1, 2))
        self.assertTrue((one == again).all())
        self.assertFalse((one == other).all())
        self.assertTrue((one[:, :2] == [1, 2]).all())

    def test_fitted_layers_answer_better_than_a_mere_exchange(self) -> None:
        original, windows = read_model(self.source, "silu", relufy.CONTEXT), self.windows(10)
        for activation in ("relu", "drelu"):
            model = read_model(self.source, activation, relufy.CONTEXT).requires_grad_(True)
            worker = LayerWorker(model, original)
            before = worker.run_window([windows[8:]], torch.zeros(1), 1.0)[0].item()
            start_layers(model, original, windows[:8])
            after = worker.run_window([windows[8:]], torch.zeros(1), 1.0)[0].item()
            self.assertLess(after, 0.8 * before, activation)

    def test_a_stopped_training_goes_on_where_it_was(self) -> None:
        with tempfile.TemporaryDirectory() as at_once, tempfile.TemporaryDirectory() as in_two:
            tokens = 4 * 2 * relufy.CONTEXT
            Run(self.arguments(Path(at_once), tokens), "layers").run()
            args = self.arguments(Path(in_two), tokens)
            first = Run(args, "layers")
            stepper = first.make_stepper()
            first.step(stepper)
            first.step(stepper)
            first.save()
            second = Run(args, "layers")
            self.assertEqual(second.progress.steps, 2)
            second.run()
            weights = [torch.load(Path(folder) / "layers.pt", weights_only=True)["weights"]
                       for folder in (at_once, in_two)]
            for name, one in weights[0].items():
                torch.testing.assert_close(one, weights[1][name], msg=name)

    def test_both_stages_learn_and_the_file_holds_what_was_learned(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            args = self.arguments(work, 12 * 2 * relufy.CONTEXT)
            for stage in ("layers", "train"):
                run = Run(args, stage)
                run.run()
                self.assertEqual(run.progress.steps, 12)
                self.assertLess(sum(run.progress.active), sum([run.progress.start_active] * SIZES.num_layers) + 0.05)
            for kind in (gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.Q8_0):
                out = work / "out.gguf"
                write_model(run.model, self.source, out, kind, "test")
                self.assertEqual(gguf.GGUFReader(out).get_field("hearth.ffn_activation").contents(), "relu")
                written, ids = read_model(out, "relu", relufy.CONTEXT), self.windows(1)[0].numpy()
                learned = read_model(self.source, "relu", relufy.CONTEXT)
                untrained = perplexity(learned, ids, 1)[0]
                learned.load_state_dict(torch.load(work / "train.pt", weights_only=True)["weights"], strict=False)
                self.assertAlmostEqual(perplexity(written, ids, 1)[0] / perplexity(learned, ids, 1)[0], 1, delta=0.03)
                self.assertNotEqual(perplexity(learned, ids, 1)[0], untrained)

    def test_two_processes_find_the_gradient_of_one(self) -> None:
        original = read_model(self.source, "silu", relufy.CONTEXT).share_memory()
        model = read_model(self.source, "relu", relufy.CONTEXT).requires_grad_(True).share_memory()
        gradients = []
        for workers in (1, 2):
            step = ParallelStep(_MakeWorker(model, original), [self.windows(4)], torch.zeros(1), SIZES.num_layers, workers)
            step.run([self.windows(4)], torch.tensor([0.1]))
            gradients.append(torch.cat([p.grad.flatten() for p in step.parameters]).clone())
            for parameter in step.parameters:
                parameter.grad = None
        difference = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
        self.assertLess(difference, 0.02)


class _MakeWorker:
    """A function that a process can be given."""

    def __init__(self, model: Llama, original: Llama) -> None:
        self.model, self.original = model, original

    def __call__(self) -> WholeWorker:
        return WholeWorker(self.model, self.original)


class PartsTest(unittest.TestCase):
    def test_held_back_bytes_are_left_out(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text"
            path.write_bytes(b"0123456789")
            self.assertEqual(Prose.parse(f"{path}:3-5").parts(), ["012", "56789"])
            self.assertEqual(Prose.parse(f"{path}:0-5").parts(), ["56789"])
            self.assertEqual(Prose.parse(str(path)).parts(), ["0123456789"])
            for wrong in ("5", "5-3", "a-9"):
                self.assertRaises(ValueError, Prose.parse, f"{path}:{wrong}")

    def test_windows_begin_with_bos(self) -> None:
        self.assertEqual(cut(np.arange(10, 21), 4, bos=1).tolist(), [[1, 10, 11, 12], [1, 13, 14, 15], [1, 16, 17, 18]])

    def test_huge_outputs_count_once(self) -> None:
        wanted = torch.ones(1, 2, 8)
        wanted[0, 0] = 1000.0
        self.assertAlmostEqual(relative_error(wanted * torch.tensor([1.0, 0.0])[None, :, None], wanted).item(), 0.5, places=2)

    def test_a_longer_training_raises_the_rate_again(self) -> None:
        progress = Progress(steps=1000, tokens=1000)
        self.assertEqual(rate_share(progress, 1000), FINAL_RATE_SHARE)
        self.assertEqual(rate_share(progress, 4000), 1.0)
        self.assertAlmostEqual(rate_share(progress, 1100), 100 / 1100 / DECAY_SHARE)
        self.assertLess(rate_share(Progress(), 1000), 0.1)

    def test_the_penalty_rises_only_where_too_much_is_active(self) -> None:
        dense, sparse = (Progress(tokens=100, start_active=0.4, active=[share] * 2) for share in (0.3, 0.05))
        self.assertGreater(steer(dense, 100, 0.1), relufy.PENALTY_START)
        self.assertLess(steer(sparse, 100, 0.1), relufy.PENALTY_START)


if __name__ == "__main__":
    unittest.main()
