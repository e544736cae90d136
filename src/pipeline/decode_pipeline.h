// One FFN for one token, of which some neurons are on storage: predict, look up, read, compute
// (DESIGN section 7; P2 section 4.4).
//
// States of a listed neuron:
//
//   listed -> resident ------------------------> ready -> computed -> added
//          -> missing -> reading -> arrived ---/
//
// All missing neurons are submitted at once; resident ones are computed meanwhile, those that have
// arrived as soon as they have. There is no barrier between gate, up and down: a thread that finds
// nothing ready adds down rows of the computed prefix to columns of its own. Down rows are added in
// ascending order of neurons whatever the order of arrival, so that the bits are those of an FFN
// that is in memory (FORMATS.md, "One order of addition").
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/compute.h"
#include "ops/neuron_cluster.h"
#include "pipeline/bundle_store.h"
#include "pipeline/stream_counts.h"
#include "storage/async_reader.h"

namespace hearth {

// How reads and computing follow each other; all but kCluster are there to be compared with.
enum class PipelineKind : uint8_t {
  kBlocking,  // waits for all reads of an FFN before it computes any of it
  kCluster,   // computes what is there while the rest is read
};
const char* PipelineName(PipelineKind kind);  // "blocking", "cluster"
std::optional<PipelineKind> PipelineFromName(std::string_view name);

// One thread at a time. Owns scratch for one token.
class DecodePipeline {
 public:
  // Charged to `budget` as "activations". `store` must outlive the pipeline.
  DecodePipeline(Budget& budget, BundleStore& store, PipelineKind kind);
  static uint64_t ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                               int64_t hidden_size);

  // out[0..hidden) = the FFN of x, from the listed neurons, ascending. As SparseFfn: where
  // skip_silent, up and down of neurons that add nothing are left out. Throws Error(kIo) and
  // Error(kCorrupt) when a read fails or brings what its check does not fit; nothing is in flight
  // then, and the next call works.
  SparseFfnCounts Run(Compute& compute, const StreamedFfn& ffn, const float* x,
                      std::span<const int32_t> listed, bool skip_silent, float* out);

  const StreamCounts& counts() const { return counts_; }

 private:
  struct Places;   // where things lie in memory_
  struct Section;  // a parallel section in progress
  struct ClusterScratch;

  void RunSegment(Compute& compute, const StreamedFfn& ffn, std::span<const int32_t> listed,
                  Section& section);
  void LookUp(int64_t ffn, std::span<const int32_t> listed);
  void SubmitMisses(int64_t ffn, std::span<const int32_t> listed);
  void Settle(int64_t ffn, std::span<const int32_t> listed, const Section& section);
  void Work(Section& section);
  bool ComputeReady(Section& section, ClusterScratch& scratch);
  bool PollReads(Section& section, bool wait);
  bool AddComputed(Section& section);

  BundleStore& store_;
  const PipelineKind kind_;
  const int64_t max_listed_;  // of a segment
  std::unique_ptr<ReadQueue> queue_;
  Buffer memory_;
  // Views into memory_, an entry per listed neuron (its position) unless said otherwise.
  kernels::GroupQ8* x_;  // the token in row groups
  int32_t* slots_;
  CacheEntry* entries_;  // of those that are not pinned
  ReadRequest* requests_;
  int32_t* missing_;  // positions that are read
  int32_t* ready_;    // positions, in the order in which they may be computed
  float* factors_;
  std::atomic<uint8_t>* computed_;
  int64_t num_pinned_ = 0;   // positions below are
  int64_t num_missing_ = 0;  // entries of missing_
  StreamCounts counts_;
};

}  // namespace hearth
