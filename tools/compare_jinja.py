#!/usr/bin/env python3
"""Renders random templates with Jinja2 and with `hearth template`, and prints where they differ.

    python3 -m venv /tmp/jinja && /tmp/jinja/bin/pip install jinja2==3.1.6
    /tmp/jinja/bin/python tools/compare_jinja.py [COUNT] [SEED]

Both must give the same text, or both refuse. Left out is what cannot be equal: addresses in texts, and
what docs and headers say is not supported. Not for CI, which has no Jinja2.
"""
import json
import random
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HEARTH = Path(__file__).resolve().parent.parent / "build/release/bin/hearth"
CONTEXT = {
    "s": "Hello World", "e": "", "u": "h\u00e9llo \u00dfx \u4f60\u597d \U0001f917",
    "q": "it's \"q\" \\ \n\t<b>&", "sp": "  a b\tc  \n", "lines": "l1\nl2\r\n\nl4", "csv": "a,b,,c",
    "n": 5, "z": 0, "neg": -3, "f": 2.5, "g": 1e20, "t": True, "b": False, "no": None,
    "big": 123456789012345678901, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "el": [], "ed": {},
    "num": [1, 2.5, -3, True], "mixed": [1, "a", None, 2.5, True, [1], {"k": "v"}],
    "d": {"a": 1, "b": [1, 2], "c": {"x": "y"}}, "i": {"items": 3, "keys": "K"},
    "ld": [{"n": "x", "v": 2, "r": {"k": 1}}, {"n": "Y", "v": 1, "r": {"k": 3}},
           {"n": "x", "v": 3, "r": {"k": 2}}],
    "messages": [{"role": "user", "content": "hi\n there "},
                 {"role": "assistant", "content": "ok", "calls": [{"args": {"a": [1, 2.0, None]}}]}],
}
# Texts with addresses, and what Hearth does not have: integers of more than 38 digits.
UNEQUAL = re.compile(r"(?i)object at 0x|<built-in|<function|<bound method|dict_\w+ object")
UNSUPPORTED = re.compile("38 digits|too large|not supported|so large|too many steps|memory")
random_source = random.Random()
pick = random_source.choice


def number(depth: int) -> str:
    """An expression that gives a number."""
    if depth <= 0:
        return pick(["n", "z", "neg", "f", "t", "3", "-2", "1.5", "0.1", "1e16", "ld[0].v",
                     "messages|length"])
    sub = depth - 1
    return pick([
        lambda: f"({number(sub)} {pick('+-*')} {number(sub)})",
        lambda: f"({number(sub)} {pick(['//', '%', '/'])} {pick(['3', '-4', '2.5'])})",
        lambda: f"({text(sub)}|{pick(['length', 'int', 'float', 'wordcount', 'int(7)'])})",
        lambda: f"({number(sub)}|{pick(['abs', 'int', 'round', 'round(1)', 'round(-1)'])})",
        lambda: f"({number(0)}|round({random_source.randint(0, 2)}, '{pick(['ceil', 'floor'])}'))",
        lambda: f"({numbers(sub)}|{pick(['sum', 'min', 'max', 'first', 'last', 'length'])})",
        lambda: f"{text(sub)}.{pick(['find', 'count', 'rfind'])}({text(0)})",
        lambda: f"({random_source.randint(-3, 4)} ** {random_source.randint(0, 5)})",
        lambda: f"({number(sub)} if {truth(sub)} else -{number(sub)})"])()


def text(depth: int) -> str:
    """An expression that gives a text."""
    if depth <= 0:
        return pick(["s", "u", "q", "sp", "lines", "csv", "e", "'aB c'", "'x-y z'",
                     "messages[0].content", "messages[1]['role']"])
    sub = depth - 1
    flag = lambda: pick(["true", "false"])
    width = lambda: random_source.randint(0, 20)
    return pick([
        lambda: f"({text(sub)} {pick('~+')} {text(sub)})",
        lambda: f"({text(sub)} ~ {anything(sub)})",
        lambda: f"({anything(sub)}|{pick(['safe', 'safe', 'e', 'forceescape', 'string'])})",
        lambda: f"({text(sub)} * {random_source.randint(-1, 3)})",
        lambda: f"({text(sub)}|{pick(['upper', 'lower', 'title', 'trim', 'capitalize', 'reverse'])})",
        lambda: f"{text(sub)}.{pick(['upper', 'strip', 'title', 'swapcase', 'casefold'])}()",
        lambda: f"{text(sub)}.replace({text(0)}, {text(0)})",
        lambda: f"({text(sub)}|replace({text(0)}, {anything(0)}, {random_source.randint(0, 3)}))",
        lambda: f"{text(sub)}[{bounds()}]",
        lambda: f"({items(sub)}|join({text(0)}))",
        lambda: f"({anything(sub)}|tojson(indent={pick(['none', '0', '2'])}))",
        lambda: f"({anything(sub)}|{pick(['string', 'tojson', 'urlencode'])})",
        lambda: f"({text(sub)}|truncate({random_source.randint(3, 10)}, {flag()}, '..', 1))",
        lambda: f"({text(sub)}|indent({random_source.randint(0, 5)}, {flag()}, {flag()}))",
        lambda: f"{text(sub)}.{pick(['center', 'ljust', 'rjust', 'zfill'])}({width()})",
        lambda: f"('%s|%5d|%-6s|%r|%05.1f|%x' % ({anything(sub)}, {number(0)}|int, {text(0)}, "
                f"{anything(0)}, {number(0)}, n))",
        lambda: f"'{{}}:{{!r}}:{{:>6}}:{{:.2f}}'.format({anything(sub)}, {anything(0)}, {text(0)}, f)",
        lambda: f"({text(sub)} if {truth(sub)} else {text(sub)})"])()


