// What grammars of JSON take, and texts that they write, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/test_vocabularies.h"

namespace hearth {

// Byte letters, and tokens of several characters that cross the parts of a document.
inline const Tokenizer& JsonTokenizer() {
  static const auto tokenizer = [] {
    VocabularyBuilder builder = SmallBpeVocabulary();
    for (const char* text :
         {"\":", "{\"", "\"}", "\",\"", "true", "null", "12", "[[", "]]", "}}"}) {
      builder.Add(text, TokenType::kNormal);
    }
    return Tokenizer::FromGguf(builder.Bpe());
  }();
  return *tokenizer;
}

inline std::shared_ptr<const SortedVocabulary> JsonVocabulary() {
  static const auto vocabulary = std::make_shared<const SortedVocabulary>(JsonTokenizer());
  return vocabulary;
}

inline bool AcceptsJson(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  GrammarMatcher matcher(grammar, JsonVocabulary());
  return matcher.AdvanceBytes(text) && matcher.IsFinished();
}

// A text of random allowed tokens; after `long_enough` the ones that end things are preferred.
inline std::string RandomJson(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random) {
  GrammarMatcher matcher(grammar, JsonVocabulary());
  const Tokenizer& tokenizer = JsonTokenizer();
  std::string text;
  for (int step = 0; step < 3000; ++step) {
    const TokenMask mask = matcher.AllowedTokens();
    std::vector<TokenId> allowed;
    std::vector<TokenId> closing;
    for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (!IsAllowed(mask, id)) continue;
      if (tokenizer.IsEndOfGeneration(id)) {
        if (step > 40 || random() % 4 == 0) return text;
        continue;
      }
      allowed.push_back(id);
      const std::string_view bytes = tokenizer.TokenBytes(id);
      if (bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "0") closing.push_back(id);
    }
    if (allowed.empty()) return text;
    const auto& choice = step > 40 && !closing.empty() ? closing : allowed;
    const TokenId id = choice[random() % choice.size()];
    EXPECT_TRUE(matcher.Advance(id));
    text += tokenizer.TokenBytes(id);
  }
  ADD_FAILURE() << "no end: " << text.substr(0, 200);
  return text;
}

}  // namespace hearth
