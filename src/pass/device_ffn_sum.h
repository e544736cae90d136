// The FFNs of a layer whose matrices are on a device: the layer's own, or experts and the FFN
// beside them. The device adds up what they make of a pass's tokens while the processor computes
// other experts, and its sum is merged once (P1 §5.3).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "ops/experts.h"
#include "pass/activations.h"
#include "pass/device/device_weights.h"
#include "pass/ffn_executor.h"
#include "pass/pass_context.h"

namespace hearth {

// An FFN on a device, of rows `tokens` of a pass; gate and up are room for what it computes.
struct SeenFfn {
  int64_t layer = 0;
  int64_t expert = 0;
  std::span<const int64_t> tokens;
  const FfnSpec& ffn;
  FloatView gate, up;
};
// Shows `observer` what it does; `observer` and `tokens` must live as long.
accel::DeviceFfnWatcher WatchFfn(PassObserver& observer, const SeenFfn& seen);

// One thread at a time. For each layer: Launch, then Merge, or Abandon after an error.
class DeviceFfnSum {
 public:
  // Charges ChargedBytes as "activations". Throws Error(kOutOfBudget).
  DeviceFfnSum(const PassContext& context, const PassWidths& widths, Budget& budget);
  static uint64_t ChargedBytes(const PassWidths& widths);

  // Of the calls that follow.
  void Begin(const FfnPass& pass) { pass_ = pass; }

  // Whether any FFN of a layer is there, or comes there for this pass; one of its experts; the one
  // beside them.
  bool Has(int64_t layer) const;
  bool HasExpert(int64_t layer, int64_t expert) const;
  bool HasShared(int64_t layer) const;
  // Sends a.normed, the input of the layer's FFNs, with what is to be made of it, and returns:
  // `loads` has the tokens of each expert of a mixture, and is not looked at for a dense layer.
  // Where the pass is observed, tells the observer what these FFNs do, and waits; then what FFNs
  // work in of `a` is used.
  void Launch(int64_t layer, const Activations& a, std::span<const ExpertLoad> loads);
  // Waits, and adds the sum to `out`. Throws Error(kIo) where the device is lost.
  void Merge(FloatView out);
  // Forgets what was launched, so that memory of the pass is free again.
  void Abandon() noexcept;

 private:
  void AddExpert(int64_t expert, std::span<const int64_t> tokens, std::span<const float> weights,
                 const Activations& a);
  void AddShared(const Activations& a);
  // Where the matrices of an FFN are; waits for those that are uploaded.
  accel::DeviceFfn Find(const UploadUnit& unit) const;
  // Sends an FFN, and lets go of what was uploaded for it.
  void AddFfn(const UploadUnit& unit, std::span<const int32_t> tokens,
              std::span<const float> weights, const accel::DeviceFfnWatcher* watcher);
  // Rows of the pass, as the device takes them; valid until it is done with them.
  std::span<const int32_t> Listed(std::span<const int64_t> tokens);

  const PassContext& context_;
  Buffer memory_;
  FloatView sum_;  // [max_tokens][hidden]
  FfnPass pass_;
  std::vector<int64_t> all_rows_;
  std::vector<float> ones_;
  // Of the layer at hand.
  int64_t layer_ = 0;
  std::vector<std::vector<int32_t>> tokens_;  // of what was launched
  size_t num_launched_ = 0;
  std::vector<float> shared_weights_;
  bool is_launched_ = false;
};

}  // namespace hearth
