// Which mode is fastest for a packed file, measured on the machine that packs it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace hearth {

struct ModeSpeed {
  FfnMode mode = FfnMode::kDense;
  double decode_tok_s = 0;
  double prefill_tok_s = 0;
};

// Called often, with the share of the work that is done. May throw, to cancel.
using ModeProgressFn = std::function<void(double done)>;

// Speeds of `modes` on `tokens` (at least kModeTokens, all of the vocabulary), in turn so that what
// else the machine does touches all alike; medians over a few seconds. The engine was loaded in the
// last of the modes, which are in the order of FfnMode.
inline constexpr int64_t kModeTokens = 96;
std::vector<ModeSpeed> MeasureModes(Engine& engine, std::span<const TokenId> tokens,
                                    std::span<const FfnMode> modes,
                                    const ModeProgressFn& progress = {});

// The mode that decodes fastest and reads prompts no slower than dense, where a lead of up to 3%
// is none and the more exact mode, which comes first, is taken. `speeds` begin with dense.
FfnMode ChooseMode(std::span<const ModeSpeed> speeds);

}  // namespace hearth
