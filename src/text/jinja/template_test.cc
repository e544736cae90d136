// The language, case by case. What is expected was computed by Jinja2 3.1.6;
// tools/compare_jinja.py compares thousands of random templates.
#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/jinja/test_rendering.h"
#include "text/jinja/values/memory_meter.h"

namespace hearth::jinja {
namespace {

using testing::HasSubstr;

TEST(JinjaTemplate, WhiteSpace) {
  ExpectAll({
      {"a\n", "a"},
      {"a\n\n", "a\n"},
      {"a\r\nb\rc", "a\nb\nc"},
      {"{% if true %}\n  x\n  {% endif %}\ny", "  x\ny"},
      {"a {%- if true -%} \n b {%- endif +%}\n c", "ab\n c"},
      {"  {%+ if true %}x{% endif %}", "  x"},
      {"x  {{- 1 -}}  y", "x1y"},
      {"a\n  {# note #}\nb", "a\nb"},
      {"a {#- note -#} b", "ab"},
      {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
      {"a  {%- raw -%}  b {{ {% endraw -%}  c", "ab {{ c"},
      {"{{ '}}' }}{{ {'a': {}}['a'] }}", "}}{}"},
  });
}

TEST(JinjaTemplate, NamesBelongToFrames) {
  ExpectAll(
      {
          {"{% for i in [1, 2] %}{% set x = i %}{% endfor %}{{ x is defined }}", "False"},
          {"{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
           "01020"},
          {"{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "1"},
          {"{% if false %}{% set given = 1 %}{% endif %}{{ given }}", "C"},
          // Set before it is read: undefined until then, in inner frames too.
          {"{% for i in [1] %}[{{ given }}]{% endfor %}{% set given = 1 %}", "[]"},
          {"{% for i in [1] %}[{{ given }}]{% endfor %}{{ given }}{% set given = 1 %}", "[C]C"},
          {"{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
           "12"},
          {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
          {"{% set x %}{% set y = 1 %}<{{ y }}>{% endset %}{{ x }}{{ y is defined }}", "<1>False"},
          {"{% block b %}{{ given }}{% endblock %}", "C"},
          {"{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor "
           "%}"
           "{{ ns.n }}",
           "6"},
      },
      R"({"given": "C"})");
}

TEST(JinjaTemplate, Loops) {
  ExpectAll({
      {"{% for x in 'abc' %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }} "
       "{% endfor %}",
       "12TrueFalse 21FalseFalse 30FalseTrue "},
      {"{% for x in [1, 2, 3] %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
       "<1>2 1<2>3 2<3> "},
      {"{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }} {% endfor %}",
       "Truea Falseb Truea "},
      {"{% for x in range(6) if x is odd %}{{ loop.length }}{{ x }} {% endfor %}", "31 33 35 "},
      {"{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"},
      {"{% for x in [] %}{% else %}none{% endfor %}", "none"},
      // The "else" runs where no pass came to its end.
      {"{% for x in [1] %}{% continue %}{% else %}none{% endfor %}", "none"},
      {"{% for x in [[1, [2]], [3]] recursive %}{{ loop.depth }}"
       "{{ loop(x) if x is not number else x }}{% endfor %}",
       "121232123"},
      {"{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"},
  });
}

TEST(JinjaTemplate, Macros) {
  ExpectAll({
      {"{% macro m(a, b=a ~ '!', c='c') %}{{ a }}{{ b }}{{ c }} {% endmacro %}"
       "{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m() }}",
       "11!c 12c 11!3 !c "},
      {"{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
       "1(2,){'x': 3}"},
      {"{% macro m() %}<{{ caller(1, b=2) }}>{% endmacro %}"
       "{% call(a, b) m() %}{{ a + b }}{% endcall %}",
       "<3>"},
      {"{% macro fact(n) %}{{ n * (fact(n - 1)|int) if n > 1 else 1 }}{% endmacro %}{{ fact(10) }}",
       "3628800"},
      {"{% macro m(a, b=1) %}{% endmacro %}{{ m.name }}{{ m.arguments }}", "m('a', 'b')"},
      {"{% generation %}a{{ 1 }}{% endgeneration %}", "a1"},
      {"{% filter upper|replace('A', 'b') %}ab{% endfilter %}", "bB"},
  });
}

TEST(JinjaTemplate, ValuesAsText) {
  ExpectAll({
      {"{{ [1, 'a', none, true, 2.0, {'k': (1,)}, undefined_name] }}",
       "[1, 'a', None, True, 2.0, {'k': (1,)}, Undefined]"},
      {R"({{ ["it's", 'say "x"', "both ' and \"", '\n\\'] }})",
       R"(["it's", 'say "x"', 'both \' and "', '\n\\'])"},
      {"{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1/3 }} {{ 2.5e-7 }} {{ 100.0 }}",
       "1e+16 1000000000000000.0 0.0001 1e-05 0.3333333333333333 2.5e-07 100.0"},
      {"{{ 7 // -2 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7 / 2 }}",
       "-4 2 3.0 1024 0.5 3.5"},
      {"{{ 2 ** 100 }}", "1267650600228229401496703205376"},
      {"{{ 'a' 'b' ~ 1 ~ none ~ [1] }}", "ab1None[1]"},
      {"{{ range(3) }} {{ {'a': 1}.items() }} {{ namespace(a=1) }}",
       "range(0, 3) dict_items([('a', 1)]) <Namespace {'a': 1}>"},
      {"{{ 42.55|round }} {{ 2.5|round }} {{ 2.675|round(2) }} {{ 1234|round(-2) }} {{ 5|round }}",
       "43.0 2.0 2.67 1200 5"},
  });
}

