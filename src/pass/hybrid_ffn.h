// FFNs of single neurons whose hottest ones are on a device (P1 §5.3): the device computes these
// while the processor computes the others, and what both make is added once per FFN. Layers may
// differ in how many are there, experts of a layer do not; what has none is the processor's alone.
//
// To the processor's side an FFN has only the neurons after those of the device, numbered from 0.
// It is one of the executors for models that are in memory or streamed, which know of no device. So
// a prompt's tokens are computed like those that are decoded, on both sides; the device takes them
// some at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "accel/device_ffns.h"
#include "base/buffer.h"
#include "pass/ffn_executor.h"
#include "pass/split_selector.h"

namespace hearth {

// What the device's neurons do for a token that somebody watches.
struct DeviceObserved {
  std::optional<std::vector<int32_t>> listed;  // of all neurons of the FFN; nothing: all
  std::vector<int32_t> fired, active;
  std::vector<float> factors;
};

class HybridFfn final : public FfnExecutor {
 public:
  // Tokens that the device computes at a time, at most; fewer where passes have fewer.
  static constexpr int64_t kTokensOfLaunch = 32;

  // `rest` computes the other neurons; null where the device has all of them. Charges
  // ChargedBytes(widths) as "activations". Throws Error(kOutOfBudget).
  HybridFfn(const PassContext& context, const PassWidths& widths, Budget& budget,
            accel::DeviceFfns& device, std::unique_ptr<FfnExecutor> rest);
  ~HybridFfn() override;
  static uint64_t ChargedBytes(const PassWidths& widths);

  void Begin(const FfnPass& pass) override;
  void End() noexcept override;
  void BeginLayer(int64_t layer, std::span<int32_t> experts, bool reorder) override;
  void EndLayer() override;
  // Throws what the device does as well: Error(kIo) where it is lost. Nothing is in flight then.
  void Run(const FfnCall& call) override;
  void AfterOp(PassOp op) noexcept override;
  bool waits() const override { return rest_ && rest_->waits(); }
  // The processor's neurons; those of the device are DeviceFfns::neurons_computed.
  SparseFfnCounts counts() const override { return rest_ ? rest_->counts() : SparseFfnCounts(); }

 private:
  class WholeObserver;

  // Sends tokens to the device whose neurons have just been selected.
  void Launch(const SelectionQuery& query, const ActiveSets& whole);
  void LaunchAll(int64_t count);
  void LaunchLists(std::span<const std::span<const int32_t>> lists);
  // Computes all neurons of the device to see what they do.
  void ObserveDevice(std::span<const std::span<const int32_t>> lists, int64_t count);
  accel::DeviceFfnWork WorkOf(int64_t first, int64_t count, bool skips) const;
  // The FFN where the processor has no neuron of it.
  void RunAlone(const FfnCall& call);
  // Of the FFN at hand: its number on the device, and neurons.
  int64_t Ffn() const;
  int64_t OnDevice() const;
  int64_t BesideDevice() const;

  const PassContext& context_;
  accel::DeviceFfns& device_;
  std::unique_ptr<FfnExecutor> rest_;
  SplitSelector selector_;
  Buffer memory_;
  // Views into memory_.
  FloatView out_;             // [max_tokens][hidden]: what the device adds
  std::span<int32_t> heads_;  // [kTokensOfLaunch][the most neurons of an FFN on the device]
  std::span<int32_t> counts_;
  std::unique_ptr<WholeObserver> observer_;
  std::vector<float> watched_gates_, watched_factors_;
  FfnPass pass_;
  FfnCall call_;
  FloatView x_;
  int64_t launched_ = 0;  // rows of the call
};

}  // namespace hearth
