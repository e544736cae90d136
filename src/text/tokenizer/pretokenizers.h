// The pre-tokenizers of byte-level BPE models, by the names that `tokenizer.ggml.pre` uses.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

// A pre-tokenizer cuts text into pieces before byte-level BPE; merges never cross pieces.
struct PreTokenizer {
  std::string_view name;
  std::span<const std::string_view> aliases;   // other names of the same thing
  std::span<const std::string_view> patterns;  // applied one after another, as published
  bool ignore_merges = false;  // a piece that is a vocabulary entry is taken as it is
  bool add_bos = false;        // where the file does not say
  bool nfc = false;            // texts are brought to Unicode's normal form C first
};

std::span<const PreTokenizer> PreTokenizers();

// By name or alias. Nothing and "default" mean GPT-2's, the oldest byte-level BPE, from which
// files without the key stem. Null for a name that is not built in.
const PreTokenizer* FindPreTokenizerOrNull(std::string_view name);

// The pre-tokenizer of a vocabulary that a file does not name: found by the places of tokens that
// no other vocabulary has there. Null where it is not certain.
const PreTokenizer* RecognizePreTokenizerOrNull(const std::vector<std::string>& tokens);

// The patterns for RegexSplitter: what the published ones match, in a form that needs neither
// time nor stack beyond linear. White space is Unicode's: PCRE2's own \s has U+180E too.
std::vector<std::string> SplitPatterns(const PreTokenizer& pre_tokenizer);

}  // namespace hearth
