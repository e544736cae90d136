// What the decode pipeline computes of neurons as they come to memory: for one token, or for a few
// together. Knows rows and sums; what is ready when is the pipeline's to know.
#pragma once

#include <cstdint>
#include <span>

#include "ops/neuron_cluster.h"
#include "ops/sparse_batch.h"

namespace hearth {

// Some neurons of a list: their positions in it, and the slots where their rows are.
struct ReadyNeurons {
  const int32_t* positions = nullptr;
  const int32_t* slots = nullptr;
  int64_t count = 0;

  static constexpr int64_t kMost = 256;
};

// A list is computed segment by segment: positions count from the segment's first neuron. Between
// BeginSegment calls MultiplyGates, TakeSilent and Finish may be any threads', of different
// neurons; AddDown that of one thread at a time for a group of columns.
class NeuronWork {
 public:
  NeuronWork(const kernels::KernelTable& table, const FfnNeurons& rows)
      : table_(table), rows_(rows) {}
  NeuronWork(const NeuronWork&) = delete;
  NeuronWork& operator=(const NeuronWork&) = delete;
  virtual ~NeuronWork() = default;

  // `knows_gates`: they are multiplied already. tokens_of: for how many tokens each is listed;
  // empty: one.
  void BeginSegment(std::span<const int32_t> listed, bool knows_gates,
                    std::span<const uint8_t> tokens_of = {}) {
    listed_ = listed;
    tokens_of_ = tokens_of;
    knows_gates_ = knows_gates;
    OnSegment();
  }
  std::span<const int32_t> listed() const { return listed_; }
  std::span<const uint8_t> tokens_of() const { return tokens_of_; }
  bool knows_gates() const { return knows_gates_; }
  // MultiplyGates had them all.
  void TakeGates() { knows_gates_ = true; }

  // At most ReadyNeurons::kMost of them.
  virtual void MultiplyGates(const ReadyNeurons& ready) noexcept = 0;
  // After MultiplyGates of them. Packs the positions of those that fire to `fired`, in order, and
  // returns how many; the others are finished, and nothing is read of their up and down.
  virtual int64_t TakeSilent(const ReadyNeurons& ready, int32_t* fired) noexcept = 0;
  // `knows_gates`: MultiplyGates had them.
  virtual ClusterCounts Finish(const ReadyNeurons& ready, bool knows_gates) noexcept = 0;
  // Adds down rows of positions [begin, end), all finished, to the columns of some groups; calls
  // have ascending positions. slots[i] is that of position i.
  virtual void AddDown(const int32_t* slots, int64_t begin, int64_t end, int64_t begin_group,
                       int64_t end_group) noexcept = 0;

 protected:
  virtual void OnSegment() {}

  const kernels::KernelTable& table_;
  const FfnNeurons rows_;
  std::span<const int32_t> listed_;
  std::span<const uint8_t> tokens_of_;
  bool knows_gates_ = false;
};

// Where a TokenWork leaves what it computes, an entry per position each.
struct TokenScratch {
  float* gates = nullptr;
  float* factors = nullptr;
};

// What is known of a token's gates before it is computed.
struct TokenGates {
  const SilentGates* silent = nullptr;  // decides which do not fire; null: all do
  // Their products, one after another over all segments; null: not multiplied yet.
  const float* products = nullptr;
};

class TokenWork final : public NeuronWork {
 public:
  // Clears out [hidden]. All arguments must outlive the work.
  TokenWork(const kernels::KernelTable& table, const FfnNeurons& rows, const NeuronInput& input,
            const TokenGates& known, const TokenScratch& scratch, float* out);

  void MultiplyGates(const ReadyNeurons& ready) noexcept override;
  int64_t TakeSilent(const ReadyNeurons& ready, int32_t* fired) noexcept override;
  ClusterCounts Finish(const ReadyNeurons& ready, bool knows_gates) noexcept override;
  void AddDown(const int32_t* slots, int64_t begin, int64_t end, int64_t begin_group,
               int64_t end_group) noexcept override;

 private:
  void OnSegment() override;

  const NeuronInput input_;
  const SilentGates* const silent_;
  const float* next_gates_;  // known ones of the segment that comes next
  const TokenScratch scratch_;
  const float* gates_ = nullptr;  // of the segment
  float* const out_;
};

class BatchWork final : public NeuronWork {
 public:
  // `batch` has begun.
  BatchWork(const kernels::KernelTable& table, const FfnNeurons& rows, SparseBatch& batch)
      : NeuronWork(table, rows), batch_(batch) {}

  void MultiplyGates(const ReadyNeurons& ready) noexcept override;
  int64_t TakeSilent(const ReadyNeurons& ready, int32_t* fired) noexcept override;
  ClusterCounts Finish(const ReadyNeurons& ready, bool knows_gates) noexcept override;
  void AddDown(const int32_t* slots, int64_t begin, int64_t end, int64_t begin_group,
               int64_t end_group) noexcept override;

 private:
  SparseBatch& batch_;
};

}  // namespace hearth