def bounds() -> str:
    """What stands between the brackets of a slice."""
    bound = lambda: pick(["", str(random_source.randint(-5, 6))])
    return f"{bound()}:{bound()}" + pick(["", f":{pick(['', '1', '-1', '2', '-2'])}"])


def numbers(depth: int) -> str:
    """An expression that gives a list of numbers."""
    if depth <= 0:
        return pick(["l", "num", "[1]", "[2, 1.5, true]", "range(4)", "(1, 2, 2)"])
    sub = depth - 1
    return pick([
        lambda: f"[{number(sub)}, {number(sub)}]",
        lambda: f"({numbers(sub)}|{pick(['sort', 'sort(reverse=true)', 'list', 'unique|list'])})",
        lambda: f"({numbers(sub)}|{pick(['select', 'reject'])}('gt', {number(0)})|list + [0])",
        lambda: "(ld|map(attribute='v')|list)"])()


def items(depth: int) -> str:
    """An expression that gives a list."""
    if depth <= 0:
        return pick(["l", "ls", "mixed", "ld", "el", "messages", "[1, 'a']", "d.items()|list", "d"])
    sub = depth - 1
    test = lambda: pick(["string", "number", "mapping", "defined", "none", "iterable", "sequence"])
    return pick([
        lambda: numbers(depth),
        lambda: f"{text(sub)}.split({pick(['', ' none, 1', repr(','), repr(' ')])})",
        lambda: f"{text(sub)}.{pick(['splitlines(true)', 'partition(chr)'])}".replace("chr", "','"),
        lambda: f"({items(sub)}|list)[{bounds()}]",
        lambda: f"({items(sub)}|batch({random_source.randint(1, 3)}, {anything(0)})|list)",
        lambda: f"({items(sub)}|slice({random_source.randint(1, 3)})|list)",
        lambda: f"(ld|groupby('{pick(['n', 'v', 'r.k'])}'))",
        lambda: f"(ld|sort(attribute='{pick(['n', 'v', 'r.k', 'n,v'])}'))",
        lambda: f"(ld|{pick(['select', 'reject'])}attr('v', '{pick(['gt', 'eq', 'ne'])}', 2)|list)",
        lambda: f"({items(sub)}|{pick(['select', 'reject'])}('{test()}')|list)",
        lambda: f"({mapping(sub)}|{pick(['dictsort', 'items|list', 'list'])})",
        lambda: f"[{anything(sub)}, {anything(sub)}]",
        lambda: f"({items(sub)}|map('{pick(['string', 'tojson'])}')|list)"])()


def mapping(depth: int) -> str:
    """An expression that gives a dict."""
    if depth <= 0:
        return pick(["d", "ed", "i", "ld[0]", "messages[1]", "{'z': 1, 'a': 2}", "{}"])
    return pick([
        lambda: "{" + f"'k': {anything(depth - 1)}, {text(0)}: {anything(depth - 1)}" + "}",
        lambda: f"dict({mapping(depth - 1)}, a={anything(depth - 1)})"])()


def truth(depth: int) -> str:
    """An expression that gives a bool, or is used as one."""
    if depth <= 0:
        return pick(["t", "b", "true", "no", "undef", "e", "z"])
    sub = depth - 1
    tests = ["defined", "none", "string", "number", "mapping", "iterable", "sequence", "boolean"]
    compare = ["==", "!=", "<", "<=", ">", ">="]
    return pick([
        lambda: f"({number(sub)} {pick(compare)} {number(sub)})",
        lambda: f"({text(sub)} {pick(compare + ['in', 'not in'])} {text(sub)})",
        lambda: f"({anything(sub)} {pick(['in', 'not in'])} {items(sub)})",
        lambda: f"({anything(sub)} is {pick(['', 'not '])}{pick(tests)})",
        lambda: f"({number(sub)}|int is {pick(['odd', 'even', 'divisibleby(3)'])})",
        lambda: f"(not {anything(sub)})",
        lambda: f"({anything(sub)} {pick(['and', 'or', '=='])} {anything(sub)})"])()


