"""Plain data: what a model is told, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

FinishReason = Literal["stop", "length", "cancelled"]


class Message(TypedDict):
    """A part of a conversation, as in the OpenAI API."""

    role: str
    """"system", "user" or "assistant\""""
    content: str


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen. Values outside their ranges are refused."""

    temperature: float = 0.8
    """0 to 100; 0: always the most likely token"""
    top_k: int = 40
    """keep the k most likely; 0: all"""
    top_p: float = 0.95
    """keep the most likely up to this probability"""
    min_p: float = 0.0
    """keep what has this share of the best one's probability"""
    repetition_penalty: float = 1.0
    """over recent tokens"""
    repetition_window: int = 64
    """how many of them; -1: all"""
    frequency_penalty: float = 0.0
    """per earlier occurrence in what was generated"""
    presence_penalty: float = 0.0
    """once for a token that occurred in it"""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """added to logits by token id; -math.inf: never that token"""
    seed: int = 0
    """the same seed gives the same tokens"""


@dataclass(frozen=True)
class TokenScore:
    """A token and the natural logarithm of its probability, before any option of Sampling."""

    id: int
    logprob: float


@dataclass(frozen=True)
class ScoredToken:
    """A token that was generated, and the likeliest in its place, in falling order."""

    token: TokenScore
    top: tuple[TokenScore, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A generation that has ended."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    reused_tokens: int
    """of the prompt, which were in the KV cache already"""
    tokens: tuple[int, ...]
    """that were generated, those of a stop text too, but no token that stands for the end"""
    scores: tuple[ScoredToken, ...]
    """where they were asked for"""
    wait_ms: float
    """in the queue"""
    prefill_ms: float
    """from there to the first token"""
    decode_ms: float
    """from there to the end"""


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation as the model was trained to read it, ready for its answer."""

    tokens: tuple[int, ...]
    stop: tuple[str, ...]
    """texts that an answer ends at, even without an end token"""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What never changes while a model is loaded."""

    path: str
    name: str
    """of the file, without folders and ".gguf\""""
    architecture: str
    mode: str
    """dense, gated or predicted"""
    instruction_set: str
    threads: int
    context: int
    """tokens of a request, prompt included"""
    vocab_size: int
    embedding_size: int
    parallel: int
    queue: int
    memory_limit_bytes: int
    is_streamed: bool
    """some FFNs are read while computing"""
    can_chat: bool
    """it carries a chat template that is known here"""


@dataclass(frozen=True, kw_only=True)
class Stats:
    """What happened since the model was loaded, at the end of the last step."""

    ledger: Mapping[str, int]
    """bytes by name"""
    resident_bytes: int
    """of the whole process"""
    running: int
    waiting: int
    prompt_tokens: int
    """computed"""
    reused_tokens: int
    """of prompts, not computed again"""
    generated_tokens: int
    """computed in decode passes"""
    prefill_passes: int
    decode_passes: int
    failed_passes: int
    prefill_seconds: float
    decode_seconds: float
    kv_pages: int
    """of 64 tokens each"""
    kv_pages_free: int
    kv_pages_promised: int
    """to running requests"""
    neurons: int
    """of streamed models: neurons (or extents of matrices) that decoding asked for"""
    neurons_pinned: int
    neurons_cached: int
    neurons_read: int
    decode_reads: int
    decode_bytes_read: int
    bytes_read: int
    hit_rate: float
    """of what decoding asked for, the share that was in memory; 1 where nothing was"""
    fault: str
    """what the model's file failed of in the last pass; empty: nothing"""
