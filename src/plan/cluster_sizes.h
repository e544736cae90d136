// How many neurons make a cluster (P2 §3.1: as computing, memory and I/O ask): what a thread takes
// at a time of those that are ready.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hearth {

struct ClusterSizes {
  static constexpr int64_t kLimit = 256;  // that an engine can take at a time

  // Without a plan. Few enough to share out what has arrived, enough that the fetch-ahead of the
  // row kernels works. 1 <= fewest <= most <= kLimit.
  int64_t fewest = 16;
  int64_t most = kLimit;

  // Where so many are ready, and so many threads take.
  int64_t Of(int64_t ready, int threads) const {
    return std::clamp(ready / (int64_t{2} * threads), fewest, most);
  }
  bool operator==(const ClusterSizes&) const = default;
};

}  // namespace hearth
