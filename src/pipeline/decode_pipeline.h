// One FFN for one token, or for a few together, of which some neurons are on storage: predict, look
// up, read, compute (P2 §4.4).
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
// that is in memory (docs/architecture.md, "One order of addition").
//
// Where gates are read first (P2 §4.3), up and down are read of those that fire, and of no others:
//
//   missing -> reading its gate -> gate arrived --> silent: computed
//                                             \--> reading the rest -> arrived -> ready
//
// The cache then keeps the gate alone of a silent neuron, which is ready as far as that goes when
// it is listed again.
//
// While other programs take turns with the threads (processor_share.h), kCluster waits asleep, as
// kBlocking does, until its list is all here.
//
// Where the store holds all gates, they are multiplied first, and the neurons that fire take the
// place of the list: exact without a predictor. What is looked up, read and computed of them is the
// other half.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/stopwatch.h"
#include "ops/compute.h"
#include "ops/gate_scan.h"
#include "ops/neuron_cluster.h"
#include "pipeline/bundle_rows.h"
#include "pipeline/neuron_fetch.h"
#include "pipeline/neuron_work.h"
#include "pipeline/processor_share.h"
#include "pipeline/stream_counts.h"
#include "sparsity/list_guess.h"

namespace hearth {

// How reads and computing follow each other; all but kCluster are there to be compared with. They
// share slots, cache, bundles and the depth of the queue.
enum class PipelineKind : uint8_t {
  kBlocking,  // waits for all reads of an FFN before it computes any of it
  kMatrix,    // gates, then up, then down; reads overlap only with computing of the same matrix (P2
              // Figure 4a). Gate halves are read first, then, in one, up and down of what fires
  kCluster,   // computes what is there while the rest is read
  kLlmFlash,  // LLM in a Flash: parallel reads, no overlap, and a cache of the last tokens' neurons
};
std::span<const PipelineKind> AllPipelines();
const char* PipelineName(PipelineKind kind);  // "blocking", "matrix", "cluster", "llmflash"
std::optional<PipelineKind> PipelineFromName(std::string_view name);

// Who submits the reads of a list and takes what has arrived (P2 §5.1, c_io).
enum class IoThread : uint8_t {
  kShared,  // whichever thread finds time for it
  kOwn,     // the one that calls, which computes only while nothing is to be read
};
std::span<const IoThread> AllIoThreads();
const char* IoThreadName(IoThread thread);  // "shared", "own"
std::optional<IoThread> IoThreadFromName(std::string_view name);

struct DecodeOptions {
  PipelineKind kind = PipelineKind::kCluster;
  std::optional<uint32_t> merge_gap_bytes;  // see QueueOptions
  bool reads_ahead = false;                 // Expect may be called; of kCluster only
  bool gates_first = false;                 // of missing neurons; of kCluster only
  uint32_t piece_bytes = 0;                 // see FetchOptions; of kCluster only
  IoThread io_thread = IoThread::kShared;   // of kCluster only
  ProcessorShareOptions processors;         // of kCluster only

  FetchOptions fetch() const { return {merge_gap_bytes, reads_ahead, piece_bytes}; }
};

// One thread at a time. Owns scratch for one token.
class DecodePipeline {
 public:
  // Charged to `budget` as "activations". `store` must outlive the pipeline. Throws
  // Error(kUnsupported) where halves of bundles are to be read and cannot be.
  DecodePipeline(Budget& budget, BundleStore& store, const DecodeOptions& options);
  static uint64_t ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                               int64_t hidden_size, const DecodeOptions& options);

  // Whether what fires is found before all of it is read: gates are held or read first.
  bool finds_firing() const { return gate_scan_.has_value() || options_.gates_first; }

  // See NeuronFetch.
  void RegisterSlots() { fetch_.RegisterSlots(); }

  // out[0..hidden) = the FFN of x, from the listed neurons, ascending; from all (no list) only
  // where finds_firing(). As SparseFfn: where skip_silent, up and down of neurons that add
  // nothing are left out. Throws Error(kIo) and Error(kCorrupt) when a read fails or brings what
  // its check does not fit; nothing of the list is in flight then, and the next call works.
  SparseFfnCounts Run(Compute& compute, const StreamedFfn& ffn, const float* x,
                      std::optional<std::span<const int32_t>> listed, bool skip_silent, float* out);

  // The same for a few tokens, of which a neuron that several list is looked up and read once; a
  // token's result has the bits that Run gives it. No lists only where finds_firing().
  SparseFfnCounts RunBatch(Compute& compute, SparseBatch& batch, const StreamedFfn& ffn,
                           const SparseBatch::Tokens& tokens);

  // Lets the threads of the next Run or RunBatch find out, while they wait for its reads, what the
  // list of `next`, another FFN, will probably be. Once that is known and nothing of that call's
  // own list is left to read, some of it is read. What they do not get to is left undone. `guess`
  // must outlive that call.
  void Expect(const StreamedFfn& next, ListGuess& guess) {
    guess_ = &guess;
    guessed_ffn_ = store_.FfnIndex(next.layer, next.expert);
  }
  // Starts what of it waits for a place in the queue. While nothing is computed here.
  void PollAhead() noexcept {
    if (fetch_.is_reading_ahead()) fetch_.Poll(false);
  }
  // Nothing is expected, and nothing in flight any more.
  void StopAhead() noexcept {
    guess_ = nullptr;
    fetch_.StopAhead();
  }

  StreamCounts counts() const;
  void Watch(NeuronMap* map) { fetch_.Watch(map); }  // see NeuronFetch

 private:
  struct Places;   // where things lie in memory_
  struct Section;  // the parallel sections of one list
  // What a parallel section does with ready neurons.
  enum class Step : uint8_t {
    kGate,    // multiplies their gates
    kFinish,  // all of them; where gates are known, what follows
    kNone,    // they are computed
  };

  ClusterCounts RunList(Compute& compute, const StreamedFfn& ffn, std::span<const int32_t> listed,
                        std::span<const uint8_t> tokens_of, NeuronWork& work);
  void RunSegment(Compute& compute, Section& section);
  SlotPart FirstPart(const Section& section) const;
  void RunMatrices(Compute& compute, Section& section);
  void RunPhase(Compute& compute, Section& section, Step step, bool adds);
  void Work(Section& section, int worker);
  bool ComputeReady(Section& section);
  bool TakeReady(Section& section, ReadyNeurons& ready, ReadyState& state);
  int64_t MultiplyReady(Section& section, const ReadyNeurons& ready);
  void FinishReady(Section& section, const ReadyNeurons& ready, bool knows_gates);
  void ReadFiringRests(Section& section);
  bool AddComputed(Section& section);
  bool Guess(Section& section);

  BundleStore& store_;
  const DecodeOptions options_;
  NeuronFetch fetch_;
  std::optional<GateScan> gate_scan_;  // where the store holds gates
  Buffer memory_;
  // Views into memory_, an entry per listed neuron (its position) unless said otherwise.
  std::span<int32_t> all_;  // neurons of an FFN, where gates are read first
  kernels::GroupQ8* x_;     // the token in row groups
  float* gates_;            // where they are multiplied before the rest is read
  float* factors_;
  int32_t* rests_;  // positions of which kMatrix reads the rest
  std::atomic<uint8_t>* computed_;
  ListGuess* guess_ = nullptr;  // of the next Run
  int64_t guessed_ffn_ = 0;
  ProcessorShare processors_;
  const Stopwatch since_begin_;
  int64_t clusters_ = 0;  // that threads took
  double idle_seconds_ = 0;
  double wall_seconds_ = 0;
};

}  // namespace hearth
