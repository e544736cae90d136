"""Plain data: what a model is told, and what it tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ._errors import Error, ErrorCode
from ._native import AnswerForm

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


class CalledFunction(TypedDict):
    """What a call of a message calls."""

    name: str
    arguments: str
    """JSON"""


class MessageToolCall(TypedDict):
    """A call in a message of an assistant, as in the OpenAI API."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class _Role(TypedDict):
    role: str
    """"system", "user", "assistant" or "tool\""""


class Message(_Role, total=False):
    """A part of a conversation, as in the OpenAI API."""

    content: str | None
    """what was said; an assistant that calls tools need not have said anything"""
    tool_calls: list[MessageToolCall]
    """of an assistant"""
    tool_call_id: str
    """of a tool: the call that this is the result of"""
    reasoning_content: str
    """of an assistant: what it thought before, which some templates show"""


class _FunctionName(TypedDict):
    name: str
    """1 to 64 letters, digits, "_" and "-\""""


class Function(_FunctionName, total=False):
    """What a tool does."""

    description: str
    parameters: Mapping[str, Any]
    """a JSON Schema of an object; none: it takes nothing"""
    strict: bool
    """arguments keep to the schema even where no call is forced"""


class Tool(TypedDict):
    """A function that the model may ask for, as in the OpenAI API."""

    type: Literal["function"]
    function: Function


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


class SamplingOptions(TypedDict, total=False):
    """The fields of Sampling, as arguments by name."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    repetition_window: int
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float]
    seed: int


class GenerateOptions(SamplingOptions, total=False):
    """Arguments by name of all that generates."""

    sampling: Sampling
    """how tokens are chosen, where no argument of that name says otherwise"""
    max_tokens: int
    """at most (256); the context may end earlier"""
    stop: Sequence[str]
    """texts to end at, which are not part of the answer"""
    top_logprobs: int | None
    """scores of every token, and of so many of the likeliest (at most 1000), in the result"""
    json_schema: str | Mapping[str, Any] | None
    """only documents of this JSON Schema are generated; of "": any JSON object"""
    adapters: Mapping[int, float] | None
    """scales by the numbers of adapters, which follow the order in which the model was given them;
    those that are not named add nothing. None: the model's own scales"""
    progress: Callable[[int, int], object] | None
    """called with the prompt's tokens that are computed and all of them, while the generation is
    waited for; what it raises ends the generation"""


class Streaming(TypedDict, total=False):
    """How weights that are not in memory are read while the model computes. The defaults are the
    fastest known. A setting that does nothing for the model is refused."""

    pipeline: Literal["cluster", "matrix", "blocking", "llmflash"]
    """of packed models"""
    reads: Literal["whole", "gates-first", "pieces", "gates-first-pieces"]
    """of a missing neuron"""
    io: Literal["auto", "io_uring", "pread"]
    io_thread: Literal["shared", "own"]
    """who reads neurons: whichever thread has time, or one of the threads, which computes only
    while nothing is to be read"""
    cache_policy: str
    """"lru", "two-queue", "s3-fifo", "lfu-decay", "layer-lfu" (the default), "hit-density", ..."""
    lookahead: Literal["auto", "on", "off"]
    merge_gap: int | str | None
    """reads that are at most so far apart are joined, in bytes or as "8K"; None: none are"""
    pinned: float
    """share of the memory for neurons that the most active ones keep for good (0.5)"""


@dataclass(frozen=True)
class ToolCall:
    """A function that the model asks for."""

    id: str
    """names the call, for its result"""
    name: str
    arguments_json: str
    """as the model wrote them; may be malformed, unless a call was forced or the tool is strict"""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name. Raises Error (CORRUPT) where they are no JSON object."""
        try:
            parsed = json.loads(self.arguments_json)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise Error(f"the model called {self.name!r} with arguments that are no JSON object",
                        ErrorCode.CORRUPT)
        return parsed


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
    """without thoughts and calls"""
    finish_reason: FinishReason
    """"tool_calls": it stopped to have tools called"""
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
    reasoning: str = ""
    """what it thought before it answered a conversation"""
    tool_calls: tuple[ToolCall, ...] = ()
    """in a conversation with tools"""

    @property
    def message(self) -> Message:
        """The answer as a message, to go on with the conversation."""
        message: Message = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function",
                 "function": {"name": call.name, "arguments": call.arguments_json}}
                for call in self.tool_calls]
        return message


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation as the model was trained to read it, ready for its answer."""

    tokens: tuple[int, ...]
    stop: tuple[str, ...]
    """texts that an answer ends at, even without an end token"""
    _form: AnswerForm = field(default_factory=AnswerForm, repr=False, compare=False)


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
    kv_pages_on_flash: int
    """of running and ended requests, that have left memory"""
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
