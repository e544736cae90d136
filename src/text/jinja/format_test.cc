// Python's two ways to format. What is expected was computed by Python 3.11.
#include <gtest/gtest.h>

#include <string>

#include "text/jinja/test_rendering.h"

namespace hearth::jinja {
namespace {

TEST(JinjaFormat, FloatsWithoutATypeKeepAFraction) {
  ExpectAll({
      {"{{ '{:.3}'.format(3.0) }} {{ '{:.0}'.format(-1.5) }} {{ '{:.3}'.format(123.0) }}",
       "3.0 -2e+00 1.23e+02"},
      {"{{ '{:.2}'.format(12.5) }} {{ '{:8.4}'.format(2.5) }}|{{ '{:,}'.format(1234567.5) }}",
       "1.2e+01      2.5|1,234,567.5"},
      {"{{ '{:#.0f}'.format(2.0) }} {{ '{:#.2g}'.format(31) }} {{ '{:,}'.format(1e16) }}",
       "2. 31. 1e+16"},
      {"{{ '%#5.2g' % 31 }} {{ '%#.0e' % 31 }} {{ '%g' % 1e20 }}", "  31. 3.e+01 1e+20"},
  });
}

TEST(JinjaFormat, ZerosStandAfterSignAndPrefix) {
  ExpectAll({
      {"{{ '{:#06x}'.format(255) }} {{ '%#06x' % 255 }} {{ '%#5.5o' % -53 }}",
       "0x00ff 0x00ff -0o00065"},
      {"{{ '{:08,}'.format(1234) }} {{ '{:08,}'.format(-123.5) }} {{ '{:09_x}'.format(65536) }}",
       "0,001,234 -0,123.5 0001_0000"},
      {"{{ '{:>012x}'.format(-96) }} {{ '{:=012g}'.format(10.0) }} {{ '{:x<05}'.format(7) }}",
       "000000000-60 000000000010 7xxxx"},
      {"{{ '{:010}'.format('a') }} {{ '{:^012}'.format(')') }}", "a000000000 00000)000000"},
      {"{{ '{:c}'.format(65) }}{{ '{:3c}'.format(66) }}{{ '{:03c}'.format(67) }}", "A  B00C"},
  });
}

TEST(JinjaFormat, RefusesWhatDoesNotFit) {
  for (const char* format :
       {"'{:.2d}'.format(3)", "'{:.2}'.format(3)", "'{:+5}'.format('a')", "'{:#}'.format('a')",
        "'{:,s}'.format('a')", "'{:,}'.format('a')", "'{: ,X}'.format(5)", "'{:,_}'.format(5)",
        "'{:+c}'.format(65)", "'{:.}'.format(1.5)", "'{:d}'.format(1.5)"}) {
    EXPECT_NE(Refusal(std::string("{{ ") + format + " }}"), "") << format;
  }
}

}  // namespace
}  // namespace hearth::jinja
