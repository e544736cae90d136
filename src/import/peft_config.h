// adapter_config.json of PEFT. Internal to import/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/hugging_face_json.h"

namespace hearth {

// The largest alpha of an adapter; published ones are below 1000.
inline constexpr double kMostAdapterAlpha = 1e6;

// Keys and values: a module has the value of the key that fits its name.
using PeftPattern = std::vector<std::pair<std::string, double>>;

// What a module's two matrices are scaled by, and how the file says so.
struct PeftConfig {
  std::string path;
  int64_t rank = 0;
  double alpha = 0;
  bool is_rank_stabilized = false;
  bool has_inputs_first = false;  // fan_in_fan_out
  PeftPattern ranks;
  PeftPattern alphas;

  // The rank and the scale of a module, given its full name in the model
  // ("model.layers.0.self_attn.q_proj"). Throw Error(kUnsupported) where two keys of a pattern fit
  // it and have different values.
  int64_t RankOf(std::string_view module) const;
  double ScaleOf(std::string_view module) const;
};

// Throws Error(kUnsupported), naming the setting, for what changes results and is not computed
// here, and Error(kCorrupt) for values that make no sense.
PeftConfig ReadPeftConfig(const std::string& path);

// Whether a pattern's key is a module's name or ends it after a dot; a dot of the key stands for
// any character, as in the regular expressions that PEFT takes keys for, and "\." for a dot alone.
bool FitsPeftKey(std::string_view key, std::string_view module);

}  // namespace hearth
