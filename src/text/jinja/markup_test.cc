// Markup as markupsafe 3 and Jinja2 3.1.6 have it, without autoescape.
#include <gtest/gtest.h>

#include "text/jinja/test_rendering.h"

namespace hearth::jinja {
namespace {

TEST(JinjaMarkup, EscapesWhatOperatorsAndMethodsJoinToIt) {
  ExpectAll({
      {"{{ '<b>'|safe }}{{ '<b>'|e }}", "<b>&lt;b&gt;"},
      {"{{ '<b>'|safe + '\"&' }}", "<b>&#34;&amp;"},
      {"{{ '<' + '>'|safe }}", "&lt;>"},
      {"{{ ('<'|safe + '>') + \"'\" }}", "<&gt;&#39;"},
      {"{{ '<'|safe + '>'|safe }}", "<>"},
      {"{{ ('<'|safe * 2) + '<' }}", "<<&lt;"},
      {"{{ '%s %d %r'|safe % ('<', 1, '<') }}", "&lt; 1 &#39;&lt;&#39;"},
      {"{{ '%s'|safe % '<' }}", "&lt;"},
      {"{{ '%s'|safe % ('<'|safe) }}", "<"},
      {"{{ ('{}{a}'|safe).format('<', a='>'|safe) }}", "&lt;>"},
      {"{{ ('-'|safe).join(['<', '>'|safe, 1]) }}", "&lt;->-1"},
      {"{{ ('a-b'|safe).replace('-', '<') }}", "a&lt;b"},
      {"{{ ('<a>'|safe).upper() + '<' }}", "<A>&lt;"},
      {"{{ ('<a>'|safe)[0] + '<' }}{{ ('<a>'|safe)[1:] + '<' }}", "<&lt;a>&lt;"},
      {"{{ ('a b'|safe).split()[1] + '<' }}", "b&lt;"},
      {"{{ ('a-b'|safe).partition('-')[0] + '<' }}", "a&lt;"},
      {"{{ ('a'|safe).center(3, '*') }}", "*a*"},
  });
}

TEST(JinjaMarkup, IsOverlookedByWhatBuildsTexts) {
  ExpectAll({
      {"{{ '<'|safe ~ '\"' }}", "<\""},
      {"{{ ('<'|safe ~ '') + '\"' }}", "<\""},
      {"{{ ['<'|safe, '\"']|join }}", "<\""},
      {"{{ ('<-'|safe|replace('-', '\"')) + '<' }}", "<\"<"},
      {"{{ ('<'|safe|tojson) + '\"' }}", "\"<\"\""},
      {"{{ '%s' % ('<'|safe) + '\"' }}", "<\""},
      {"{{ '-'.join(['<'|safe]) + '\"' }}", "<\""},
      {"{% set x %}{{ '<'|safe }}{% endset %}{{ x + '\"' }}", "<\""},
      {"{% macro m() %}{{ '<'|safe }}{% endmacro %}{{ m() + '\"' }}", "<\""},
      {"{% for c in '<>'|safe %}{{ c + '\"' }}{% endfor %}", "<\">\""},
      {"{{ '<'|safe == '<' }}{{ 'a'|safe in ['a'] }}{{ {'a': 1}['a'|safe] }}", "TrueTrue1"},
  });
}

TEST(JinjaMarkup, PassesThroughFilters) {
  ExpectAll({
      {"{{ (' < '|safe|trim) + '<' }}{{ ('a'|safe|upper) + '<' }}", "<&lt;A&lt;"},
      {"{{ ('a'|safe|string) + '<' }}{{ ('a'|safe|default('b')) + '<' }}", "a&lt;a&lt;"},
      {"{{ ('a'|safe|title) + '<' }}{{ ('ab'|safe|reverse) + '<' }}", "A<ba&lt;"},
      {"{{ ('a\nb'|safe|indent(1)) + '<' }}", "a\n b&lt;"},
      {"{{ '<'|e|e }}{{ '<'|e|forceescape }}{{ '&lt;'|safe|e }}", "&lt;&amp;lt;&lt;"},
      {"{{ '<'|e is escaped }}{{ '<' is escaped }}{{ ['<'|safe] }}", "TrueFalse[Markup('<')]"},
      {"{{ 1|safe + '<' }}", "1&lt;"},
      {"{{ {'a<': 'b'|safe}|xmlattr }}", " a&lt;=\"b\""},
  });
}

}  // namespace
}  // namespace hearth::jinja
