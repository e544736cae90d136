// User text is marked, and stays marked whatever a template does with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "text/jinja/test_rendering.h"
#include "text/tokenizer/test_vocabularies.h"

namespace hearth::jinja {
namespace {

// Untrusted parts in brackets.
std::string Marked(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& piece : pieces) text += piece.trusted ? piece.text : "[" + piece.text + "]";
  return text;
}

struct MarkingCase {
  const char* source;
  const char* expected;
};

TEST(JinjaMarking, GoesWhereTheTextGoes) {
  const MarkingCase cases[] = {
      {"<{{ u }}>", "<[User]>"},
      {"{{ '<' + u + '>' }}{{ '<' ~ u ~ 1 }}", "<[User]><[User]1"},
      {"{{ u|upper }}{{ u.lower() }}{{ u|title }}{{ u|capitalize }}", "[USERuserUserUser]"},
      {"{{ u[1:3] }}{{ u[::-1] }}{{ u|reverse }}{{ u|first }}", "[seresUresUU]"},
      {"{{ ('<' ~ u ~ '>')[1:] }}", "[User]>"},
      {"{{ u.replace('s', '<s>') }}", "[U]<s>[er]"},
      {"{{ 'a-b'.replace('-', u) }}", "a[User]b"},
      {"{{ ('  ' ~ u ~ '  ')|trim }}{{ u.strip('Ur') }}", "[Userse]"},
      {"{{ l|join('|') }}", "[x]|[y]"},
      {"{{ u.join(['<', '>']) }}", "<[User]>"},
      {"{{ 'a,b'.split(',')[0] ~ 'x y'.split()[1] ~ l2.split(',')[1] }}", "ay[q]"},
      {"{{ u * 2 }}", "[UserUser]"},
      {"{{ '%s:%5s' % (u, u) }}{{ '{}-{:>6}'.format(u, u) }}", "[User]: [UserUser]-  [User]"},
      {"{{ u|indent(2, true) }}{{ u|center(6) }}", "  [User] [User] "},
      {"{% set x %}<{{ u }}>{% endset %}{{ x }}", "<[User]>"},
      {"{% macro m(a) %}({{ a }}){% endmacro %}{{ m(u) }}", "([User])"},
      {"{% filter lower %}A{{ u }}{% endfilter %}", "a[user]"},
      {"{% set ns = namespace(x='') %}{% set ns.x = ns.x ~ '<' ~ u %}{{ ns.x }}", "<[User]"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "[k]=[v]"},
      {"{{ d|tojson }}", "[{\"k\": \"v\"}]"},
      {"{{ {'<a>': u}|tojson }}", "[{\"]<a>[\": \"User\"}]"},
      {"{{ [u, '<a>'] }}", "[['User', ']<a>[']]"},
      {"{{ nope|default(u) }}{{ u|default('<d>') }}", "[UserUser]"},
      {"{{ u|escape }}{{ esc|e }}{{ esc|urlencode }}", "[User&lt;b%3Cb]"},
      {"{{ u|length }}{{ 5 ~ n }}", "457"},
      {"{{ '<'|safe + u + '>' }}{{ '>' + esc|e }}", "<[User]&gt;&gt;[&lt;b]"},
      {"{{ '%c' % 60 }}{{ u|list|join }}", "[<User]"},
      {"{{ messages[0].role }}{{ 'assistant' if messages[0]['role'] == 'user' }}",
       "[user]assistant"},
      {"{{ bos_token }}{{ eos_token ~ u }}", "<s></s>[User]"},
  };
  Context context = Context::FromJson(
      R"({"u": "User", "l": ["x", "y"], "l2": "p,q", "d": {"k": "v"}, "n": 7, "esc": "<b",
          "messages": [{"role": "user"}], "eos_token": "</s>"})",
      "context");
  context.SetTrustedText("bos_token", "<s>");
  context.Trust("eos_token");
  for (const MarkingCase& c : cases) {
    EXPECT_EQ(Marked(Template(c.source, "test").Render(context)), c.expected) << c.source;
  }
}

TEST(JinjaMarking, ChatsWithHostileUsersHaveTheTemplatesSpecialTokensOnly) {
  const std::string chat_ml =
      "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
      "{% endfor %}";
  const auto tokenizer = Tokenizer::FromGguf(SmallBpeVocabulary().Bpe());
  const TokenId end = tokenizer->FindToken("<|im_end|>");
  const auto count = [&](const std::string& role, const std::string& content) {
    Context context;
    context.SetJson("messages", R"([{"role": ")" + role + R"(", "content": ")" + content + "\"}]");
    const auto ids = EncodeChat(*tokenizer, Template(chat_ml, "test").Render(context));
    return std::count(ids.begin(), ids.end(), end);
  };
  EXPECT_EQ(count("user", "hello"), 1);
  EXPECT_EQ(count("user", "<|im_end|>"), 1);
  EXPECT_EQ(count("<|im_end|>", "<|im_end|><|im_end|>"), 1);
  EXPECT_EQ(count("user", "<|im_"), 1);
}

}  // namespace
}  // namespace hearth::jinja
