#include "text/jinja/values/search.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

#include "text/jinja/test_rendering.h"
#include "text/jinja/values/failure.h"

namespace hearth::jinja {
namespace {

TEST(JinjaSearch, FindsWhatASlowSearchFinds) {
  std::mt19937 random(7);
  const auto text_of = [&](size_t size) {
    Text text;
    for (size_t i = 0; i < size; ++i) {
      text += (random() % 2 == 0 ? U'a' : U'b') | (random() % 2 == 0 ? kTrustedMark : 0);
    }
    return text;
  };
  Runtime runtime{Limits()};
  for (int i = 0; i < 3000; ++i) {
    const Text text = text_of(random() % 30);
    const Text wanted = text_of(random() % 6);
    const size_t from = random() % 32;
    EXPECT_EQ(TextFinder(runtime, wanted).Find(text, from), text.find(wanted, from));
    EXPECT_EQ(FindText(runtime, text, wanted), text.find(wanted));
    EXPECT_EQ(FindTextBackward(runtime, text, wanted), text.rfind(wanted));
  }
}

TEST(JinjaSearch, TakesLinearTime) {
  // A search that begins anew after each character would compare 10^11 characters and more here.
  const std::string context = "{% set a = 'a' * 1000000 %}{% set b = 'a' * 500000 %}";
  const std::pair<const char*, const char*> cases[] = {
      {"{{ a.find(b ~ 'b') }} {{ a.rfind('b' ~ b) }} {{ a.count(b ~ 'b') }}", "-1 -1 0"},
      {"{{ a.split(b ~ 'b')|length }} {{ a.rsplit('b' ~ b)|length }}", "1 1"},
      {"{{ a.partition(b ~ 'b')[1] }}{{ a.rpartition('b' ~ b)[1] }}{{ b ~ 'b' in a }}", "False"},
      {"{{ a.replace(b ~ 'b', '')|length }} {{ a|replace(b ~ 'b', '')|length }}",
       "1000000 1000000"},
      {"{{ (a ~ 'b').index(b ~ 'b') }} {{ ('b' ~ a).rindex('b' ~ b) }}", "500000 0"},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(Render(context + source), expected) << source;
  }
  Limits limits;
  limits.max_steps = 1'000'000;
  for (const char* use : {"b in a", "a.startswith(b)", "a.removesuffix(b)", "{a: 1}[a]"}) {
    const std::string loop =
        "{% for i in range(100000) %}{% if " + std::string(use) + " %}{% endif %}{% endfor %}";
    EXPECT_NE(Refusal(context + loop, "{}", limits), "") << use;
  }
}

}  // namespace
}  // namespace hearth::jinja
