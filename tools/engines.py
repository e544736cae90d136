"""What the programs that hold Hearth against llama.cpp share.

tools/compare_llamacpp.py compares token ids, bench/e2e/compare_llamacpp.py speeds.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
DEFAULT_HEARTH = REPOSITORY / "build" / "release" / "bin" / "hearth"
DEFAULT_TIMEOUT_S = 600


class CannotRun(Exception):
    """A tool or file is missing, or a program failed. Its text is one sentence."""


def run_command(command: list[str], name: str | None = None,
                timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
    """Standard output of a command; raises CannotRun with its errors.

    name is who failed, for people; without it the whole command is named.
    """
    name = name or " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s,
                              stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"{name}: no result within {timeout_s:.0f} s") from error
    except OSError as error:
        raise CannotRun(f"{name}: {error}") from error
    if done.returncode < 0:
        raise CannotRun(f"{name} crashed (signal {-done.returncode})")
    if done.returncode != 0:
        errors = done.stderr.decode(errors="replace").strip()[-2000:]
        raise CannotRun(f"{name}: exit {done.returncode}: {errors}")
    return done.stdout.decode(errors="replace")


def import_llama_cpp() -> Any:
    """The package, with its log turned off: what matters comes back as an error."""
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise CannotRun(f"llama-cpp-python cannot be imported: {error}") from error
    llama_cpp.llama_log_set(_silent_log(), None)
    return llama_cpp


@functools.cache
def _silent_log() -> Any:
    """A log callback that prints nothing; cached, because C keeps the pointer."""
    import llama_cpp

    return llama_cpp.llama_log_callback(lambda level, text, user_data: None)
