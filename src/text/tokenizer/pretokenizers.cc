#include "text/tokenizer/pretokenizers.h"

#include <algorithm>
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
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d))re"
    R"re(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)re"
    R"re(|\s+(?!\S)|\s+)re";
constexpr std::string_view kQwen2 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d))re"
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
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)re"
    R"re(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kQwen35 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d))re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+)re"
    R"re(|\s+(?!\S)|\s+)re";
constexpr std::string_view kGpt4o =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)re"
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+)re"
    R"re(|\s+(?!\S)|\s+)re";
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

constexpr std::string_view kGpt2Aliases[] = {
    "phi-2",   "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "modern-bert",    "gigachat",
    "a.x-4.0", "mellum",  "exaone4", "jais",       "trillion",   "granite-docling"};
constexpr std::string_view kMptAliases[] = {"olmo"};
constexpr std::string_view kLlamaBpeAliases[] = {"llama3",  "llama-v3", "falcon3", "falcon-h1",
                                                 "pixtral", "midm-2.0", "lfm2",    "jina-v5-nano"};
constexpr std::string_view kSmaugBpeAliases[] = {"dbrx", "chatglm-bpe"};
constexpr std::string_view kGlm4Aliases[] = {"glm5"};
constexpr std::string_view kQwen2Aliases[] = {"stablelm2", "deepseek-r1-qwen", "megrez", "f2llmv2",
                                              "hunyuan"};
constexpr std::string_view kGrok2Aliases[] = {"kormo", "solar-open"};
constexpr std::string_view kStarcoderAliases[] = {"smollm", "codeshell", "exaone", "minerva-7b",
                                                  "mellum2"};
constexpr std::string_view kGpt4oAliases[] = {"llama4", "kanana2", "minimax-m2", "talkie"};
constexpr std::string_view kDeepseekV3Aliases[] = {"hunyuan-dense", "joyai-llm", "hy_v4"};

constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "gpt-2", .aliases = kGpt2Aliases, .patterns = kGpt2Patterns},
    {.name = "mpt", .aliases = kMptAliases, .patterns = kGpt2Patterns, .nfc = true},
    {.name = "llama-bpe",
     .aliases = kLlamaBpeAliases,
     .patterns = kLlama3Patterns,
     .ignore_merges = true,
     .add_bos = true},
    {.name = "glm4", .aliases = kGlm4Aliases, .patterns = kLlama3Patterns, .ignore_merges = true},
    {.name = "smaug-bpe", .aliases = kSmaugBpeAliases, .patterns = kLlama3Patterns},
    {.name = "qwen2", .aliases = kQwen2Aliases, .patterns = kQwen2Patterns, .nfc = true},
    {.name = "grok-2", .aliases = kGrok2Aliases, .patterns = kQwen2Patterns},
    {.name = "falcon", .aliases = {}, .patterns = kFalconPatterns},
    {.name = "starcoder", .aliases = kStarcoderAliases, .patterns = kOneDigitGpt2Patterns},
    {.name = "refact", .aliases = {}, .patterns = kOneDigitGpt2Patterns},
    {.name = "command-r", .aliases = {}, .patterns = kOneDigitGpt2Patterns, .nfc = true},
    {.name = "deepseek-llm", .aliases = {}, .patterns = kDeepseekLlmPatterns},
    {.name = "deepseek-coder", .aliases = {}, .patterns = kDeepseekCoderPatterns},
    {.name = "tekken",
     .aliases = {},
     .patterns = kTekkenPatterns,
     .ignore_merges = true,
     .add_bos = true},
    {.name = "qwen35", .aliases = {}, .patterns = kQwen35Patterns, .nfc = true},
    {.name = "gpt-4o", .aliases = kGpt4oAliases, .patterns = kGpt4oPatterns},
    {.name = "deepseek-v3", .aliases = kDeepseekV3Aliases, .patterns = kDeepseekV3Patterns},
};

// Tokens that only one vocabulary has at these places.
struct Landmark {
  size_t id;
  std::string_view text;
};
struct KnownVocabulary {
  std::string_view pre_tokenizer;
  Landmark landmarks[3];
};
// Files whose vocabulary was extended still have them: only ids after the last were added.
constexpr KnownVocabulary kKnownVocabularies[] = {
    {"gpt-2", {{256, "\u0120t"}, {50255, "\u0120gazed"}, {50256, "<|endoftext|>"}}},
    {"mpt", {{0, "<|endoftext|>"}, {1, "<|padding|>"}, {256, "\u0120s"}}},
    {"llama-bpe",
     {{256, "\u0120\u0120"}, {128000, "<|begin_of_text|>"}, {128001, "<|end_of_text|>"}}},
    {"qwen2", {{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}},
    {"qwen35", {{248044, "<|endoftext|>"}, {248045, "<|im_start|>"}, {248046, "<|im_end|>"}}},
    {"falcon", {{0, ">>TITLE<<"}, {10, ">>MIDDLE<<"}, {11, "<|endoftext|>"}}},
    {"tekken",
     {{1, "<s>"},
      {3, "[INST]"},
      {131071, "\u00E5\u0132\u0130\u00E6\u00B1\u012B\u00E4\u00B9\u00A6"}}},
    {"gpt-4o", {{256, "\u0120\u0120"}, {258, "in"}, {199999, "<|endoftext|>"}}},
    {"deepseek-llm",
     {{256, "or"},
      {100000, "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"},
      {100001, "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"}}},
    {"deepseek-coder",
     {{32000, "\u00F5"},
      {32013, "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"},
      {32014, "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"}}},
    {"deepseek-v3",
     {{0, "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"},
      {1, "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"},
      {2, "<\uFF5C\u2581pad\u2581\uFF5C>"}}},
};

// White space at the end: tried once per run of it instead of at each of its characters, where
// every try runs to the end of the run.
constexpr std::string_view kSlowSpacesAtEnd = R"re(\s+$)re";
constexpr std::string_view kFastSpacesAtEnd = R"re((?<!\s)\s++$)re";

// Unicode's white space for \s, and everything else for \S.
std::string WithUnicodeSpace(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool is_escape = pattern[i] == '\\' && i + 1 < pattern.size();
    if (!is_escape) {
      out += pattern[i];
      continue;
    }
    const char what = pattern[++i];
    if (what == 's') {
      out += "\\p{White_Space}";
    } else if (what == 'S') {
      out += "\\P{White_Space}";
    } else {
      out.append({'\\', what});
    }
  }
  return out;
}

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

const PreTokenizer* RecognizePreTokenizerOrNull(const std::vector<std::string>& tokens) {
  const auto is_there = [&tokens](const Landmark& landmark) {
    return landmark.id < tokens.size() && tokens[landmark.id] == landmark.text;
  };
  for (const KnownVocabulary& known : kKnownVocabularies) {
    if (std::all_of(std::begin(known.landmarks), std::end(known.landmarks), is_there)) {
      return FindPreTokenizerOrNull(known.pre_tokenizer);
    }
  }
  return nullptr;
}

std::vector<std::string> SplitPatterns(const PreTokenizer& pre_tokenizer) {
  std::vector<std::string> patterns;
  for (const std::string_view published : pre_tokenizer.patterns) {
    patterns.push_back(
        WithUnicodeSpace(published == kSlowSpacesAtEnd ? kFastSpacesAtEnd : published));
  }
  return patterns;
}

}  // namespace hearth
