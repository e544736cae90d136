// Statements, blocks and loops beside what template_test.cc has. What is expected was computed by
// Jinja2 3.1.6.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/jinja/test_rendering.h"

namespace hearth::jinja {
namespace {

TEST(JinjaStatements, OtherTemplatesAreAnErrorWhereTheyAreReached) {
  ExpectAll({
      {"{% if false %}{% include ['x', y] ignore missing with context %}{% import 'x' as y %}"
       "{% from 'a' import b, c as d without context %}{% extends z %}{% endif %}{{ y is defined "
       "}}",
       "False"},
      {"{% autoescape false %}{{ '<' }}{% set q = 1 %}{% endautoescape %}{{ q is defined }}",
       "<False"},
      {"{% if false %}{% autoescape true %}{{ '<' }}{% endautoescape %}{% endif %}ok", "ok"},
  });
  for (const char* tag : {"include 'x'", "import 'x' as y", "from 'x' import a", "extends 'x'"}) {
    EXPECT_THAT(Refusal("\n{% " + std::string(tag) + " %}"),
                testing::HasSubstr("is not supported in a chat template"))
        << tag;
  }
  EXPECT_THAT(Refusal("{% autoescape true %}{{ '<' }}{% endautoescape %}"),
              testing::HasSubstr("'autoescape'"));
  for (const char* tag : {"include", "import 'x'", "from 'x' import a,", "from 'x' import _a"}) {
    EXPECT_NE(Refusal("{% if false %}{% " + std::string(tag) + " %}{% endif %}"), "") << tag;
  }
}

TEST(JinjaStatements, SelfHasTheBlocks) {
  ExpectAll({
      {"{% block a %}A{{ x }}{% endblock %}{% set x = 1 %}{{ self.a() }}{{ self['a']()|lower }}",
       "AA1a1"},
      {"{% macro m() %}{{ self.b() }}{% endmacro %}{% if false %}{% block b %}B{% endblock %}"
       "{% endif %}{{ m() }}{{ self.c is defined }}{{ self }}",
       "BFalse<TemplateReference None>"},
      {"{% set self = 1 %}{{ self }}", "1"},
  });
  EXPECT_NE(Refusal("{% block a %}{{ self.a() }}{% endblock %}"), "");
  EXPECT_NE(Refusal("{{ self.a() }}"), "");
}

TEST(JinjaStatements, LoopHasTheItemsThatAreLeft) {
  ExpectAll({
      {"{% for x in [1, 2, 3, 4] %}{% for y, its in loop %}{{ y }}{{ its.index }} {% endfor %}|"
       "{% endfor %}",
       "22 33 44 |"},
      {"{% for x in [1, 2, 3] %}{{ loop is iterable }}{{ loop|list|length }}{{ loop.index }}"
       "{% endfor %}",
       "True23"},
      {"{% for x in [1, 2, 3] if x != 2 %}{{ loop|map('first')|list }}{% endfor %}", "[3]"},
  });
  // A loop over the rest of a loop over the rest of a loop.
  EXPECT_THAT(Refusal("{% set ns = namespace(l=range(100000)) %}{% for i in range(1000) %}"
                      "{% for x in ns.l %}{% set ns.l = loop %}{% break %}{% endfor %}{% endfor %}"
                      "{{ ns.l|first }}"),
              testing::HasSubstr("too many iterators"));
}

TEST(JinjaStatements, RefusesWhatJinjaDoes) {
  for (const char* source :
       {"{{ [1]|sort(reverse=none) }}", "{{ [1]|sort(nope) }}", "{{ {}|dictsort(reverse='x') }}",
        "{{ l[0,] }}", "{% for a, in [[1]] %}{% endfor %}",
        "{% macro m(caller) %}{{ caller }}{% endmacro %}",
        "{% if false %}{% macro m(a, caller, b=1) %}{{ caller }}{% endmacro %}{% endif %}"}) {
    EXPECT_NE(Refusal(source), "") << source;
  }
  ExpectAll({
      {"{{ [3, 1]|sort(reverse=2) }}{{ {(1, 2): 3}[1, 2] }}", "[3, 1]3"},
      {"{% macro m(caller=5) %}{{ caller }}{% endmacro %}{{ m() }}", "5"},
      {"{% macro m(caller) %}1{% endmacro %}{{ m() }}", "1"},
  });
}

TEST(JinjaStatements, TagsMayEndWithTheTemplate) {
  ExpectAll({{"a{#", "a"}, {"a{% raw %}", "a"}, {"a {#-", "a"}});
  for (const char* source : {"{# ", "{% raw %} ", "{{", "{%"}) EXPECT_NE(Refusal(source), "");
}

TEST(JinjaStatements, NamespacesMayHoldThemselves) {
  ExpectAll({
      {"{% set n = namespace() %}{% set n.a = n %}{{ n }}", "<Namespace {'a': <Namespace {...}>}>"},
      {"{% set n = namespace() %}{% set n.a = [n] %}{{ n.a }}{{ n }}",
       "[<Namespace {'a': [...]}>]<Namespace {'a': [<Namespace {...}>]}>"},
      {"{% set a = [1] %}{{ [a, [a]] }}", "[[1], [[1]]]"},
  });
}

}  // namespace
}  // namespace hearth::jinja
