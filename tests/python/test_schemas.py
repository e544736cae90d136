"""Random schemas against jsonschema: test_schemas.py SCHEMA_WALK COUNT SEED.

Writes schemas in the manner of pydantic, zod 4 and OpenAPI generators, lets schema_walk write
documents of each, and validates those under Draft 2020-12 with formats asserted. Fails where one is
not valid, or less than 80% of the schemas become grammars.
"""
import json
import random
import re
import subprocess
import sys
import warnings

import jsonschema
from jsonschema import Draft202012Validator

warnings.filterwarnings("ignore")

LEAST_ACCEPTED = 0.8
DOCUMENTS = 6
SAFE = 2**53 - 1
WORDS = "id name kind tags size note count value items owner state email url when score data".split()
ZOD_UUID = (
    r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
    r"|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$"
)
ZOD_EMAIL = (
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
)
ZOD_DATE = (
    r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-"
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-"
    r"(?:0[1-9]|1\d|2[0-8])))$"
)
PATTERNS = [r"^[a-z]+$", r"^[A-Z]{2}\d{4}$", r"^\+?[1-9]\d{1,14}$", r"\d{3}", r"^[a-z0-9]+(?:-[a-z0-9]+)*$",
            r"^#[0-9a-fA-F]{6}$", r"^\S+$", r"^(?!\s*$).+", r"^v\d+(\.\d+){0,2}$", r"^[^@\s]+@[^@\s]+$",
            r"^\w{3,16}$", r"^(foo|bar|baz)$", r"^.*$", r"^[\w.-]+$"]
FORMATS = ["date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
           "uri-reference", "json-pointer", "regex", "int32", "int64", "float", "double", "byte", "binary",
           "password", "path", "color", "iri", "idn-email"]