TEST(JinjaTemplate, Json) {
  ExpectAll(
      {
          {"{{ d|tojson }}", R"({"b": [1, 2.5, null, true], "a": {"ü": "\"\\\n\u0001"}, "e": []})"},
          {"{{ d|tojson(sort_keys=true, separators=(',', ':')) }}",
           R"({"a":{"ü":"\"\\\n\u0001"},"b":[1,2.5,null,true],"e":[]})"},
          {"{{ d.a|tojson(ensure_ascii=true) }}", R"({"\u00fc": "\"\\\n\u0001"})"},
          {"{{ '\x7f'|tojson }}{{ '\x7f'|tojson(ensure_ascii=true) }}", "\"\x7f\"\"\\u007f\""},
          {"{{ d|tojson(indent=2) }}",
           "{\n  \"b\": [\n    1,\n    2.5,\n    null,\n    true\n  ],\n  \"a\": {\n    \"ü\": "
           "\"\\\"\\\\\\n\\u0001\"\n  },\n  \"e\": []\n}"},
          {"{{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson }}",
           R"({"1": "c", "null": "b", "1.5": "d"})"},
          {"{{ big|tojson }} {{ big + 1 }}", "123456789012345678901 123456789012345678902"},
      },
      R"({"d": {"b": [1, 2.5, null, true], "a": {"ü": "\"\\\n\u0001"}, "e": []},
         "big": 123456789012345678901})");
}

TEST(JinjaTemplate, LooksAtEveryCharacterOfALongText) {
  const std::string context = R"({"text": ")" + std::string(2'000'000, 'a') + "\"}";
  EXPECT_EQ(
      Render(
          "{% for c in text %}{% if c['type'] == 'image' %}x{% endif %}{% endfor %}{{ text[0] }}",
          context),
      "a");
}

TEST(JinjaTemplate, TextsArePythons) {
  ExpectAll({
      {"{{ 'straße'.upper() }} {{ 'ΑΣ'.lower() }} {{ 'ǆ x'.title() }} {{ 'ÀB'.swapcase() }}",
       "STRASSE ας ǅ X àb"},
      {"{{ 'äöü'[1] }}{{ 'äöü'|length }}{{ 'äöü'[::-1] }}", "ö3üöä"},
      {"{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a b c'.rsplit(none, 1) }}",
       "['a', 'b']['a', 'b,c']['a b', 'c']"},
      {"{{ 'ab'.center(5, '*') }}{{ '-5'.zfill(4) }}{{ 'x'.ljust(3) }}|", "**ab*-005x  |"},
      {"{{ 'a-b c'|title }} {{ 'hELLO wORLD'|capitalize }}", "A-B C Hello world"},
      {"{{ '%s has %d%% of %5.1f|%-4s|%04d' % ('x', 3, 2.25, 'l', 7) }}",
       "x has 3% of   2.2|l   |0007"},
      {"{{ '{} {0}'.format }}{{ '{a[0].b:>3}{1:,}{0!r}'.format('x', 12345, a=[{'b': 1}]) }}",
       "<function>  112,345'x'"},
      {"{{ 'aXbX'.replace('X', '--', 1) }}{{ 'ab'.replace('', '.') }}", "a--bX.a.b."},
      {"{{ 'a\\nb\\n\\nc'|indent(2) }}", "a\n  b\n\n  c"},
      {"{{ strftime_now('[%Z|%z|%%z]') }}{{ strftime_now('%f')|length }}", "[||%z]6"},
      {"{{ {'a\x1c': 1}|xmlattr }}", " a\x1c=\"1\""},
      {"{{ 'foo bar baz qux'|truncate(9) }}{{ 'abc'|truncate(3) }}", "foo...abc"},
  });
}

