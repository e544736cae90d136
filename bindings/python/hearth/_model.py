"""A loaded model."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from . import _arguments, _native
from ._arguments import INT32, INT64
from ._generation import Generation
from ._types import ChatPrompt, Message, ModelInfo, Sampling, Stats

Mode = Literal["auto", "dense", "gated", "predicted"]


class Model:
    """A model file, loaded into at most so much memory.

        model = hearth.Model("model.gguf", memory="2.5G")

    path       a GGUF file, any of a split set; or what `hearth pack` wrote
    memory     the limit, in bytes or as "2.5G" (powers of 1024); None: what is free, less a margin
    threads    that compute; 0: one per processor
    context    tokens of a request, prompt included; 0: the model's, at most 4096
    mode       which neurons are computed: "auto", "dense", "gated" or "predicted"
    activation of a file that does not say its FFNs': "silu", "relu", "fatrelu", "fatrelu:0.01" or
               "drelu"; None: what the file says, else SiLU
    chat_format how chats become prompts: "chatml", "llama-2", "llama-3", "mistral" or "zephyr";
               None: by the model's own template
    plan       a file that `hearth plan` wrote for this model on this machine; it says memory,
               threads, context and mode
    parallel   requests that are computed together, 1 to 256
    queue      requests that may wait beside them; further ones raise Error with ErrorCode.BUSY

    Loading and all methods raise Error. They may be called from any thread; while they compute or
    wait, other Python threads run. Close it, or use it in a `with` block, to give the memory back at a
    time of your choice; models that are still open are closed when the interpreter exits. It refuses
    to work in a forked child.
    """

    def __init__(self, path: str | os.PathLike[str], *, memory: int | str | None = None,
                 threads: int = 0, context: int = 0, mode: Mode = "auto",
                 activation: str | None = None, chat_format: str | None = None,
                 plan: str | os.PathLike[str] | None = None, parallel: int = 4,
                 queue: int = 64) -> None:
        self._native = _native.Model(
            _arguments.path(path, "path"), memory_bytes=_arguments.memory_bytes(memory),
            threads=_arguments.whole(threads, "threads", INT32),
            context=_arguments.whole(context, "context", INT64),
            mode=_arguments.text(mode, "mode"),
            parallel=_arguments.whole(parallel, "parallel", INT32),
            queue=_arguments.whole(queue, "queue", INT32),
            plan=b"" if plan is None else _arguments.path(plan, "plan"),
            activation=b"" if activation is None else _arguments.text(activation, "activation"),
            chat_format=b"" if chat_format is None else _arguments.text(chat_format, "chat_format"))
        self._info = ModelInfo(**self._native.info())
        _open_models.add(self)

    def close(self) -> None:
        """Ends what is under way and frees the memory; again without effect."""
        self._native.close()

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

    def tokenize(self, text: str, *, as_prompt: bool = False) -> list[int]:
        """Token ids; as_prompt: after the token that texts begin with, where the model has one."""
        return self._native.tokenize(_arguments.text(text, "text"), bool(as_prompt))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Text of tokens; what is no UTF-8 becomes U+FFFD."""
        return self._native.detokenize(_arguments.token_ids(tokens, "tokens"))

    def token_bytes(self, id: int) -> bytes:
        """Bytes that a token stands for; may be part of a character."""
        return self._native.token_bytes(_arguments.whole(id, "token id", INT32))

    def encode_chat(self, messages: Iterable[Message]) -> ChatPrompt:
        """A conversation in the model's own chat template."""
        tokens, stop = self._native.encode_chat(_arguments.messages(messages))
        return ChatPrompt(tuple(tokens), tuple(stop))

    def generate(self, prompt: str | Sequence[int], *, max_tokens: int = 256,
                 sampling: Sampling | None = None, stop: Sequence[str] = (),
                 top_logprobs: int | None = None,
                 json_schema: str | Mapping[str, Any] | None = None) -> Generation:
        """Starts to continue a text, or tokens, and returns what streams it.

        max_tokens     at most; the context may end earlier
        stop           texts to end at, which are not part of the answer
        top_logprobs   scores of every token, and of so many of the likeliest (at most 1000), in the
                       result
        json_schema    only documents of this JSON Schema are generated; of "": any JSON object
        """
        tokens = self._tokens_of(prompt, "prompt")
        return Generation(self, self._start(tokens, max_tokens, sampling, stop, top_logprobs,
                                            json_schema))

    def chat(self, messages: Iterable[Message], *, max_tokens: int = 256,
             sampling: Sampling | None = None, stop: Sequence[str] = (),
             top_logprobs: int | None = None,
             json_schema: str | Mapping[str, Any] | None = None) -> Generation:
        """Starts an answer to a conversation, which `encode_chat` encodes; else as `generate`.

        What was said before is usually found in the KV cache, so that only what is new costs time.
        """
        prompt = self.encode_chat(messages)
        return Generation(self, self._start(prompt.tokens, max_tokens, sampling, stop, top_logprobs,
                                            json_schema, prompt.stop))

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

    def _tokens_of(self, prompt: str | Sequence[int], name: str, *,
                   as_prompt: bool = True) -> list[int]:
        if isinstance(prompt, str):
            return self._native.tokenize(_arguments.text(prompt, name), as_prompt)
        return _arguments.token_ids(prompt, name, "a text or token ids")

    def _start(self, tokens: Sequence[int], max_tokens: int, sampling: Sampling | None,
               stop: Sequence[str], top_logprobs: int | None,
               json_schema: str | Mapping[str, Any] | None,
               template_stop: Sequence[str] = ()) -> _native.Stream:
        return self._native.start(
            tokens, max_tokens=_arguments.whole(max_tokens, "max_tokens", INT64),
            sampling=_arguments.sampling(sampling),
            stop=[*_arguments.stop_texts(template_stop), *_arguments.stop_texts(stop)],
            top_logprobs=(None if top_logprobs is None
                          else _arguments.whole(top_logprobs, "top_logprobs", INT32)),
            json_schema=_arguments.json_schema(json_schema))


_open_models: weakref.WeakSet[Model] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """No thread of a model outlives the interpreter."""
    for model in list(_open_models):
        model.close()