class Generator:
    """Schemas of one style: pydantic, zod or openapi."""

    def __init__(self, rng, style):
        self.rng, self.style, self.defs = rng, style, {}

    def chance(self, share):
        return self.rng.random() < share

    def name(self):
        return self.rng.choice(WORDS)

    def number(self, whole):
        rng = self.rng
        if whole:
            return rng.choice([0, 1, -1, 10, 99, 100, 255, 65535, rng.randint(-5000, 5000)])
        return rng.choice([0, 0.0, 0.5, 1, 1.0, -1.5, 100, 0.01, 99.99, round(rng.uniform(-50, 50), 3)])

    def bounds(self, schema, whole):
        low, high = self.number(whole), self.number(whole)
        low, high = min(low, high), max(low, high)
        if self.chance(0.6):
            schema[self.rng.choice(["minimum", "minimum", "exclusiveMinimum"])] = low
        if self.chance(0.6):
            schema[self.rng.choice(["maximum", "maximum", "exclusiveMaximum"])] = high + (2 if whole else 1)
        if self.chance(0.1):
            schema["multipleOf"] = self.rng.choice([1, 2, 5, 10, 100] if whole else [0.5, 0.25, 0.01, 0.1])

    def integer(self):
        schema = {"type": "integer"}
        if self.style == "zod":
            schema["minimum"], schema["maximum"] = -SAFE, SAFE
            if self.chance(0.4):
                schema["minimum"] = self.rng.choice([0, 1, -10])
            if self.chance(0.1):
                del schema["minimum"]
                schema["exclusiveMinimum"] = 0
            if self.chance(0.3):
                schema["maximum"] = self.rng.choice([100, 2**31 - 1, 65536])
            return schema
        if self.chance(0.5):
            self.bounds(schema, True)
        if self.style == "openapi":
            schema["format"] = self.rng.choice(["int32", "int64"])
            if self.chance(0.2):
                schema["minimum"], schema["maximum"] = -(2**63), 2**63 - 1
        return schema

    def float(self):
        schema = {"type": "number"}
        if self.chance(0.5):
            self.bounds(schema, False)
        if self.style == "openapi":
            schema["format"] = self.rng.choice(["float", "double"])
        return schema

    def string(self):
        schema, rng = {"type": "string"}, self.rng
        if self.style == "zod" and self.chance(0.25):
            form, pattern = rng.choice([("uuid", ZOD_UUID), ("email", ZOD_EMAIL), ("date", ZOD_DATE)])
            schema["format"], schema["pattern"] = form, pattern
            return schema
        if self.chance(0.25):
            schema["format"] = rng.choice(FORMATS)
            if schema["format"] == "uri" and self.chance(0.5):
                schema["minLength"], schema["maxLength"] = 1, 2083
            return schema
        if self.chance(0.2):
            schema["pattern"] = rng.choice(PATTERNS)
        if self.chance(0.3):
            schema["minLength"] = rng.choice([0, 1, 1, 2, 8])
        if self.chance(0.3):
            schema["maxLength"] = rng.choice([10, 16, 64, 255, 1000, 65536])
        return schema

    def literal(self):
        rng = self.rng
        if self.style == "pydantic" and self.chance(0.5):
            word = self.name()
            schema = {"const": word, "type": "string"}
            if self.chance(0.3):
                schema["enum"] = [word]
            return schema
        values = rng.sample(WORDS, rng.randint(1, 4))
        if self.chance(0.2):
            values += rng.choice([[1, 2.0], [None], [True], [0.5, -3]])
            return {"enum": values}
        schema = {"type": "string", "enum": values}
        if self.chance(0.1):
            schema["minLength"] = rng.choice([2, 4])
        if self.style == "openapi" and self.chance(0.2):
            schema["x-enum-varnames"] = [v.upper() for v in values]
        return schema

    def array(self, depth):
        rng = self.rng
        if self.chance(0.15):
            items = [self.schema(depth - 1) for _ in range(rng.randint(1, 3))]
            schema = {"type": "array", "prefixItems": items}
            if self.style == "pydantic":
                schema["minItems"] = schema["maxItems"] = len(items)
            elif self.chance(0.4):
                schema["items"] = self.schema(depth - 1)
            return schema
        schema = {"type": "array", "items": self.schema(depth - 1)}
        if self.chance(0.3):
            schema["minItems"] = rng.choice([0, 1, 1.0, 2])
        if self.chance(0.3):
            schema["maxItems"] = rng.choice([2, 3, 3.0, 10, 1000])
        if self.chance(0.05):
            schema["uniqueItems"] = True
        return schema

    def record(self, depth):
        schema, rng = {"type": "object", "additionalProperties": self.schema(depth - 1)}, self.rng
        if self.style == "zod":
            schema["propertyNames"] = rng.choice(
                [{"type": "string"}, {"type": "string", "enum": rng.sample(WORDS, 3)},
                 {"type": "string", "minLength": 2, "maxLength": 5}])
        elif self.style == "pydantic" and self.chance(0.2):
            schema["patternProperties"] = {rng.choice(PATTERNS[:3]): schema.pop("additionalProperties")}
            if self.chance(0.5):
                schema["additionalProperties"] = False
        if self.chance(0.1):
            schema["minProperties"] = 1
        if self.chance(0.1):
            schema["maxProperties"] = 3
        return schema

    def object(self, depth, tag=None):
        rng, properties, required = self.rng, {}, []
        if tag is not None:
            properties["type"] = rng.choice([{"const": tag}, {"type": "string", "const": tag}, {"enum": [tag]}])
            required.append("type")
        for name in rng.sample(WORDS, rng.randint(0 if tag else 1, 4)):
            properties[name] = self.property(depth - 1)
            if self.style == "zod" or self.chance(0.6):
                required.append(name)
        schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        if self.style == "zod" or self.chance(0.4):
            schema["additionalProperties"] = False
        elif self.chance(0.1):
            schema["additionalProperties"] = self.rng.choice([True, {"type": "integer"}, {}])
        if self.style == "openapi" and self.chance(0.05):
            schema["dependentRequired"] = {self.name(): [rng.choice(list(properties))]} if properties else {}
        if self.style == "openapi" and self.chance(0.1):
            schema["minProperties"] = 1
        return schema

    def property(self, depth):
        schema = self.schema(depth)
        if self.style == "pydantic":
            if self.chance(0.8) and isinstance(schema, dict):
                schema = {**schema, "title": "A title"}
            if self.chance(0.2):
                schema = {"anyOf": [schema, {"type": "null"}], "default": None}
        elif self.style == "zod":
            if self.chance(0.2):
                schema = {"anyOf": [schema, {"type": "null"}]}
        elif isinstance(schema, dict):
            if self.chance(0.15) and isinstance(schema.get("type"), str):
                schema = {**schema, "type": [schema["type"], "null"]}
            elif self.chance(0.1):
                schema = {**schema, "nullable": True}
            if self.chance(0.2):
                schema = {**schema, "example": 1, "description": "Says more."}
        return schema

    def reference(self, depth):
        if self.defs and self.chance(0.5):
            name = self.rng.choice(list(self.defs))
        else:
            name = f"Model{len(self.defs)}"
            self.defs[name] = True
            self.defs[name] = self.object(depth)
        schema = {"$ref": f"#/$defs/{name}"}
        if self.chance(0.2):
            schema["description"] = "Beside a reference."
        if self.chance(0.1) and isinstance(self.defs[name], dict) and self.defs[name]["properties"]:
            schema["required"] = [self.rng.choice(list(self.defs[name]["properties"]))]
        return schema

    def union(self, depth):
        rng = self.rng
        if self.chance(0.4):
            tags = rng.sample(WORDS, rng.randint(2, 3))
            if self.style == "zod" or self.chance(0.3):
                return {"oneOf": [self.object(depth - 1, tag) for tag in tags]}
            names = []
            for tag in tags:
                names.append(f"Case{len(self.defs)}")
                self.defs[names[-1]] = self.object(depth - 1, tag)
            references = [{"$ref": f"#/$defs/{name}"} for name in names]
            mapping = {tag: r["$ref"] for tag, r in zip(tags, references)}
            return {"oneOf": references, "discriminator": {"propertyName": "type", "mapping": mapping}}
        if self.chance(0.2):
            return {"allOf": [self.object(depth - 1), self.object(depth - 1)]}
        if self.style == "openapi" and self.chance(0.3):
            return {"oneOf": [self.object(depth - 1), self.schema(depth - 1)]}
        return {"anyOf": [self.schema(depth - 1) for _ in range(rng.randint(2, 3))]}

    def mixed(self):
        """A list of types, with names that are about some of them."""
        rng = self.rng
        schema = {"type": rng.sample(["null", "number", "integer", "string", "boolean", "array", "object"], 2)}
        schema.update(minimum=0, maximum=rng.choice([1, 5.5, 100]))
        if self.chance(0.5):
            schema.update(minLength=1, maxLength=4)
        if self.chance(0.3):
            schema.update(items={"type": "integer"}, maxItems=2)
        if self.chance(0.2):
            schema.update(pattern=rng.choice(PATTERNS))
        if self.chance(0.2):
            schema["not"] = rng.choice([{"type": "boolean"}, {"const": "a"}, {"enum": [None]}])
        return schema

    def schema(self, depth):
        leaves = [self.integer, self.integer, self.float, self.string, self.string, self.string,
                  lambda: {"type": "boolean"}, self.literal, self.mixed, lambda: {}]
        if depth <= 0:
            return self.rng.choice(leaves)()
        branches = [self.object, self.array, self.array, self.record, self.reference, self.union]
        if self.chance(0.5):
            return self.rng.choice(leaves)()
        return self.rng.choice(branches)(depth)

    def document(self):
        schema = self.object(3) if self.chance(0.85) else self.union(3)
        if self.style == "zod":
            schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        if self.defs:
            schema["$defs"] = self.defs
        return schema


