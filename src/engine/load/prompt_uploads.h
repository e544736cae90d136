// Prompts on a device that lacks matrices (P2 §4.1.1): a thread reads the units of a pass from the
// model's files, in their order, and uploads them into slots of device memory, while the pass
// multiplies what has come.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "accel/device.h"
#include "base/budget.h"
#include "engine/load/load_chunks.h"
#include "engine/load/model.h"
#include "format/gguf.h"
#include "pass/device/uploads.h"
#include "plan/matrix_placement.h"

namespace hearth {

// A unit that is uploaded: its tensors and biases, as LoadPlan has them, and where they begin in a
// slot.
struct PlacedUnit {
  struct Part {
    const ResidentTensor* tensor = nullptr;  // null: the model has no such matrix
    uint64_t offset = 0;
    uint64_t bytes = 0;
    bool has_bias = false;
    uint64_t bias_offset = 0;
  };
  UploadUnit unit;
  std::array<Part, 4> parts;
  uint64_t bytes = 0;  // of a slot
};

// All units that a placement leaves, in the order of a pass. Throws Error(kUnsupported) where a
// device has no kernel for an FFN; attention that it has none for stays on the processor.
std::vector<PlacedUnit> UploadedUnits(const LoadPlan& plan, const MatrixPlacement& placement);

class PromptUploads final : public Uploads {
 public:
  // One that is multiplied, and two that come: a large FFN and the attention before it, which would
  // leave too little to do while the last FFN is multiplied.
  static constexpr size_t kSlots = 3;

  // `plan` is of `file`, of all its tensors. Charges HostBytes as "upload buffers", and SlotBytes
  // to the device as "uploads". `weights` has biases. Device, budget and weights must outlive it.
  // Throws Error(kOutOfBudget), Error(kIo).
  PromptUploads(GgufFile file, LoadPlan plan, const MatrixPlacement& placement,
                const ModelWeights& weights, accel::Device& device, Budget& budget);
  ~PromptUploads() override;

  static uint64_t HostBytes();
  static uint64_t SlotBytes(const std::vector<PlacedUnit>& units);

  bool IsFor(int64_t tokens) const override { return tokens >= least_tokens_ && !units_.empty(); }
  bool Has(const UploadUnit& unit) const override;
  void Begin() override;
  UnitMatrices Take(const UploadUnit& unit) override;
  void Done(std::unique_ptr<accel::DeviceEvent> used) override;
  void End() noexcept override;

  // Bytes uploaded so far.
  uint64_t bytes_uploaded() const { return bytes_uploaded_; }

 private:
  enum class State : uint8_t { kComing, kHere, kDone };

  void Work() noexcept;
  bool WaitForSlot(size_t unit);
  void UploadPiece(size_t unit, const LoadReader::Taken& taken);
  void UploadBiases(size_t unit);
  using Key = std::array<int64_t, 3>;
  static Key KeyOf(const UploadUnit& unit) {
    return {unit.layer, static_cast<int64_t>(unit.kind), unit.expert};
  }

  const GgufFile file_;
  const LoadPlan plan_;
  const int64_t least_tokens_;
  const ModelWeights& weights_;
  const std::vector<PlacedUnit> units_;
  std::map<Key, size_t> numbers_;    // in units_
  std::vector<LoadChunk> chunks_;    // of all units, in their order
  std::vector<size_t> end_of_unit_;  // in chunks_
  std::vector<std::unique_ptr<accel::DeviceBuffer>> slots_;
  std::unique_ptr<accel::DeviceQueue> queue_;
  BudgetCharge charge_;
  LoadSource source_;
  uint64_t bytes_uploaded_ = 0;

  std::thread thread_;
  size_t taken_ = 0;  // the unit that Take returned last
  size_t next_ = 0;   // unit that may be taken next

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<State> states_;
  std::vector<std::unique_ptr<accel::DeviceEvent>> used_;  // by slot: the last unit's
  bool is_stopped_ = false;
  std::exception_ptr error_;
};

}  // namespace hearth
