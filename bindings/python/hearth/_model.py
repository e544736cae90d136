"""A loaded model."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import _arguments, _conversation, _native
from ._arguments import INT32, INT64
from ._generation import AsyncGeneration, Generation
from ._types import ChatPrompt, GenerateOptions, Message, ModelInfo, Stats, Streaming, Tool

if TYPE_CHECKING:
    from typing_extensions import Unpack

Mode = Literal["auto", "dense", "gated", "predicted"]
KvCodec = Literal["f16", "f32", "k8v8", "k4v8", "k8", "k4"]
ToolChoice = str | Mapping[str, Any]
Adapter = str | os.PathLike[str] | tuple[str | os.PathLike[str], float]


class Model:
    """A model file, loaded into at most so much memory.

        model = hearth.Model("model.gguf", memory="2.5G")

    path       a GGUF file, any of a split set; or what `hearth pack` wrote
    memory     the limit, in bytes or as "2.5G" (powers of 1024); None: what is free, less a margin
    threads    that compute; 0: one per processor
    context    tokens of a request, prompt included; 0: the model's, at most 4096
    mode       which neurons are computed: "auto", "dense", "gated" or "predicted"
    kv         how the KV cache is stored: "f16" or "f32"; "k8v8" takes about half of f16, "k4v8" a
               little more than a third; "k8" and "k4" keep values as f16
    kv_memory  the most that the KV cache takes of memory, in bytes or as "512M"; the rest of long
               contexts lies in a file. None: what memory leaves beside the weights
    kv_folder  the folder of that file, which has no name; None: $TMPDIR, else /var/tmp
    activations what quantized matrices are multiplied with: "i8", or "f16" (floats of 11 bits;
               prompts take far longer), which packed models refuse
    isa        kernels to use, as "scalar" or "avx2"; "auto": the best here
    device     "none", the number of a device of `hearth devices`, or "auto": it computes a part of
               the model beside the processor; a UserWarning says why "auto" found none
    device_memory the most of its memory, in bytes or as "6G"; None: 7/8 of a device's own
    device_neurons of a packed model, of each layer, that go there; 0: as many as fit
    activation of a file that does not say its FFNs': "silu", "gelu", "gelu_erf", "relu", "fatrelu",
               "fatrelu:0.01" or "drelu"; None: what the file says, else SiLU
    chat_format how chats become prompts: "chatml", "llama-2", "llama-3", "mistral" or "zephyr";
               None: by the model's own template
    plan       a file that `hearth plan` wrote for this model on this machine; it says memory,
               threads, context, mode, kv, isa and streaming, and what lies on a device
    parallel   requests that are computed together, 1 to 256
    queue      requests that may wait beside them; further ones raise Error with ErrorCode.BUSY
    adapters   low-rank adapters (LoRA): GGUF files, or folders as PEFT writes them; each a path, or a
               pair of a path and its scale (1) for what says no other
    lock       what is in memory is not swapped out, where the system allows it; else a UserWarning says
               why not. It is about the whole process
    streaming  how weights that are not in memory are read, for experiments: the keys of Streaming
    session_folder a folder for what leaves the KV cache, so that a text that is continued, after a
               restart too, is not computed again; None: none. One model may use it at a time
    session_limit the most that its files take, in bytes or as "4G"
    progress   called while it loads, with the bytes that were read and all of them; a model that
               does not fit is read in two parts, each from 0. What it raises ends the loading

    Loading and all methods raise Error. They may be called from any thread; while they compute or
    wait, other Python threads run. Close it, or use it in a `with` block, to give the memory back at a
    time of your choice; models that are still open are closed when the interpreter exits. It refuses
    to work in a forked child. Ctrl-C ends the loading. What is doubtful about a model, or its session
    folder, is a UserWarning.
    """

    def __init__(self, path: str | os.PathLike[str], *, memory: int | str | None = None,
                 threads: int = 0, context: int = 0, mode: Mode = "auto",
                 kv: KvCodec = "f16", kv_memory: int | str | None = None,
                 kv_folder: str | os.PathLike[str] | None = None,
                 activations: str = "i8", isa: str = "auto",
                 device: str | int = "none", device_memory: int | str | None = None,
                 device_neurons: int = 0,
                 activation: str | None = None, chat_format: str | None = None,
                 plan: str | os.PathLike[str] | None = None, parallel: int = 4, queue: int = 64,
                 adapters: Sequence[Adapter] = (),
                 lock: bool = False, streaming: Streaming | None = None,
                 session_folder: str | os.PathLike[str] | None = None,
                 session_limit: int | str = "4G",
                 progress: Callable[[int, int], object] | None = None) -> None:
        self._native = _native.Model(_arguments.path(path, "path"), {
            "memory": _arguments.size_in_bytes(memory, "memory"),
            "threads": _arguments.whole(threads, "threads", INT32),
            "context": _arguments.whole(context, "context", INT64),
            "mode": _arguments.text(mode, "mode"),
            "kv": _arguments.text(kv, "kv"),
            "kv_memory": _arguments.size_in_bytes(kv_memory, "kv_memory"),
            "kv_folder": _arguments.optional_path(kv_folder, "kv_folder"),
            "activations": _arguments.text(activations, "activations"),
            "isa": _arguments.text(isa, "isa"),
            "device": _arguments.text(str(device) if isinstance(device, int) else device, "device"),
            "device_memory": _arguments.size_in_bytes(device_memory, "device_memory"),
            "device_neurons": _arguments.whole(device_neurons, "device_neurons", INT64),
            "parallel": _arguments.whole(parallel, "parallel", INT32),
            "queue": _arguments.whole(queue, "queue", INT32),
            "plan": _arguments.optional_path(plan, "plan"),
            "activation": b"" if activation is None else _arguments.text(activation, "activation"),
            "chat_format": (b"" if chat_format is None
                            else _arguments.text(chat_format, "chat_format")),
            "adapters": _arguments.adapters(adapters),
            "lock": bool(lock),
            "streaming": _arguments.streaming(streaming),
            "session_folder": _arguments.optional_path(session_folder, "session_folder"),
            "session_limit": _arguments.size_in_bytes(session_limit, "session_limit"),
        }, _arguments.function(progress, "progress"))
        self._info = ModelInfo(**self._native.info())
        _open_models.add(self)
        self._warn()

    def close(self) -> None:
        """Ends what is under way and frees the memory; again without effect."""
        self._native.close()
        self._warn()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._native.is_closed else ""
        return f"<hearth.Model {self._info.name!r}, {self._info.mode}{state}>"

    @property
    def info(self) -> ModelInfo:
        """What never changes."""
        return self._info

    def stats(self) -> Stats:
        """What happened since it was loaded."""
        return Stats(**self._native.stats())

    def adapters(self) -> list[tuple[str, float]]:
        """Paths of its adapters by number, and the scales of what says no other."""
        return self._native.adapters()

    def set_adapter_scales(self, scales: Mapping[int, float]) -> None:
        """Scales, by number, of what begins later and says no other; adapters that are not named get
        0. `generate` and its like take `adapters` for one request."""
        self._native.set_adapters(_arguments.adapter_scales(scales, "scales"))

    def tokenize(self, text: str, *, as_prompt: bool = False) -> list[int]:
        """Token ids; as_prompt: after the token that texts begin with, where the model has one."""
        return self._native.tokenize(_arguments.text(text, "text"), bool(as_prompt))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Text of tokens; what is no UTF-8 becomes U+FFFD."""
        return self._native.detokenize(_arguments.token_ids(tokens, "tokens"))

    def token_bytes(self, id: int) -> bytes:
        """Bytes that a token stands for; may be part of a character."""
        return self._native.token_bytes(_arguments.whole(id, "token id", INT32))

    def encode_chat(self, messages: Iterable[Message], *, tools: Iterable[Tool] = (),
                    tool_choice: ToolChoice = "auto", parallel_tool_calls: bool = True,
                    chat_template_kwargs: Mapping[str, Any] | None = None) -> ChatPrompt:
        """A conversation in the model's own chat template, as `chat` would answer it."""
        return self._encoder(messages, tools, tool_choice, parallel_tool_calls,
                             chat_template_kwargs)()

    def generate(self, prompt: str | Sequence[int] | ChatPrompt,
                 **options: Unpack[GenerateOptions]) -> Generation:
        """Starts to continue a text, tokens, or a conversation, and returns what streams it.

        max_tokens     at most (256); the context may end earlier
        stop           texts to end at, which are not part of the answer
        top_logprobs   scores of every token, and of so many of the likeliest (at most 1000), in the
                       result
        json_schema    only documents of this JSON Schema are generated; of "": any JSON object
        progress       called with the prompt's tokens that are computed and all of them, while the
                       generation is waited for; what it raises ends it
        temperature, top_k, top_p, min_p, repetition_penalty, repetition_window, frequency_penalty,
        presence_penalty, logit_bias, seed: the fields of Sampling
        sampling       a Sampling, for what of that is not given by name
        """
        return Generation(self, self._starter(prompt, options)(), options.get("progress"))

    def agenerate(self, prompt: str | Sequence[int] | ChatPrompt,
                  **options: Unpack[GenerateOptions]) -> AsyncGeneration:
        """As `generate`, for asyncio: what `async for` streams, and `await` waits for."""
        return AsyncGeneration(self, self._starter(prompt, options), options.get("progress"))

    def chat(self, messages: Iterable[Message], *, tools: Iterable[Tool] = (),
             tool_choice: ToolChoice = "auto", parallel_tool_calls: bool = True,
             chat_template_kwargs: Mapping[str, Any] | None = None,
             **options: Unpack[GenerateOptions]) -> Generation:
        """Starts an answer to a conversation; else as `generate`.

        tools          functions that the model may ask for; the result's `tool_calls` has the calls
        tool_choice    "auto": as it likes; "none"; "required": it must call one; or the name of the
                       one that it must call. What it must call keeps to the tool's parameters
        parallel_tool_calls  an answer may have several calls
        chat_template_kwargs further variables of the template, as enable_thinking

        Call what it asks for, and go on with the result's `message` and, for each call, a message
        {"role": "tool", "tool_call_id": call.id, "content": ...}. What was said before is usually
        found in the KV cache, so that only what is new costs time.
        """
        start = self._chat_starter(self._encoder(messages, tools, tool_choice, parallel_tool_calls,
                                                 chat_template_kwargs), options)
        return Generation(self, start(), options.get("progress"))

    def achat(self, messages: Iterable[Message], *, tools: Iterable[Tool] = (),
              tool_choice: ToolChoice = "auto", parallel_tool_calls: bool = True,
              chat_template_kwargs: Mapping[str, Any] | None = None,
              **options: Unpack[GenerateOptions]) -> AsyncGeneration:
        """As `chat`, for asyncio: what `async for` streams, and `await` waits for."""
        start = self._chat_starter(self._encoder(messages, tools, tool_choice, parallel_tool_calls,
                                                 chat_template_kwargs), options)
        return AsyncGeneration(self, start, options.get("progress"))

    def embed(self, text: str | Sequence[int]) -> list[float]:
        """The last hidden states, pooled as the model's file says (else their mean), of length 1."""
        return self._native.embed([self._embedded(text, "text")])[0]

    def embed_many(self, texts: Iterable[str | Sequence[int]]) -> list[list[float]]:
        """`embed` of all, computed together: at most `parallel` + `queue` of them at once."""
        return self._native.embed([self._embedded(text, "texts")
                                   for text in _arguments.each(texts, "texts", "a list of texts")])

    def _embedded(self, text: str | Sequence[int], name: str) -> list[int]:
        if isinstance(text, str):
            return self._native.tokenize_for_embedding(_arguments.text(text, name))
        return _arguments.token_ids(text, name, "a text or token ids")

    def _reader(self, prompt: str | Sequence[int], *,
                as_prompt: bool = True) -> Callable[[], list[int]]:
        """Checks a prompt; what it returns makes tokens of it."""
        if isinstance(prompt, str):
            text = _arguments.text(prompt, "prompt")
            return lambda: self._native.tokenize(text, as_prompt)
        tokens = _arguments.token_ids(prompt, "prompt", "a text or token ids")
        return lambda: tokens

    def _encoder(self, messages: Iterable[Message], tools: Iterable[Tool], tool_choice: ToolChoice,
                 parallel_tool_calls: bool,
                 chat_template_kwargs: Mapping[str, Any] | None) -> Callable[[], ChatPrompt]:
        """Checks a conversation; what it returns encodes it."""
        checked = _conversation.messages(messages)
        chosen = _conversation.tool_options(tools, tool_choice, parallel_tool_calls)
        variables = _conversation.template_variables(chat_template_kwargs)

        def encode() -> ChatPrompt:
            tokens, stop, form = self._native.encode_chat(checked, chosen, variables)
            return ChatPrompt(tuple(tokens), tuple(stop), form)

        return encode

    def _starter(self, prompt: str | Sequence[int] | ChatPrompt,
                 options: GenerateOptions) -> Callable[[], _native.Stream]:
        """Checks a request; what it returns starts it."""
        if isinstance(prompt, ChatPrompt):
            return self._chat_starter(lambda: prompt, options)
        request = _arguments.request(options)
        read = self._reader(prompt)
        return lambda: self._native.start(read(), request, _native.AnswerForm())

    def _chat_starter(self, encode: Callable[[], ChatPrompt],
                      options: GenerateOptions) -> Callable[[], _native.Stream]:
        request = _arguments.request(options)

        def start() -> _native.Stream:
            prompt = encode()
            stop = [*_arguments.stop_texts(prompt.stop), *request["stop"]]
            return self._native.start(prompt.tokens, {**request, "stop": stop}, prompt._form)

        return start

    def _warn(self) -> None:
        for sentence in self._native.take_warnings():
            warnings.warn(sentence, stacklevel=3)


_open_models: weakref.WeakSet[Model] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """No thread of a model outlives the interpreter."""
    for model in list(_open_models):
        model.close()
