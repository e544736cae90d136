// What `hearth pack` measures on the file that it has written, before the file gets its name: what
// packing costs in perplexity, and which mode is fastest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/evaluate.h"
#include "prepare/pack/mode_choice.h"

namespace hearth::cli {

struct PackTrialOptions {
  // The modes to choose among, the more exact first. They begin with dense.
  std::vector<FfnMode> allowed = {FfnMode::kDense};
  std::optional<FfnMode> mode;  // that the user chose: speeds are not measured
  std::vector<TokenId> sample;  // SampleToScore of the text; empty where there is none
  std::optional<uint64_t> memory_bytes;
  int threads = 0;
};

struct PackTrial {
  FfnMode mode = FfnMode::kDense;  // to record
  std::vector<ModeSpeed> speeds;   // of the allowed modes; empty where they were not measured
  std::optional<TextScore> score;  // of the sample, computed exactly
  std::string missing;             // why not all that could be measured was; empty: nothing is
};

// With progress lines on a terminal. Of a file that does not fit into memory as a whole speeds are
// not measured, and the last allowed mode is its mode: which is fastest must not depend on who
// packed it. It is scored all the same, streamed. Throws Error(kCancelled) where it is
// interrupted, and what loading and running throw.
PackTrial TryPackedFile(const std::string& path, const PackTrialOptions& options);

}  // namespace hearth::cli
