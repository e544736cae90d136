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
from ._generation import Generation
from ._model import Model
from ._session import Session
from ._types import (ChatPrompt, Message, ModelInfo, Result, Sampling, ScoredToken, Stats,
                     TokenScore)

__version__ = importlib.metadata.version("hearth-llm")

__all__ = [
    "ChatPrompt",
    "Error",
    "ErrorCode",
    "Generation",
    "Message",
    "Model",
    "ModelInfo",
    "Result",
    "Sampling",
    "ScoredToken",
    "Session",
    "Stats",
    "TokenScore",
]
