"""Hearth: large language models inside a memory limit you set.

    import hearth

    with hearth.Model("model.gguf", memory="2.5G") as model:
        for text in model.generate("Once upon a time", max_tokens=100):
            print(text, end="", flush=True)

A model has threads of its own that compute without the interpreter's lock; requests of several Python
threads are computed together. What goes wrong is a `hearth.Error` whose text is one sentence.

Threads do not survive `os.fork()`: in a child that was forked, models of the parent refuse to work.
Load the model in the child, or start processes with multiprocessing's "spawn".
"""

import importlib.metadata

from ._errors import Error, ErrorCode
from ._generation import AsyncGeneration, Generation
from ._model import Model
from ._session import Session
from ._types import (ChatPrompt, GenerateOptions, Message, ModelInfo, Result, Sampling,
                     SamplingOptions, ScoredToken, Stats, Streaming, TokenScore, Tool, ToolCall)

__version__ = importlib.metadata.version("hearth-llm")

__all__ = [
    "AsyncGeneration",
    "ChatPrompt",
    "Error",
    "ErrorCode",
    "GenerateOptions",
    "Generation",
    "Message",
    "Model",
    "ModelInfo",
    "Result",
    "Sampling",
    "SamplingOptions",
    "ScoredToken",
    "Session",
    "Stats",
    "Streaming",
    "TokenScore",
    "Tool",
    "ToolCall",
]