TEST(JinjaTemplate, FiltersAndTests) {
  ExpectAll(
      {
          {"{{ l|sort(attribute='n')|map(attribute='n')|join(',') }}", "1,2,3"},
          {"{{ l|selectattr('n', 'gt', 1)|map(attribute='t')|list }}", "['c', 'b']"},
          {"{% for g in l|groupby('k') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}", "x2y1"},
          {"{{ {'b': 1, 'A': 2}|dictsort }}{{ [3, 1]|min }}{{ [1, 2]|sum }}",
           "[('A', 2), ('b', 1)]13"},
          {"{{ nope|default('d') }}{{ ''|default('d') }}{{ ''|default('d', true) }}", "dd"},
          {"{{ ['a', 'A', 'b']|unique|list }}{{ [1, 2, 3]|batch(2, 0)|list }}",
           "['a', 'b'][[1, 2], [3, 0]]"},
          {"{{ '42.9'|int }}{{ 'x'|int(7) }}{{ '0x1F'|int(0, 16) }}{{ '1e2'|float }}",
           "42731100.0"},
          {"{{ 1 is sameas(1) }}{{ [] is sequence }}{{ {} is mapping }}{{ nope is callable }}",
           "TrueTrueTrueTrue"},
          {"{{ 'x' if false else nope is undefined }}{{ 'a' in 'cat' }}{{ 2 not in [1] }}",
           "TrueTrueTrue"},
          {"{{ d.items is callable }}{{ d['items'] }}{{ d.get('z', 1) }}", "True51"},
          {"{{ nope }}{{ nope|length }}{{ nope|list }}{{ none|upper }}", "0[]NONE"},
          {"{% set f = joiner('; ') %}{% for x in 'ab' %}{{ f() }}{{ x }}{% endfor %}", "a; b"},
      },
      R"({"l": [{"n": 3, "t": "c", "k": "x"}, {"n": 1, "t": "a", "k": "y"},
                {"n": 2, "t": "b", "k": "x"}], "d": {"items": 5}})");
}

TEST(JinjaTemplate, RefusesWithTheLine) {
  const LanguageCase cases[] = {
      {"a\n{{ 1 + }}", "test: line 2: expected an expression, found }}"},
      {"\n\n{% if x %}a", "line 3: the template ends where 'endif' is missing"},
      {"{% nope %}", "line 1: the tag 'nope' is unknown here"},
      {"{% include 'x' %}", "'include' is not supported in a chat template"},
      {"{{ x|nope }}", "line 1: there is no filter 'nope'"},
      {"{{ x is nope }}", "there is no test 'nope'"},
      {"{{ 'abc }}", "a string has no closing quote"},
      {"{# abc", "a comment has no end"},
      {"{{ (1 }}", "unexpected '}', expected ')'"},
      {"{{ ! }}", "unexpected character '!'"},
      {"{% break %}", "'break' stands outside a loop"},
      {"{% for loop in x %}{% endfor %}", "'loop' cannot be assigned to"},
      {"{% set 1 = 2 %}", "cannot be assigned to"},
      {"a\nb\n{{ raise_exception('no ' ~ 'way') }}", "test: line 3: no way"},
      {"{{ nope.a }}", "'nope' is undefined"},
      {"{{ 1 + 'a' }}", "a int and a str do not go together with +"},
      {"\n{{ [].append(1) }}", "line 2: 'append' of a list is not allowed"},
      {"{{ 1 / 0 }}", "a division by zero"},
      {"{{ 5() }}", "a int cannot be called"},
      {"{% set x.y = 1 %}", "is no namespace"},
      {"{% for a, b in [[1]] %}{% endfor %}", "there are 1 values for 2 names"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "takes at most 1 arguments"},
      {"{{ [1, 'a']|sort }}", "have no order"},
      {"{{ nope|tojson }}", "tojson cannot write a Undefined"},
      {"{{ [1]|map('upper')|length }}", "a generator has no length"},
      {"{{ 'x'|wordwrap }}", "are not supported"},
      {"{{ 10 ** 39 }}", "more than 38 digits"},
  };
  for (const LanguageCase& c : cases)
    EXPECT_THAT(Refusal(c.source), HasSubstr(c.expected)) << c.source;
  // Where it may never be reached, an unknown filter is no error.
  EXPECT_EQ(Render("{% if false %}{{ x|nope }}{% endif %}{{ x|nope if false }}ok"), "ok");
}

