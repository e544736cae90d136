"""What callers give, as the native part takes it.

Wrong types are TypeErrors, wrong values Errors; both name the parameter and repeat no prompt.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import Error, ErrorCode
from ._types import Sampling

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)
UINT64 = (0, (1 << 64) - 1)
_MOST_FLOAT32 = (2 - 2**-23) * 2.0**127
_MOST_MEMORY = 1 << 62

# As `hearth run --memory` has it: 512M, 2.5G, 2.5GB and 2.5GiB, all of powers of 1024.
_SIZE = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?)"
                   r"(?:([KMGTkmgt])(?:B|b|iB)?|[Bb])?")
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def _wrong_type(name: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{name}: expected {expected}, found {type(value).__name__}")


def _refused(name: str, problem: str) -> Error:
    return Error(f"{name}: {problem}", ErrorCode.INVALID_ARGUMENT, name)


def whole(value: object, name: str, bounds: tuple[int, int]) -> int:
    """A whole number from the first to the last of `bounds`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _wrong_type(name, "a whole number", value) from None
    if not bounds[0] <= number <= bounds[1]:
        raise _refused(name, f"expected a whole number from {bounds[0]} to {bounds[1]}")
    return number


def real(value: object, name: str) -> float:
    """A number that a float of C holds."""
    if isinstance(value, (str, bytes, bytearray)):
        raise _wrong_type(name, "a number", value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise _wrong_type(name, "a number", value) from None
    except OverflowError:
        raise _refused(name, "the number is out of range") from None
    if math.isfinite(number) and abs(number) > _MOST_FLOAT32:
        raise _refused(name, "the number is out of range")
    return number


def text(value: object, name: str) -> bytes:
    """A text, in UTF-8."""
    if not isinstance(value, str):
        raise _wrong_type(name, "a text", value)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise _refused(name, "it has a lone surrogate, which is no character") from None


def token_ids(value: object, name: str, expected: str = "token ids") -> list[int]:
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, Iterable):
        raise _wrong_type(name, expected, value)
    return [whole(token, name, INT32) for token in value]


def each(values: object, name: str, expected: str) -> list[Any]:
    """What a list, or another series of things, holds."""
    if isinstance(values, (str, bytes, bytearray, Mapping)) or not isinstance(values, Iterable):
        raise _wrong_type(name, expected, values)
    return list(values)


def stop_texts(stop: object) -> list[bytes]:
    # A text is a series of texts too: its characters, which nobody means.
    if isinstance(stop, str):
        raise _refused("stop", "expected a list of texts, found one text")
    return [text(one, "stop") for one in each(stop, "stop", "a list of texts")]


def function(value: object, name: str) -> Any:
    """What can be called, or None."""
    if value is not None and not callable(value):
        raise _wrong_type(name, "a function", value)
    return value


def path(value: object, name: str) -> bytes:
    """A path's bytes, whatever they are."""
    try:
        encoded = os.fsencode(value)  # type: ignore[arg-type]
    except TypeError:
        raise _wrong_type(name, "a path", value) from None
    except UnicodeEncodeError:
        raise _refused(name, "no file has such a name") from None
    if b"\0" in encoded:
        raise _refused(name, "no file has a zero byte in its name")
    return encoded


def optional_path(value: object, name: str) -> bytes:
    return b"" if value is None else path(value, name)


_STREAMING_WORDS = ("pipeline", "reads", "io", "cache_policy", "lookahead")


