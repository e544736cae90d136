#!/usr/bin/env python3
"""Measures the exported GGUF: perplexity, sparsity, sampled stories, reference values for tests.

Everything runs through reference.py, which reads nothing but the GGUF.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from reference import Activity, ReferenceModel
from story_grammar.names import FEMALE_NAMES, MALE_NAMES

GREEDY_TOKENS = 64
CHAT_PROMPT = "<|im_start|>user\n{request}<|im_end|>\n<|im_start|>assistant\n"


def token_losses(model: ReferenceModel, ids: list[int], activity: Activity | None) -> np.ndarray:
    """Negative log-likelihood of ids[1:], each given all before it."""
    logits = model.logits(ids[:-1], model.new_cache(), activity).astype(np.float64)
    top = logits.max(axis=-1)
    log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
    return log_sum - logits[np.arange(len(ids) - 1), ids[1:]]


def perplexity_of_stories(model: ReferenceModel, text: str, activity: Activity) -> dict:
    """Each story on its own: <s> story </s>."""
    losses = []
    for story in text.strip().split("\n\n"):
        ids = [model.tokenizer.bos] + model.tokenizer.encode(story) + [model.tokenizer.eos]
        losses.append(token_losses(model, ids[: model.context_length + 1], activity))
    return summary(np.concatenate(losses))


def repeated_names(model: ReferenceModel, text: str) -> dict:
    """How well names are predicted where a story says them again; guessing costs log(names) nats."""
    pieces = {model.tokenizer.ids.get("\u2581" + name) for name in FEMALE_NAMES + MALE_NAMES} - {None}
    losses = []
    for story in text.strip().split("\n\n"):
        ids = [model.tokenizer.bos] + model.tokenizer.encode(story)
        of_story = token_losses(model, ids[: model.context_length + 1], None)
        losses += [loss for i, loss in enumerate(of_story) if ids[i + 1] in pieces and ids[i + 1] in ids[: i + 1]]
    return {"tokens": len(losses), "nll_per_token": round(float(np.mean(losses)), 4), "names": len(pieces)}


def perplexity_of_windows(model: ReferenceModel, text: str, activity: Activity | None, limit: int) -> dict:
    """The text as one run of tokens, cut into windows of context_length - 1, each behind its own <s>."""
    ids = model.tokenizer.encode(text)
    size = model.context_length - 1
    starts = range(0, len(ids), size)[:limit]
    losses = [token_losses(model, [model.tokenizer.bos] + ids[s: s + size], activity) for s in starts]
    return summary(np.concatenate(losses)) | {"windows": [
        {"tokens": len(x), "nll": round(float(x.sum()), 4)} for x in losses]}


def summary(losses: np.ndarray) -> dict:
    mean = float(losses.mean())
    return {"tokens": len(losses), "nll_per_token": round(mean, 6), "perplexity": round(float(np.exp(mean)), 4)}


def sparsity(activity: Activity) -> list[dict]:
    """Per layer: share of neurons whose gate fires, that are active, and that were never active."""
    return [
        {"layer": i, "gate": round(float(activity.gate[i] / activity.tokens), 4),
         "active": round(float(activity.active[i] / activity.tokens), 4),
         "never_active": round(float(1 - activity.ever[i].mean()), 4)}
        for i in range(len(activity.gate))
    ]


def generate(model: ReferenceModel, prompt: list[int], limit: int, temperature: float, seed: int) -> list[int]:
    """Greedy when temperature is 0; stops at the end of the story or of the turn."""
    rng = np.random.default_rng(seed)
    cache, ids, out = model.new_cache(), prompt, []
    while len(out) < limit and len(prompt) + len(out) < model.context_length:
        logits = model.logits(ids, cache)[-1].astype(np.float64)
        if temperature == 0:
            token = int(logits.argmax())
        else:
            weights = np.exp((logits - logits.max()) / temperature)
            token = int(rng.choice(len(weights), p=weights / weights.sum()))
        if token in (model.tokenizer.eos, model.tokenizer.eot):
            break
        out.append(token)
        ids = [token]
    return out


def samples(model: ReferenceModel, requests: list[str], temperature: float, seed: int) -> list[dict]:
    """One plain story, then one answer per request, none of them chosen among several."""
    prompts = [("", [model.tokenizer.bos])]
    prompts += [(r, model.tokenizer.encode_prompt(CHAT_PROMPT.format(request=r))) for r in requests]
    out = []
    for offset, (request, ids) in enumerate(prompts):
        text = model.tokenizer.decode(generate(model, ids, model.context_length, temperature, seed + offset))
        out.append({"request": request, "seed": seed + offset, "temperature": temperature, "text": text})
    return out


def reference_values(model: ReferenceModel, text: str) -> dict:
    """Numbers that the C++ engine must reproduce from the same file."""
    greedy = generate(model, [model.tokenizer.bos], GREEDY_TOKENS, 0.0, 0)
    first = model.logits([model.tokenizer.bos], model.new_cache())[0]
    top = np.argsort(-first)[:5]
    chat = CHAT_PROMPT.format(request="Tell me a story about a fox and a lost lantern.")
    chat_ids = model.tokenizer.encode_prompt(chat)
    first_ids = model.tokenizer.encode(text)[:64]
    return {
        "stories_windows": perplexity_of_windows(model, text, None, 1_000_000),
        "first_token_ids": first_ids,
        "first_token_nll": [round(float(x), 5) for x in token_losses(model, [model.tokenizer.bos] + first_ids, None)],
        "greedy_from_bos": {"token_ids": greedy, "text": model.tokenizer.decode(greedy)},
        "logits_after_bos": [{"id": int(i), "logit": round(float(first[i]), 5)} for i in top],
        "chat": {"prompt": chat, "token_ids": chat_ids, "greedy": generate(model, chat_ids, GREEDY_TOKENS, 0.0, 0)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--held-back", type=Path, required=True, help="folder with heldback-*.txt of make_text.py")
    parser.add_argument("--stories", type=int, default=200, help="held-back stories to measure")
    parser.add_argument("--prose-windows", type=int, default=80, help="held-back prose windows to measure")
    parser.add_argument("--text-out", type=Path, help="writes the first held-back stories here")
    parser.add_argument("--text-stories", type=int, default=12, help="how many stories go into --text-out")
    parser.add_argument("--json-out", type=Path, help="writes all results and the reference values here")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--request", action="append", default=[], help="chat request to sample an answer for")
    args = parser.parse_args()

    model = ReferenceModel(args.model)
    all_stories = (args.held_back / "heldback-stories.txt").read_text(encoding="utf-8").strip().split("\n\n")
    prose = (args.held_back / "heldback-prose.txt").read_text(encoding="utf-8").strip()
    on_stories, on_prose = model.new_activity(), model.new_activity()
    results = {"stories": perplexity_of_stories(model, "\n\n".join(all_stories[: args.stories]), on_stories)}
    prose_result = perplexity_of_windows(model, prose, on_prose, args.prose_windows)
    prose_result.pop("windows")
    results |= {"prose": prose_result, "sparsity_stories": sparsity(on_stories), "sparsity_prose": sparsity(on_prose),
                "repeated_names": repeated_names(model, "\n\n".join(all_stories[: args.text_stories])),
                "samples": samples(model, args.request, args.temperature, args.seed)}
    print(json.dumps(results, indent=1, ensure_ascii=False))
    text = "\n\n".join(all_stories[: args.text_stories]) + "\n"
    if args.text_out:
        args.text_out.write_text(text, encoding="utf-8")
    if args.json_out:
        results["reference"] = {"text": args.text_out.name if args.text_out else None} | reference_values(model, text)
        args.json_out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
