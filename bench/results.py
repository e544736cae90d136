"""Stored results of benchmarks: reads, checks and writes bench/results (docs/formats/results.md)."""

from __future__ import annotations

import json
import math
import re
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
SCHEMAS = ROOT / "docs/formats/schemas"
TYPES = {"string": str, "number": (int, float), "integer": int, "null": type(None),
         "object": dict, "array": list}


class BadResult(Exception):
    """One sentence on what is wrong with a file."""


def has_type(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name != "boolean")


def check_scalar(value: Any, schema: dict[str, Any], at: str) -> None:
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(has_type(value, name) for name in names):
        raise BadResult(f"{at} is {json.dumps(value)}, not of type {' or '.join(names)}")
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(json.dumps(one) for one in schema["enum"])
        raise BadResult(f"{at} is {json.dumps(value)}, not one of {allowed}")
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            raise BadResult(f"{at} is empty")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            raise BadResult(f"{at} is \"{value}\", which does not match {schema['pattern']}")
    if isinstance(value, (int, float)) and value < schema.get("minimum", -math.inf):
        raise BadResult(f"{at} is {value}, less than {schema['minimum']}")


def check(value: Any, schema: dict[str, Any], at: str = "the document") -> None:
    """Throws BadResult where `value` is not what the schema describes.

    Knows the words of JSON Schema that the two schemas of results use.
    """
    check_scalar(value, schema, at)
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                raise BadResult(f"{at} has no field \"{name}\"")
        properties = schema.get("properties", {})
        for name, field in value.items():
            if name in properties:
                check(field, properties[name], f"\"{name}\"" if at == "the document" else f"{at}.{name}")
            elif schema.get("additionalProperties") is False:
                raise BadResult(f"{at} has an unknown field \"{name}\"")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            raise BadResult(f"{at} is empty")
        for index, item in enumerate(value):
            check(item, schema.get("items", {}), f"{at}[{index}]")


def schema_of(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.schema.json").read_text())
    return schema


def check_cell(cell: dict[str, Any], at: str) -> None:
    """A spread is in order and says something."""
    if "runs" not in cell and not ("min" in cell and "max" in cell):
        raise BadResult(f"{at} has neither \"runs\" nor both \"min\" and \"max\"")
    low, high = cell.get("min", -math.inf), cell.get("max", math.inf)
    if not low <= cell.get("median", low if low > -math.inf else high) <= high:
        raise BadResult(f"{at} has a median outside of its range")


def check_result(document: Any) -> None:
    """What a schema cannot say of a result."""
    check(document, schema_of("result"))
    try:
        date.fromisoformat(document["date"])
    except ValueError as error:
        raise BadResult(f"\"date\" is \"{document['date']}\", which is no day") from error
    width = len(document["columns"])
    for index, row in enumerate(document["rows"]):
        if len(row) != width:
            raise BadResult(f"\"rows\"[{index}] has {len(row)} cells where there are {width} columns")
        for column, cell in zip(document["columns"], row):
            if isinstance(cell, dict):
                check_cell(cell, f"\"rows\"[{index}], column \"{column['name']}\",")


def read(path: Path) -> dict[str, Any]:
    """A machine or a result; throws BadResult, whose sentence begins with the file's name."""
    try:
        document = json.loads(path.read_text())
        if path.stem == "machine":
            check(document, schema_of("machine"))
        else:
            check_result(document)
            if path.name.split(".")[0] != document["experiment"]:
                raise BadResult(f"\"experiment\" is \"{document['experiment']}\", which the file's "
                                "name does not begin with")
        if document["machine"] != path.parent.name:
            raise BadResult(f"\"machine\" is \"{document['machine']}\", not the folder's name")
    except (BadResult, ValueError, OSError) as error:
        raise BadResult(f"{path}: {error}.") from error
    return document


def head_commit() -> str:
    """The commit that is checked out."""
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                          text=True, check=True).stdout.strip()


def as_text(document: dict[str, Any]) -> str:
    """A result as it is stored: a field per line, a column and a row per line."""
    lines = []
    for name, value in document.items():
        if name in ("columns", "rows"):
            items = ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in value)
            lines.append(f" {json.dumps(name)}: [\n{items}\n ]")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_result(document: dict[str, Any], path: Path) -> None:
    """Raises BadResult where it is not one."""
    check_result(document)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(document))
    print(path)