def check(schema, text, checker):
    """What is wrong with the document, or None."""
    try:
        document = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    errors = Draft202012Validator(schema, format_checker=checker).iter_errors(document)
    error = next(iter(errors), None)
    return error and f"{error.json_path}: {error.message[:200]}"


def main():
    walk, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng, schemas = random.Random(seed), []
    while len(schemas) < count:
        schema = Generator(rng, ("pydantic", "zod", "openapi")[len(schemas) % 3]).document()
        Draft202012Validator.check_schema(schema)
        schemas.append(schema)
    lines = "".join(json.dumps(schema) + "\n" for schema in schemas)
    answer = subprocess.run([walk, str(seed), str(DOCUMENTS)], input=lines, capture_output=True, text=True,
                            check=True)
    results = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(results) == count, "a line for each schema"
    checker, refused, stopped, documents, wrong = Draft202012Validator.FORMAT_CHECKER, {}, 0, 0, []
    for schema, result in zip(schemas, results):
        if "refused" in result:
            reason = re.sub(r" \(at .*", "", result["refused"])
            refused[reason] = refused.get(reason, 0) + 1
            continue
        stopped += "stopped" in result
        for text in result["documents"]:
            documents += 1
            problem = check(schema, text, checker)
            if problem:
                wrong.append((schema, text, problem))
    accepted = count - sum(refused.values())
    for reason, times in sorted(refused.items(), key=lambda item: -item[1])[:12]:
        print(f"  refused {times}: {reason}")
    for schema, text, problem in wrong[:5]:
        print(f"INVALID {problem}\n  schema {json.dumps(schema)}\n  document {text[:1000]}")
    print(f"{count} schemas (seed {seed}): {accepted} accepted ({accepted / count:.1%}), {documents} documents, "
          f"{len(wrong)} invalid, {stopped} stopped; jsonschema {jsonschema.__version__}")
    assert documents > count, "hardly any documents: nothing was tested"
    assert not wrong, "documents that are not valid"
    assert accepted >= LEAST_ACCEPTED * count, "too few schemas are accepted"


if __name__ == "__main__":
    main()
