#include "planner/cost/kv_spill.h"

#include <algorithm>

#include "kv/kv_ring.h"
#include "planner/cost/read_seconds.h"

namespace hearth {
namespace {

double ComputeMs(CostInputs in, int64_t context) {
  in.context = context;
  return CostOfToken(in).time.token_ms;
}

// Beside `busy_ms` in which threads take memory in.
double ReadMs(const CostInputs& in, int64_t spilled, double busy_ms) {
  const double bytes =
      static_cast<double>(spilled) * static_cast<double>(in.plan.kv_layout().token_bytes());
  const double alone =
      Over(bytes, in.hardware.IoBytesPerSecond(KvRing::kMostRunBytes, KvRing::kDepth));
  return 1000 * SecondsBeside(in.hardware.BusyIoShare(in.threads()), alone, busy_ms / 1000);
}

}  // namespace

double SpilledTokenMs(const CostInputs& in, int64_t context, int64_t spilled) {
  const double compute = ComputeMs(in, context);
  return std::max(compute, ReadMs(in, spilled, compute));
}

int64_t HiddenKvTokens(const CostInputs& in, int64_t resident) {
  const auto is_hidden = [&](int64_t pages) {
    const int64_t spilled = pages * KvLayout::kPageTokens;
    const double compute = ComputeMs(in, resident + spilled);
    return ReadMs(in, spilled, compute) <= compute;
  };
  int64_t hidden = 0, too_many = kMostHiddenTokens / KvLayout::kPageTokens + 1;
  while (too_many - hidden > 1) {
    const int64_t middle = hidden + (too_many - hidden) / 2;
    (is_hidden(middle) ? hidden : too_many) = middle;
  }
  return hidden * KvLayout::kPageTokens;
}

}  // namespace hearth
