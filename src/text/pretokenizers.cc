#include "text/pretokenizers.h"

#include <cstddef>
#include <utility>

namespace hearth {
namespace {

// Patterns as published in the models' tokenizer files, unchanged to the last character, so that
// they can be compared with them. Ranges outside ASCII are written as escapes: several of the
// characters look alike, combine, or are unassigned.

constexpr std::string_view kGpt2 =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))re";
constexpr std::string_view kLlama3 =
    R"re((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))re"
    R"re(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)re"
    R"re(|\s+(?!\S)|\s+)re";
constexpr std::string_view kQwen2 =
    R"re((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))re"
    R"re(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S))re"
    R"re(|\s+)re";
constexpr std::string_view kFalconPunctuation = R"re([\p{P}\$\+<=>\^~\|`]+)re";
constexpr std::string_view kThreeAsciiDigits = R"re([0-9][0-9][0-9])re";
constexpr std::string_view kOneDigit = R"re(\p{N})re";
constexpr std::string_view kLineBreak = "[\r\n]";
constexpr std::string_view kDeepseekLetters =
    "\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"
    "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C"
    "\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0"
    "-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-"
    "\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B"
    "\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-"
    "\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113"
    "\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F"
    "\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3"
    "\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00"
    "-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-"
    "\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-"
    "\U000118DF\U0001E900-\U0001E943]+";
constexpr std::string_view kDeepseekPunctuation =
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr std::string_view kSpacesAtEnd = R"re(\s+$)re";
constexpr std::string_view kDeepseekEastAsian = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
constexpr std::string_view kDigits = R"re(\p{N}+)re";
constexpr std::string_view kSpaceAndLetters = R"re(\s?\p{L}+)re";
constexpr std::string_view kSpaceAndPunctuation = R"re(\s?\p{P}+)re";
constexpr std::string_view kTekken =
    R"re([^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+)re"
    R"re(|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*|\p{N})re"
    R"re(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kQwen35 =
    R"re((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+)re"
    R"re(|\s+(?!\S)|\s+)re";
constexpr std::string_view kGpt4o =
    R"re([^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+(?:'[sS]|'[tT])re"
    R"re(|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?)re"
    R"re(|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*(?:'[sS]|'[tT])re"
    R"re(|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3})re"
    R"re(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kThreeDigits = R"re(\p{N}{1,3})re";
constexpr std::string_view kDeepseekV3EastAsian = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
constexpr std::string_view kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p"
    "{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

constexpr std::string_view kGpt2Patterns[] = {kGpt2};
constexpr std::string_view kLlama3Patterns[] = {kLlama3};
constexpr std::string_view kQwen2Patterns[] = {kQwen2};
constexpr std::string_view kFalconPatterns[] = {kFalconPunctuation, kGpt2, kThreeAsciiDigits};
constexpr std::string_view kOneDigitGpt2Patterns[] = {kOneDigit, kGpt2};
constexpr std::string_view kDeepseekLlmPatterns[] = {
    kLineBreak, kDeepseekLetters, kDeepseekPunctuation, kSpacesAtEnd, kDeepseekEastAsian, kDigits};
constexpr std::string_view kDeepseekCoderPatterns[] = {
    kLineBreak, kSpaceAndLetters, kSpaceAndPunctuation, kDeepseekEastAsian, kOneDigit};
constexpr std::string_view kTekkenPatterns[] = {kTekken};
constexpr std::string_view kQwen35Patterns[] = {kQwen35};
constexpr std::string_view kGpt4oPatterns[] = {kGpt4o};
constexpr std::string_view kDeepseekV3Patterns[] = {kThreeDigits, kDeepseekV3EastAsian,
                                                    kDeepseekV3};

