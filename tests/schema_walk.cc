// Random documents of JSON Schemas, as generation would write them.
//
// schema_walk SEED COUNT: reads a schema a line from standard input, and writes a line for each:
// {"documents": ["...", ...]}, or {"refused": "..."} where no grammar says it. A document is a walk
// through the tokens that the grammar allows: any of them, or mostly such that make texts long, or
// that end things. Walks that do not end in time are left out.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/grammar/grammar_matcher.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/tokenizer/test_vocabularies.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

constexpr int kMostSteps = 1500;

const Tokenizer& WalkTokenizer() {
  static const auto tokenizer = [] {
    VocabularyBuilder builder = SmallBpeVocabulary();
    for (const char* text : {"\":", "{\"", "\"}", "\",\"", "true", "null", "12", "00", "99", "-1",
                             ".5", "[[", "]]", "}}", "aa", "e9"}) {
      builder.Add(text, TokenType::kNormal);
    }
    return Tokenizer::FromGguf(builder.Bpe());
  }();
  return *tokenizer;
}

bool EndsSomething(std::string_view bytes) {
  return bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "0" || bytes == "]]" ||
         bytes == "}}";
}

// Texts that stand at the edge of what is allowed: digits, signs, and what ends a text.
bool IsEdge(std::string_view bytes) {
  return bytes.find_first_not_of("0123456789.-+eE\"]}9") == std::string_view::npos;
}

class Walker {
 public:
  explicit Walker(uint32_t seed) : random_(seed) {}

  Json Documents(const std::string& schema, int count) {
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = JsonSchemaGrammar(schema);
    } catch (const Error& error) {
      return {{"refused", error.what()}};
    }
    Json documents = Json::array();
    for (int i = 0; i < count; ++i) {
      try {
        std::string text;
        if (Walk(grammar, i, text)) documents.push_back(text);
      } catch (const Error& error) {
        return {{"documents", documents}, {"stopped", error.what()}};
      }
    }
    return {{"documents", documents}};
  }

 private:
  bool Walk(const std::shared_ptr<const Grammar>& grammar, int kind, std::string& text) {
    static const auto vocabulary = std::make_shared<const SortedVocabulary>(WalkTokenizer());
    GrammarMatcher matcher(grammar, vocabulary);
    const int long_enough = kind % 3 == 0 ? 0 : kind % 3 == 1 ? 30 : 120;
    for (int step = 0; step < kMostSteps; ++step) {
      const TokenMask& mask = matcher.AllowedTokens();
      std::vector<TokenId> all, ends, edges;
      for (size_t i = 0; i < WalkTokenizer().vocab_size(); ++i) {
        const auto id = static_cast<TokenId>(i);
        if (!IsAllowed(mask, id) || WalkTokenizer().IsEndOfGeneration(id)) continue;
        const std::string_view bytes = WalkTokenizer().TokenBytes(id);
        all.push_back(id);
        if (EndsSomething(bytes)) ends.push_back(id);
        if (IsEdge(bytes)) edges.push_back(id);
      }
      if (matcher.IsFinished() && (all.empty() || step > long_enough || random_() % 4 == 0)) {
        return true;
      }
      if (all.empty()) return false;
      const std::vector<TokenId>* choice = &all;
      if (step > long_enough && !ends.empty() && random_() % 8 != 0) choice = &ends;
      if (kind % 2 == 1 && choice == &all && !edges.empty() && random_() % 2 == 0) choice = &edges;
      const TokenId id = (*choice)[random_() % choice->size()];
      if (!matcher.Advance(id)) std::abort();
      text += WalkTokenizer().TokenBytes(id);
    }
    return false;
  }

  std::mt19937 random_;
};

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: schema_walk SEED COUNT < SCHEMAS\n";
    return 2;
  }
  hearth::Walker walker(static_cast<uint32_t>(std::atoi(argv[1])));
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto documents = walker.Documents(line, std::atoi(argv[2]));
    std::cout << documents.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << '\n';
  }
  return 0;
}
