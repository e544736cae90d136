// Numbers and the filters on them. What is expected was computed by Jinja2 3.1.6.
#include "text/jinja/values/numbers.h"

#include <gtest/gtest.h>

#include "text/jinja/test_rendering.h"

namespace hearth::jinja {
namespace {

TEST(JinjaNumbers, IntegersAndFloatsCompareExactly) {
  ExpectAll({
      {"{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }} "
       "{{ 9007199254740993 <= 9007199254740992.0 }} {{ 9007199254740992.0 < 9007199254740993 }}",
       "False True False True"},
      {"{{ 2 == 2.0 }} {{ -3 < -2.5 }} {{ -2 > -2.5 }} {{ 10 ** 22 == 1e22 }} {{ 5 < 1e300 }} "
       "{{ -5 > -1e300 }}",
       "True True True True True True"},
      {"{{ 1 < 'nan'|float }} {{ 1 >= 'nan'|float }} {{ 1 != 'nan'|float }}", "False False True"},
      {"{{ 2 ** 53 + 1 in {2.0 ** 53: 1} }} {{ [2 ** 53 + 1, 2.0 ** 53]|min }}",
       "False 9007199254740992.0"},
  });
}

TEST(JinjaNumbers, NothingRoundsToMinusZero) {
  ExpectAll({
      {"{{ (-0.5)|round(0, 'ceil') }} {{ (-5.0)|round(-3, 'ceil') }} {{ (-0.4)|round }}",
       "0.0 0.0 -0.0"},
      {"{{ (-0.7)|filesizeformat }}", "0 Bytes"},
  });
}

TEST(JinjaNumbers, MethodsOfIntegersAndDicts) {
  ExpectAll({
      {"{{ (5).bit_length() }} {{ true.bit_length() }} {{ (-8).bit_length() }}", "3 1 4"},
      {"{{ {}.fromkeys(['a', 'b'], 1) }}{{ {}.fromkeys('ab') }}",
       "{'a': 1, 'b': 1}{'a': None, 'b': None}"},
      {"{{ [1, 2, 3]|batch('2')|list }}{{ [1, 2, 3]|batch(1.5)|list }}", "[[1, 2, 3]][[1, 2, 3]]"},
  });
}

}  // namespace
}  // namespace hearth::jinja