TEST(JinjaTemplate, RefusesContextsThatAreNoObjects) {
  EXPECT_THAT(Refusal("", "[1]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(Refusal("", "{\n\"a\": }"), HasSubstr("is not valid JSON: see line 2"));
  EXPECT_THAT(Refusal("", "{\"a\": " + std::string(300, '[') + std::string(300, ']') + "}"),
              HasSubstr("nested too deeply"));
}

// Filters a list again and again; nobody asks for an item before the end.
std::string NestedIterators(const std::string& filter, int count = 5000) {
  return "{% set ns = namespace(l=[['a']]) %}{% for i in range(" + std::to_string(count) +
         ") %}{% set ns.l = ns.l|" + filter + " %}{% endfor %}{{ ns.l|list|length }}";
}

TEST(JinjaTemplate, NestsIteratorsAsOftenAsTemplatesDo) {
  for (const char* filter : {"map('list')", "select", "selectattr(0)", "batch(1)", "slice(1)",
                             "unique(attribute=0)", "select('in', ns.l)"}) {
    EXPECT_EQ(Refusal(NestedIterators(filter, 100)), "") << filter;
    EXPECT_THAT(Refusal(NestedIterators(filter)), HasSubstr("too many iterators")) << filter;
  }
}

// What is held is counted before it is taken, wherever it is.
TEST(JinjaTemplate, AsksBeforeItTakesMemory) {
  constexpr size_t kMost = size_t{1} << 20;
  const std::string hostile[] = {
      "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% "
      "endfor %}",
      "{{ range(100000)|list|length }}",
      "{{ 'x' * 1000000 }}",
      "{{ range(500)|join('x' * 2000) }}",
      "{{ range(100000)|list|string|length }}",
      "{{ range(100000)|list|tojson|length }}",
      "{{ range(100000)|sort|length }}",
      "{{ range(100000)|map('string')|list|length }}",
      "{{ ('a' * 100000).split('a')|length }}{{ ('ab' * 400000).replace('a', 'bbbb')|length }}",
      "{% for i in range(100000) %}0123456789{% endfor %}",
      "{% set x %}{% for i in range(100000) %}0123456789{% endfor %}{% endset %}",
  };
  for (const std::string& source : hostile) {
    size_t most_asked = 0;
    MemoryMeter meter(size_t{64} << 20, [&](size_t bytes) {
      most_asked = std::max(most_asked, bytes);
      return bytes <= kMost;
    });
    const MeterScope scope(meter);
    try {
      Render(source);
      ADD_FAILURE() << source;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget) << source << error.what();
    }
    EXPECT_GT(most_asked, kMost) << source;
  }
}

TEST(JinjaTemplate, CountsWhatItGivesBack) {
  MemoryMeter meter(size_t{8} << 20);
  const MeterScope scope(meter);
  EXPECT_EQ(
      Render("{% for i in range(40) %}{% if 'x' * 20000 == 'y' %}{% endif %}{% endfor %}a", "{}"),
      "a");
  EXPECT_LT(meter.used_bytes(), size_t{1} << 10);
}

TEST(JinjaTemplate, BoundsWhatHostileTemplatesTake) {
  Limits limits;
  limits.max_steps = 100'000;
  limits.max_bytes = size_t{8} << 20;
  limits.max_output_characters = 100'000;
  const std::string deep(100'000, '(');
  const std::string chain = "{{ x" + std::string(100'000, '.') + " }}";
  std::string sums = "{{ 1";
  for (int i = 0; i < 5000; ++i) sums += "+1";
  const std::string hostile[] = {
      "{{ " + deep,
      chain,
      sums + " }}",
      "{{ " + std::string(50'000, '-') + "1 }}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{{ range(10000000) }}",
      "{{ 'x' * 1000000000000 }}",
      "{{ [1] * 100000000000 }}",
      "{{ '%1000000000000d' % 1 }}{{ '{:1000000000}'.format(1) }}",
      "{{ 'a'.center(100000000000) }}",
      "{% set x = 'xxxxxxxxxx' %}" +
          [] {
            std::string doubling;
            for (int i = 0; i < 60; ++i) doubling += "{% set x = x ~ x %}";
            return doubling;
          }(),
      "{% set x = [] %}" +
          [] {
            std::string doubling;
            for (int i = 0; i < 60; ++i) doubling += "{% set x = [x, x] %}";
            return doubling + "{{ x }}";
          }(),
      "{% set n = namespace(x=[]) %}{% for i in range(5000) %}{% set n.x = [n.x] %}{% endfor %}"
      "{{ n.x }}",
      NestedIterators("map('string')"),
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% for x in range(100000) %}aaaaaaaaaaaaaaaaaaaa{% endfor %}",
  };
  for (const std::string& source : hostile) {
    EXPECT_NE(Refusal(source, "{\"x\": 1}", limits), "") << source.substr(0, 80);
  }
}

}  // namespace
}  // namespace hearth::jinja
