// Writes the bundles of one FFN after the other within a given memory. Internal to prepare/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/worker_team.h"
#include "format/gguf.h"
#include "prepare/pack/bundle_encoder.h"
#include "prepare/pack/pack_plan.h"

namespace hearth {

// How much memory the work may take, decided before it begins.
//
// The down matrix of an FFN is turned into rows of neurons and held as such, all of it where there
// is room; otherwise a range of bundles at a time, and the matrix is read once per range. The page
// cache is told to fetch the matrices of an FFN as a whole, where there is room, so that rows can
// be read in any order from a disk that likes to be read in one; otherwise it must forget every
// row.
struct PackMemory {
  uint64_t thread_bytes = 0;  // scratch of each thread
  uint64_t down_bytes = 0;    // rows of down, of part of an FFN or all
  bool fetch_whole_ffns = true;
  bool drop_page_cache = false;  // the limit counts it

  // Page cache that the limit must leave room for.
  uint64_t CachedBytes(const PackPlan& plan) const;

  // What threads need for other work counts too.
  struct Terms {
    int threads = 1;
    uint64_t thread_bytes = 0;  // at least
    uint64_t limit_bytes = 0;
    uint64_t used_bytes = 0;  // of the limit, by others
    bool limit_counts_page_cache = false;
  };
  // Throws Error(kOutOfBudget), naming the least that would do.
  static PackMemory Plan(const PackPlan& plan, const Terms& terms);
};

class FfnPacker {
 public:
  using WriteFn = std::function<void(int worker, std::span<const std::byte> bytes)>;

  // All must outlive the packer. Buffers are charged to `budget`.
  FfnPacker(const GgufFile& source, const PackPlan& plan, const PackMemory& memory,
            WorkerTeam& team, Budget& budget);

  // Makes all bundles of all layers; hands them to `write`, in order and one call at a time.
  // `tick` is called on the calling thread now and then; both may throw.
  void Pack(const WriteFn& write, const std::function<void()>& tick);

  // As PackResult has it, of what was packed.
  double down_error() const;

 private:
  struct Ffn;    // one FFN and what is read of it
  struct Range;  // bundles [begin, end) of an FFN

  void TurnRange(const Ffn& ffn, const Range& range, const std::function<void()>& tick);
  void WriteRange(const Ffn& ffn, const Range& range, const WriteFn& write,
                  const std::function<void()>& tick);
  std::span<std::byte> ScratchOf(int worker);
  void TurnDown(const Ffn& ffn, const Range& range, size_t panel, std::span<std::byte> scratch);
  void TurnTile(const Ffn& ffn, const Range& range, size_t panel, std::span<const std::byte> rows,
                int64_t first_column);
  void MakeBundles(const Ffn& ffn, const Range& bundles, const Range& held, BundleEncoder& encoder,
                   std::span<std::byte> scratch);
  // Throw Error(kCorrupt) for what is no number, or cannot be one in the bundles.
  void CheckRow(const GgufTensor& tensor, const std::byte* row) const;
  void CheckWeights(const GgufTensor& tensor, std::span<const float> weights) const;
  void ReadRows(const Ffn& ffn, const NeuronMatrix& matrix, const Range& bundles,
                std::span<std::byte> out);
  void ReadBiases(const Ffn& ffn);
  void Fetch(const GgufTensor& tensor, const Ffn& ffn);
  void DropAll();

  const GgufFile& source_;
  const PackPlan& plan_;
  const PackMemory memory_;
  WorkerTeam& team_;
  std::vector<BundleEncoder> encoders_;  // per thread
  Buffer scratch_;                       // thread_bytes per thread
  Buffer down_;                          // [bundle of the range][hidden] in the bundles' type
  std::vector<int32_t> slot_of_;         // of the FFN at hand: neuron to bundle
  std::vector<float> biases_;            // of its neurons; empty where they have none
  std::vector<double> errors_;           // squared, per panel of hidden
  std::vector<double> norms_;
};

}  // namespace hearth
