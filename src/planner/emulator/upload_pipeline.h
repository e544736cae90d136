// Prompts with uploads (engine/load/prompt_uploads.h, P2 §4.1.1) on an emulated machine: when its
// three stages end that work at the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "planner/emulator/emulated_model.h"

namespace hearth {

// A unit of a pass, such as the FFN of a layer.
struct UploadedUnit {
  uint64_t bytes = 0;
  double compute_seconds = 0;
  bool is_there = false;  // it lies on the device: only computed
};

struct UploadRoom {
  uint64_t piece_bytes = uint64_t{4} << 20;  // read and uploaded as one
  int pieces = 4;                            // buffers of the host: read ahead
  int slots = 3;                             // units that the device has room for (PromptUploads)
};

// Bytes per second, and what a piece takes besides.
struct StageRates {
  double read_bytes_per_s = 0;
  double upload_bytes_per_s = 0;
  double upload_seconds = 0;
};

struct UploadTimes {
  double seconds = 0;                        // of the pass
  double read = 0, upload = 0, compute = 0;  // of each stage alone
  double longest() const { return std::max({read, upload, compute}); }
};

// Reads one after the other, each into the next free buffer; uploads likewise, each unit into a
// slot whose last unit is computed; units in order.
UploadTimes RunUploads(std::span<const UploadedUnit> units, const StageRates& rates,
                       const UploadRoom& room = {});

// A prompt of so many tokens in one pass: attention and FFN of every layer, those that the
// placement has on the device and others, which lie in the host's memory or on flash.
UploadTimes UploadedPrompt(const EmulatedMachine& machine, const EmulatedModel& model,
                           const EmulatedPlacement& placement, int64_t tokens);

}  // namespace hearth
