#include "model/given_activation.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/common_spec.h"
#include "model/registry.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

[[noreturn]] void RefuseText(std::string_view text) {
  throw Error(ErrorCode::kInvalidArgument, Field{"activation"}, "name of an FFN activation",
              kGivenActivationNames, "'" + Printable(text) + "'");
}

// Words of the names of ReLU models, in lower case.
struct HintWord {
  std::string_view word;
  FfnActivation activation;
  bool is_distinctive;  // counts within other words too, and across dashes
};

// The first that is found decides; what is more exact stands first.
constexpr std::array kHintWords = {
    HintWord{"prosparse", FfnActivation::kFatRelu, true},
    HintWord{"sparsellama", FfnActivation::kFatRelu, true},
    HintWord{"fatrelu", FfnActivation::kFatRelu, true},
    HintWord{"turbosparse", FfnActivation::kDRelu, true},
    HintWord{"smallthinker", FfnActivation::kRelu, true},
    HintWord{"drelu", FfnActivation::kDRelu, false},
    HintWord{"bamboo", FfnActivation::kDRelu, false},
    HintWord{"reglu", FfnActivation::kRelu, false},
    HintWord{"relu", FfnActivation::kRelu, false},
};

char LowerOf(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

// Runs of letters, in lower case.
std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  bool is_inside = false;
  for (const char raw : text) {
    const char c = LowerOf(raw);
    if (IsLetter(c)) {
      if (!is_inside) words.emplace_back();
      words.back() += c;
    }
    is_inside = IsLetter(c);
  }
  return words;
}

bool HasWord(const std::vector<std::string>& words, const std::string& joined,
             const HintWord& hint) {
  if (hint.is_distinctive) return joined.find(hint.word) != std::string::npos;
  for (const std::string& word : words) {
    // "relullama" and "llamarelu", but neither "prelude" nor "reluctant".
    const bool begins = word.starts_with(hint.word) && !word.starts_with("reluc");
    if (begins || word.ends_with(hint.word)) return true;
  }
  return false;
}

std::optional<GivenActivation> HintIn(std::string_view text) {
  const std::vector<std::string> words = WordsOf(text);
  std::string joined;
  for (const std::string& word : words) joined += word;
  for (const HintWord& hint : kHintWords) {
    if (HasWord(words, joined, hint)) return GivenActivation{hint.activation, std::nullopt};
  }
  return std::nullopt;
}

// Keys of the general group that name no model.
bool NamesNoModel(std::string_view key) {
  return key.starts_with("general.license") || key.starts_with("general.datasets") ||
         key.starts_with("general.dataset.") || key.starts_with("general.languages");
}

std::optional<ActivationHint> HintInMetadata(const GgufMetadata& metadata) {
  for (const auto& [key, value] : metadata.values()) {
    if (!key.starts_with("general.") || NamesNoModel(key)) continue;
    std::vector<std::string> texts;
    if (const auto* one = std::get_if<std::string>(&value.value)) {
      texts.push_back(*one);
    } else if (const auto* many = std::get_if<GgufArray>(&value.value)) {
      if (const auto* all = std::get_if<std::vector<std::string>>(&many->items)) texts = *all;
    }
    for (const std::string& text : texts) {
      if (const auto probable = HintIn(text))
        return ActivationHint{key, Printable(text), *probable};
    }
  }
  return std::nullopt;
}

// What the file says, where it does.
GivenActivation SaidBy(const GgufFile& file) {
  const FfnSpec ffn = MainFfn(ReadModelSpec(file));
  return {ffn.activation,
          ffn.activation == FfnActivation::kFatRelu ? std::optional(ffn.threshold) : std::nullopt};
}

[[noreturn]] void RefuseOther(const GgufFile& file, const GivenActivation& said,
                              const GivenActivation& given) {
  throw Error(ErrorCode::kInvalidArgument, file.path(), "activation",
              ActivationText(said) + ", which the file says itself", ActivationText(given));
}

}  // namespace

GivenActivation ParseActivation(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::optional<FfnActivation> activation = FfnActivationFromName(name);
  if (!activation || !IsCommonActivation(*activation)) RefuseText(text);
  GivenActivation given = {*activation, std::nullopt};
  if (colon == std::string_view::npos) return given;
  const std::string_view number = text.substr(colon + 1);
  const char* const end = number.data() + number.size();
  float threshold = 0;
  const auto [stop, error] = std::from_chars(number.data(), end, threshold);
  const bool is_number = error == std::errc() && stop == end && std::isfinite(threshold);
  if (given.activation != FfnActivation::kFatRelu || !is_number || threshold < 0) RefuseText(text);
  given.threshold = threshold;
  return given;
}

std::string ActivationText(const GivenActivation& given) {
  const std::string name = FfnActivationName(given.activation);
  return given.threshold ? fmt::format("{}:{}", name, *given.threshold) : name;
}

bool SaysActivation(const GgufFile& file) {
  if (file.metadata().Has(kFfnActivationKey)) return !file.assumed().Has(kFfnActivationKey);
  const std::string* name = file.metadata().FindString("general.architecture");
  if (name == nullptr) return false;
  for (const Architecture& architecture : Architectures()) {
    if (architecture.name == *name) return architecture.says_activation;
  }
  return false;
}

void GiveActivation(const GivenActivation& given, GgufFile* file) {
  const bool has_threshold = file->metadata().Has(kFfnThresholdKey);
  if (SaysActivation(*file)) {
    const GivenActivation said = SaidBy(*file);
    const bool differs = given.threshold && given.threshold != said.threshold;
    if (said.activation != given.activation || differs) RefuseOther(*file, said, given);
    return;
  }
  if (given.activation == FfnActivation::kFatRelu) {
    const auto in_file = file->metadata().FindFloat(kFfnThresholdKey);
    if (in_file && given.threshold && static_cast<float>(*in_file) != *given.threshold) {
      RefuseOther(*file, {given.activation, static_cast<float>(*in_file)}, given);
    }
    if (!has_threshold) {
      const float threshold = given.threshold.value_or(kUsualFatReluThreshold);
      file->Assume(kFfnThresholdKey, {GgufType::kFloat32, static_cast<double>(threshold)});
    }
  }
  file->Assume(kFfnActivationKey,
               {GgufType::kString, std::string(FfnActivationName(given.activation))});
}

std::optional<ActivationHint> FindActivationHint(const GgufFile& file) {
  if (file.metadata().Has(kFfnActivationKey) || SaysActivation(file)) return std::nullopt;
  const std::string& path = file.path();
  const std::string name = path.substr(path.rfind('/') + 1);
  if (const auto probable = HintIn(name)) {
    return ActivationHint{"its file name", Printable(name), *probable};
  }
  return HintInMetadata(file.metadata());
}

std::string ActivationWarning(const std::string& path, const std::optional<ActivationHint>& hint) {
  if (!hint) return "";
  return fmt::format(
      "{}: does not say its FFN activation and runs as silu, but {} '{}' is that of a ReLU model",
      path, hint->where, hint->name);
}

}  // namespace hearth
