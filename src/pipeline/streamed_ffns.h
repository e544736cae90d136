// Start here: all FFNs of a packed model that is larger than the memory it was given.
//
// Owns what is in memory of them, and the two ways to compute one: range by range, for all neurons
// (prompts; decisions of no selector), and neuron by neuron, for a list (decode).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/budget.h"
#include "base/stopwatch.h"
#include "cache/lent_slots.h"
#include "ops/compute.h"
#include "pipeline/bundle_store.h"
#include "pipeline/decode_pipeline.h"
#include "pipeline/lookahead.h"
#include "pipeline/range_reader.h"

namespace hearth {

// A neuron of a 7B model in Q4_0, which takes 7 KiB, and no more: eight sequences together are 3 to
// 5% faster so, as fast with two between them, and slower with more
// (docs/decisions/0013-steps-of-requests.md).
inline constexpr uint32_t kDefaultMergeGapBytes = 8 << 10;

// The smallest block of flash (P2 §4.3).
inline constexpr uint32_t kNeuronPieceBytes = 4 << 10;

struct StreamOptions {
  CachePolicyKind policy = kDefaultCachePolicy;
  PipelineKind pipeline = PipelineKind::kCluster;
  // See QueueOptions; of neurons.
  std::optional<uint32_t> merge_gap_bytes = kDefaultMergeGapBytes;
  Lookahead lookahead = Lookahead::kAuto;
  // Of a neuron that is missing the gate first, and the rest where it fires (P2 §4.3); of kCluster
  // only. Nothing is merged then: halves are never neighbours.
  bool gates_first = false;
  // What is missing is read in pieces of at most so many bytes, where the device likes small ones
  // (P2 §4.3); 0: in one. Of kCluster only. Nothing is merged then.
  uint32_t piece_bytes = 0;
  // Of kCluster only.
  IoThread io_thread = IoThread::kShared;
  // Not asked with Lookahead::kOn: a thread that sleeps reads nothing ahead.
  ProcessorShareOptions processors;

  // LLM in a Flash comes with a policy of its own.
  CachePolicyKind cache_policy() const {
    return pipeline == PipelineKind::kLlmFlash ? CachePolicyKind::kWindow : policy;
  }
  // What all of this means to the decode pipeline.
  DecodeOptions decode() const;
};

// One thread at a time.
class StreamedFfns {
 public:
  // Charges what ChargedBytes says. Throws as BundleStore does.
  StreamedFfns(Budget& budget, BundleSource source, const StreamPlan& plan,
               const StreamOptions& options);
  static uint64_t ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                               int64_t hidden_size, const StreamOptions& options);

  // Reads what is pinned, gates that are held too, and fills the cache with the neurons that fire
  // most of the others, in sequential reads. Calls progress(done_bytes, total_bytes), which may
  // throw. Throws Error(kIo), Error(kCorrupt).
  void Fill(Compute& compute, const std::function<void(uint64_t, uint64_t)>& progress);

  // Before a pass; decoded: how many sequences it decodes a token of, where they are computed
  // together; 0 otherwise. Throws Error(kIo) where the file was truncated or replaced.
  void BeginPass(int64_t decoded = 0);
  // After a pass: the clock of policies that forget.
  void EndToken() noexcept;

  // Lends the memory of the plan's KV pages.
  LentSlots& kv_slots() { return kv_slots_; }

  // See DecodePipeline.
  bool finds_firing() const { return decode_.finds_firing(); }

  // Whether this pass wants a guess of what the FFN after the one that is run next will list; see
  // DecodePipeline::Expect.
  bool looks_ahead() const { return looks_ahead_; }
  void Expect(const StreamedFfn& next, ListGuess& guess) { decode_.Expect(next, guess); }
  // Between other work, so that the disk does not run out of reads.
  void PollAhead() noexcept {
    if (looks_ahead_) decode_.PollAhead();
  }

  // visit(first_neuron, rows) for the ranges of an FFN, ascending; see RangeReader.
  template <typename Visit>
  void ForEachRange(Compute& compute, const StreamedFfn& ffn, RangeRows which, Visit&& visit) {
    decode_.StopAhead();
    ranges_.ForEachRange(compute, ffn, which, visit);
  }
  // visit(first_neuron, rows, arrive); see RangeReader.
  template <typename Visit>
  void ForEachArriving(Compute& compute, const StreamedFfn& ffn, Visit&& visit) {
    decode_.StopAhead();
    ranges_.ForEachArriving(compute, ffn, visit);
  }
  // One token; see DecodePipeline::Run.
  SparseFfnCounts Run(Compute& compute, const StreamedFfn& ffn, const float* x,
                      std::optional<std::span<const int32_t>> listed, bool skip_silent,
                      float* out) {
    ranges_.Stop();
    return decode_.Run(compute, ffn, x, listed, skip_silent, out);
  }

  // A few tokens together; see DecodePipeline::RunBatch.
  SparseFfnCounts RunBatch(Compute& compute, SparseBatch& batch, const StreamedFfn& ffn,
                           const SparseBatch::Tokens& tokens) {
    ranges_.Stop();
    return decode_.RunBatch(compute, batch, ffn, tokens);
  }
  // Draws the lists of later calls of Run into `map`; null ends that.
  void Watch(NeuronMap* map) { decode_.Watch(map); }

  // See ProbeNeuronReads. Between passes.
  double ProbeReads(double seconds) {
    ranges_.Stop();
    decode_.StopAhead();
    return ProbeNeuronReads(store_, seconds);
  }

  const BundleStore& store() const { return store_; }
  const StreamOptions& options() const { return options_; }
  // Since Fill: of ranges, and of both.
  const StreamCounts& range_counts() const { return ranges_.counts(); }
  StreamCounts counts() const {
    StreamCounts counts = decode_.counts();
    return counts += ranges_.counts();
  }

 private:
  LookaheadTrial& trial() { return decoded_ == 1 ? of_one_ : of_several_; }

  StreamOptions options_;
  BundleStore store_;
  RangeReader ranges_;
  DecodePipeline decode_;
  LentSlots kv_slots_;
  LookaheadTrial of_one_, of_several_;
  // Of the pass.
  int64_t decoded_ = 0;
  bool looks_ahead_ = false;
  Stopwatch watch_;
};

}  // namespace hearth