constexpr std::string_view kGpt2Aliases[] = {"phi-2", "olmo"};
constexpr std::string_view kLlamaBpeAliases[] = {"llama3", "llama-v3", "falcon3"};
constexpr std::string_view kSmaugBpeAliases[] = {"dbrx"};
constexpr std::string_view kQwen2Aliases[] = {"stablelm2", "deepseek-r1-qwen", "megrez"};
constexpr std::string_view kStarcoderAliases[] = {"smollm", "codeshell"};
constexpr std::string_view kGpt4oAliases[] = {"llama4"};

constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "gpt-2", .aliases = kGpt2Aliases, .patterns = kGpt2Patterns},
    {.name = "mpt", .aliases = {}, .patterns = kGpt2Patterns},
    {.name = "llama-bpe",
     .aliases = kLlamaBpeAliases,
     .patterns = kLlama3Patterns,
     .ignore_merges = true,
     .add_bos = true},
    {.name = "smaug-bpe", .aliases = kSmaugBpeAliases, .patterns = kLlama3Patterns},
    {.name = "qwen2", .aliases = kQwen2Aliases, .patterns = kQwen2Patterns},
    {.name = "falcon", .aliases = {}, .patterns = kFalconPatterns},
    {.name = "starcoder", .aliases = kStarcoderAliases, .patterns = kOneDigitGpt2Patterns},
    {.name = "refact", .aliases = {}, .patterns = kOneDigitGpt2Patterns},
    {.name = "command-r", .aliases = {}, .patterns = kOneDigitGpt2Patterns},
    {.name = "deepseek-llm", .aliases = {}, .patterns = kDeepseekLlmPatterns},
    {.name = "deepseek-coder", .aliases = {}, .patterns = kDeepseekCoderPatterns},
    {.name = "tekken", .aliases = {}, .patterns = kTekkenPatterns, .ignore_merges = true},
    {.name = "qwen35", .aliases = {}, .patterns = kQwen35Patterns},
    {.name = "gpt-4o", .aliases = kGpt4oAliases, .patterns = kGpt4oPatterns},
    {.name = "deepseek-v3", .aliases = {}, .patterns = kDeepseekV3Patterns},
};

// Two forms in the published patterns cost more than they must; each replacement matches exactly
// the same texts.
struct Rewrite {
  std::string_view from;
  std::string_view to;
};
constexpr Rewrite kRewrites[] = {
    // A letter other than a-z (A-Z): one class instead of a group, whose repeats would each keep
    // a frame to backtrack to (a million letters overflow any stack).
    {R"re(((?=[\p{L}])([^a-z])))re", R"re([^\P{L}a-z])re"},
    {R"re(((?=[\p{L}])([^A-Z])))re", R"re([^\P{L}A-Z])re"},
    // White space at the end: tried once per run of it instead of at each of its characters,
    // where every try runs to the end of the run.
    {R"re(\s+$)re", R"re((?<!\s)\s++$)re"},
};

}  // namespace

std::span<const PreTokenizer> PreTokenizers() { return kPreTokenizers; }

const PreTokenizer* FindPreTokenizerOrNull(std::string_view name) {
  if (name.empty() || name == "default") name = "gpt-2";
  for (const PreTokenizer& pre_tokenizer : kPreTokenizers) {
    if (pre_tokenizer.name == name) return &pre_tokenizer;
    for (const std::string_view alias : pre_tokenizer.aliases) {
      if (alias == name) return &pre_tokenizer;
    }
  }
  return nullptr;
}

std::vector<std::string> SplitPatterns(const PreTokenizer& pre_tokenizer) {
  std::vector<std::string> patterns;
  for (const std::string_view published : pre_tokenizer.patterns) {
    std::string pattern(published);
    for (const Rewrite& rewrite : kRewrites) {
      size_t at = 0;
      while ((at = pattern.find(rewrite.from, at)) != std::string::npos) {
        pattern.replace(at, rewrite.from.size(), rewrite.to);
        at += rewrite.to.size();
      }
    }
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

}  // namespace hearth
