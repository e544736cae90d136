// How fast the processor and a device multiply weights by the number of tokens at a time (P2 Figure
// 1a), and from how many tokens on weights are worth uploading for a prompt (P2 §4.1.1).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hearth {

// Medians, of Q4_0 weights of 4,096 columns.
struct BatchSpeed {
  int64_t tokens = 1;
  double processor_macs_per_s = 0;  // all threads
  double device_macs_per_s = 0;     // weights in its memory
};

struct BatchEffort {
  int rounds = 3;
  double seconds = 0.05;  // for each number of tokens, on each side
};

// Numbers of tokens from 1 to 256, ascending, for the device of this number in accel::ListDevices;
// the two sides take turns. `cache_folder` keeps its programs. Throws what accel::OpenDevice does.
std::vector<BatchSpeed> MeasureBatches(size_t index, const BatchEffort& effort,
                                       const std::string& cache_folder);

// The fewest measured tokens of a pass from which on the device takes less time for weights that it
// lacks than the processor does for its own: the longest of reading them from their file, uploading
// and multiplying, all at the same time. Nothing where it never does.
struct UploadRates {
  double read_bytes_per_s = 0;
  double upload_bytes_per_s = 0;
  double bytes_per_weight = 4.5 / 8;  // Q4_0
};
std::optional<int64_t> UploadTokens(std::span<const BatchSpeed> speeds, const UploadRates& rates);

}  // namespace hearth
