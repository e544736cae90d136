#include "import/peft_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"

namespace hearth {
namespace {

constexpr uint64_t kMaxPeftBytes = uint64_t{1} << 20;

// Settings that are read here, and those that change no result: where the adapter is from, which
// modules it was made for (its tensors say that), how it was trained.
constexpr const char* kKnown[] = {"peft_type",
                                  "r",
                                  "lora_alpha",
                                  "use_rslora",
                                  "rank_pattern",
                                  "alpha_pattern",
                                  "bias",
                                  "fan_in_fan_out",
                                  "init_lora_weights",
                                  "auto_mapping",
                                  "base_model_name_or_path",
                                  "revision",
                                  "task_type",
                                  "inference_mode",
                                  "target_modules",
                                  "exclude_modules",
                                  "layers_to_transform",
                                  "layers_pattern",
                                  "lora_dropout",
                                  "megatron_config",
                                  "megatron_core",
                                  "peft_version",
                                  "qalora_group_size",
                                  "runtime_config",
                                  "eva_config",
                                  "corda_config",
                                  "lora_ga_config",
                                  "ensure_weight_tying"};

// Ways to begin training that change the base's weights too: what was saved fits that base alone.
constexpr const char* kBaseChangingInits[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

bool IsNeutral(const nlohmann::json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  return (value.is_object() || value.is_array() || value.is_string()) && value.empty();
}

void RefuseUnknown(const PublishedJson& config) {
  for (const auto& [key, value] : config.json().items()) {
    const bool is_known = std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown);
    if (is_known || IsNeutral(value)) continue;
    throw Error(
        ErrorCode::kUnsupported, config.path(),
        fmt::format("'{}' is set, and only plain LoRA adapters are computed", Printable(key)));
  }
}

void RefuseOtherKinds(const PublishedJson& config) {
  const std::string type = config.Text("peft_type", "LORA");
  if (type != "LORA") {
    throw Error(ErrorCode::kUnsupported, config.path(), "peft_type", "LORA",
                "'" + Printable(type) + "'");
  }
  const std::string bias = config.Text("bias", "none");
  if (bias != "none") {
    throw Error(ErrorCode::kUnsupported, config.path(), "bias", "none",
                "'" + Printable(bias) + "', biases that were trained too");
  }
  const nlohmann::json* const init = config.Find("init_lora_weights");
  if (init == nullptr || !init->is_string()) return;
  for (const char* name : kBaseChangingInits) {
    if (!init->get<std::string>().starts_with(name)) continue;
    throw Error(ErrorCode::kUnsupported, config.path(),
                fmt::format("init_lora_weights '{}' changed the base's weights too: save the "
                            "adapter as one of the unchanged base, as PEFT can",
                            name));
  }
}

double PositiveNumber(const PublishedJson& config, const std::string& what,
                      const nlohmann::json& value) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (number > 0 && number <= kMostAdapterAlpha) return number;
  }
  throw Error(ErrorCode::kCorrupt, config.path(), what,
              fmt::format("a number over 0, at most {}", kMostAdapterAlpha),
              Printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

// Whether a key has only characters that stand for themselves, and dots.
bool IsPlainKey(std::string_view key) {
  if (key.starts_with('^')) key.remove_prefix(1);
  for (size_t i = 0; i < key.size(); ++i) {
    const char c = key[i];
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '_' || c == '.';
    const bool is_escaped_dot = c == '\\' && i + 1 < key.size() && key[i + 1] == '.';
    if (!is_word && !is_escaped_dot) return false;
  }
  return !key.empty();
}

PeftPattern ReadPattern(const PublishedJson& config, const char* name) {
  PeftPattern pattern;
  const PublishedJson keys = config.Object(name);
  for (const auto& [key, value] : keys.json().items()) {
    if (!IsPlainKey(key)) {
      throw Error(ErrorCode::kUnsupported, config.path(), std::string(name) + "'s key",
                  "names of modules or the ends of such names",
                  "'" + Printable(key) + "', a regular expression");
    }
    pattern.emplace_back(key, PositiveNumber(config, fmt::format("{} of {}", name, key), value));
  }
  return pattern;
}

// Null where no key fits. PEFT takes the first in the order of the file, which is not kept here.
const double* FindFor(const PeftPattern& pattern, std::string_view module,
                      const std::string& path) {
  const double* found = nullptr;
  for (const auto& [key, value] : pattern) {
    if (!FitsPeftKey(key, module)) continue;
    if (found != nullptr && *found != value) {
      throw Error(ErrorCode::kUnsupported, path, "keys of a pattern that fit " + Printable(module),
                  "one", "two with different values");
    }
    found = &value;
  }
  return found;
}

}  // namespace

bool FitsPeftKey(std::string_view key, std::string_view module) {
  const bool is_whole = key.starts_with('^');
  if (is_whole) key.remove_prefix(1);
  size_t at = module.size();
  for (size_t i = key.size(); i > 0; --i) {
    if (at == 0) return false;
    const char c = key[i - 1];
    const bool is_escaped = c == '.' && i > 1 && key[i - 2] == '\\';
    --at;
    if ((c != '.' || is_escaped) && module[at] != c) return false;
    if (is_escaped) --i;
  }
  return at == 0 || (!is_whole && module[at - 1] == '.');
}

int64_t PeftConfig::RankOf(std::string_view module) const {
  const double* const own = FindFor(ranks, module, path);
  return own == nullptr ? rank : static_cast<int64_t>(*own);
}

double PeftConfig::ScaleOf(std::string_view module) const {
  const double* const own = FindFor(alphas, module, path);
  const auto of_rank = static_cast<double>(RankOf(module));
  return (own == nullptr ? alpha : *own) / (is_rank_stabilized ? std::sqrt(of_rank) : of_rank);
}

PeftConfig ReadPeftConfig(const std::string& path) {
  const PublishedJson config = PublishedJson::Read(path, kMaxPeftBytes);
  RefuseOtherKinds(config);
  RefuseUnknown(config);
  PeftConfig out;
  out.path = path;
  out.rank = config.Int("r");
  if (out.rank < 1) {
    throw Error(ErrorCode::kCorrupt, path, "r (the adapter's rank)", "at least 1",
                std::to_string(out.rank));
  }
  const nlohmann::json* const alpha = config.Find("lora_alpha");
  if (alpha == nullptr) throw Error(ErrorCode::kNotFound, path, "'lora_alpha' is missing");
  out.alpha = PositiveNumber(config, "lora_alpha", *alpha);
  out.is_rank_stabilized = config.Bool("use_rslora", false);
  out.has_inputs_first = config.Bool("fan_in_fan_out", false);
  out.ranks = ReadPattern(config, "rank_pattern");
  out.alphas = ReadPattern(config, "alpha_pattern");
  return out;
}

}  // namespace hearth