def streaming(value: object) -> dict[str, Any]:
    """The keys of Streaming that are set, as the native part takes them."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong_type("streaming", "a mapping of settings", value)
    chosen: dict[str, Any] = {}
    for key, setting in value.items():
        if key in _STREAMING_WORDS:
            chosen[key] = text(setting, key)
        elif key == "merge_gap":
            chosen[key] = -1 if setting is None else size_in_bytes(setting, key)
        elif key == "pinned":
            chosen[key] = real(setting, key)
        else:
            raise _refused("streaming", f"there is no setting {key!r}")
    return chosen


def adapters(value: object) -> list[tuple[bytes, float]]:
    """Paths of adapters with their scales: 1 of a path alone."""
    pairs = []
    for entry in each(value, "adapters", "a list of paths, or of pairs of a path and a scale"):
        one = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, 1.0)
        pairs.append((path(one[0], "adapters"), real(one[1], "adapters")))
    return pairs


def adapter_scales(value: object, name: str) -> dict[int, float]:
    """Scales by the numbers of adapters."""
    if not isinstance(value, Mapping):
        raise _wrong_type(name, "a mapping of adapters' numbers to scales", value)
    return {whole(id, name, INT64): real(scale, name) for id, scale in value.items()}


def size_in_bytes(size: object, name: str) -> int:
    """Of a number, or of "2.5G"; 0 of None."""
    if size is None:
        return 0
    if isinstance(size, str):
        match = _SIZE.fullmatch(size) if len(size) < 100 else None
        scaled = math.ldexp(float(match[1]), _SHIFTS[(match[2] or "").upper()]) if match else 0.0
        count = int(scaled) if scaled <= _MOST_MEMORY else 0
    elif isinstance(size, bool):
        raise _wrong_type(name, "bytes, or a size like '2.5G'", size)
    else:
        count = whole(size, name, INT64)
    if not 0 < count <= _MOST_MEMORY:
        raise _refused(name, "expected bytes, or a size like '2.5G'")
    return count


def sampling(chosen: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Sampling, where they were not given by name."""
    if chosen is None:
        chosen = Sampling()
    if not isinstance(chosen, Sampling):
        raise _wrong_type("sampling", "hearth.Sampling", chosen)
    chosen = dataclasses.replace(chosen, **given)
    if not isinstance(chosen.logit_bias, Mapping):
        raise _wrong_type("logit_bias", "a mapping of token ids", chosen.logit_bias)
    fields: dict[str, Any] = {
        name: real(getattr(chosen, name), name)
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty",
                     "presence_penalty")}
    for name, bounds in (("top_k", INT32), ("repetition_window", INT32), ("seed", UINT64)):
        fields[name] = whole(getattr(chosen, name), name, bounds)
    fields["logit_bias"] = {whole(id, "logit_bias", INT32): real(bias, "logit_bias")
                            for id, bias in chosen.logit_bias.items()}
    return fields


def json_text(document: object, name: str) -> bytes:
    """A mapping as JSON."""
    if not isinstance(document, Mapping):
        raise _wrong_type(name, "a mapping", document)
    try:
        return text(json.dumps(document), name)
    except (TypeError, ValueError, RecursionError):
        raise _refused(name, "it is no JSON document") from None


def json_schema(schema: object) -> bytes | None:
    if schema is None:
        return None
    if isinstance(schema, Mapping):
        return json_text(schema, "json_schema")
    return text(schema, "json_schema")


_SAMPLING = {field.name for field in dataclasses.fields(Sampling)}


def request(options: Mapping[str, Any]) -> dict[str, Any]:
    """GenerateOptions, as the native part takes them; a name that is none of them is a TypeError."""
    rest = dict(options)
    given = {name: rest.pop(name) for name in options if name in _SAMPLING}
    top_logprobs = rest.pop("top_logprobs", None)
    scales = rest.pop("adapters", None)
    checked = {
        "max_tokens": whole(rest.pop("max_tokens", 256), "max_tokens", INT64),
        "sampling": sampling(rest.pop("sampling", None), given),
        "stop": stop_texts(rest.pop("stop", ())),
        "top_logprobs": (None if top_logprobs is None
                         else whole(top_logprobs, "top_logprobs", INT32)),
        "json_schema": json_schema(rest.pop("json_schema", None)),
        "adapters": None if scales is None else adapter_scales(scales, "adapters"),
        "tells_progress": function(rest.pop("progress", None), "progress") is not None}
    if rest:
        raise TypeError(f"there is no argument {next(iter(rest))!r}")
    return checked
