"""What goes wrong, for people and for programs."""

from __future__ import annotations

import enum


class ErrorCode(enum.Enum):
    """Kinds of errors; the same as in hearth.hpp."""

    INVALID_ARGUMENT = "invalid_argument"
    """the caller asked for something that makes no sense"""
    NOT_FOUND = "not_found"
    """a file is missing"""
    IO = "io"
    """the system refused or failed, or the model's file changed"""
    CORRUPT = "corrupt"
    """a file contradicts itself or its format"""
    UNSUPPORTED = "unsupported"
    """well-formed, but nothing here can do it"""
    OUT_OF_BUDGET = "out_of_budget"
    """would exceed the memory limit"""
    CONTEXT_FULL = "context_full"
    """more tokens than the context holds"""
    CANCELLED = "cancelled"
    """the model is being closed"""
    BUSY = "busy"
    """too many requests wait already"""
    INTERNAL = "internal"
    """a bug in Hearth"""


class Error(Exception):
    """One sentence that says what went wrong, and its kind in `code`.

    `field` is the argument that it is about, as it is called here ("top_p", "prompt",
    "messages[1].content"), with which the sentence begins; empty where it is about none.
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INTERNAL, field: str = "") -> None:
        super().__init__(message, code, field)
        self.code = code
        self.field = field

    def __str__(self) -> str:
        return str(self.args[0])


Error.__module__ = "hearth"
ErrorCode.__module__ = "hearth"