def anything(depth: int) -> str:
    """Any expression."""
    other = lambda _: pick(["no", "undef", "big", "g", "d.a", "d.nope", "mixed[2]", "x", "y"])
    return pick([text, text, number, items, mapping, truth, other])(depth)


def tag(inside: str, kind: str = "%") -> str:
    """A tag with some of the signs that control white space."""
    end = "}}" if kind == "{" else "%}"
    sign = pick(["", "", "-"] + ([] if kind == "{" else ["+"]))
    return "{" + kind + pick(["", "", "-", "+"]) + f" {inside} " + sign + end


def statement(depth: int, in_loop: bool) -> str:
    """A statement with its body."""
    body = lambda loop: statements(depth - 1, loop)
    show = lambda: tag(anything(2), "{")
    if depth <= 0:
        return show()
    loop = lambda: tag("loop." + pick(["index", "revindex0", "first", "last", "length", "previtem",
                                       "nextitem", "cycle('a', 'b')", "changed(x)"]), "{")
    source = lambda: pick(["l", "ls", "ld", "d", "range(3)", "'abc'", "undef", "el", items(1)])
    condition = lambda: pick(["", "", f" if {truth(1)}"])
    name = lambda: pick(["x", "y", "n", "s", "ns.a"])
    signature = lambda: pick(["", "a", "a, b=2", "a, b=a, c='z'"])
    return pick([
        show, show,
        lambda: tag(f"if {truth(2)}") + body(in_loop) + tag("else") + body(in_loop) + tag("endif"),
        lambda: tag(f"for x in {source()}{condition()}") + body(True) + loop() + tag("endfor"),
        lambda: tag(f"for k, v in {mapping(1)}.items()") + tag("k ~ v", "{") + tag("endfor"),
        lambda: tag(f"for x in {source()}") + body(True) + tag("else") + body(in_loop) + tag("endfor"),
        lambda: tag(f"set {name()} = {anything(2)}"),
        lambda: tag(f"set {pick(['x', 'y | upper'])}") + body(in_loop) + tag("endset"),
        lambda: tag(f"macro m({signature()})") + body(False) + tag("a ~ b", "{") + tag("endmacro")
        + tag(pick(["m()", "m(1)", "m(1, 2)", "m(a=3)", "m(1, q=2)"]), "{"),
        lambda: tag(pick(["call m()", "call(z) m(1)"])) + body(False) + tag("endcall"),
        lambda: tag(f"filter {pick(['upper', 'trim', 'indent(2)'])}") + body(in_loop)
        + tag("endfilter"),
        lambda: tag(f"with x = {anything(1)}, y = x") + body(in_loop) + tag("endwith"),
        lambda: "{#" + pick(["", "-"]) + " c " + pick(["", "-"]) + "#}",
        lambda: tag(pick(["break", "continue"])) if in_loop else show()])()


def statements(depth: int, in_loop: bool = False) -> str:
    """A few statements with text between them."""
    space = lambda: pick(["", "", "\n", "  ", "\n  ", " \n\n ", "text", "<b>"])
    count = random_source.randint(1, 3)
    return "".join(space() + statement(depth, in_loop) for _ in range(count)) + space()


class Generation(Extension):
    """The tag that marks what a trainer learns."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("run"), [], [], body).set_lineno(line)

    def run(self, caller):
        """What the body writes."""
        return caller()


def make_environment() -> ImmutableSandboxedEnvironment:
    """As transformers sets it up."""
    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = to_json
    return environment


def main() -> int:
    """The number of differences, as exit code 1 where there are any."""
    warnings.simplefilter("ignore")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    random_source.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    environment = make_environment()
    equal = refused = different = 0
    with tempfile.TemporaryDirectory() as folder:
        context, source = Path(folder, "context.json"), Path(folder, "template.jinja")
        context.write_text(json.dumps(CONTEXT))
        for _ in range(count):
            template = "{% set ns = namespace(a=0) %}" + statements(3)
            if pick([True, False]):
                template = tag(anything(4), "{")
            try:
                expected = environment.from_string(template).render(**CONTEXT)
            except Exception:  # whatever Python raises, Hearth must refuse
                expected = None
            source.write_text(template, newline="")
            run = subprocess.run([HEARTH, "template", "--template", source, "--context", context],
                                 capture_output=True, check=False)
            found = run.stdout.decode() if run.returncode == 0 else None
            if found == expected:
                equal, refused = equal + 1, refused + (found is None)
            elif not (UNEQUAL.search(expected or "") or UNSUPPORTED.search(run.stderr.decode())):
                different += 1
                print(f"template {template!r}\n  jinja2 {expected!r}\n  hearth {found!r} "
                      f"{run.stderr.decode().strip()}")
    print(f"{equal} equal, {refused} of them refused by both; {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
