// One pass of a ragged batch through the model: tokens in, logits out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "engine/op_laps.h"
#include "kv/kv_cache.h"
#include "model/model_spec.h"
#include "model/weights.h"
#include "ops/compute.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/sparse_batch.h"
#include "ops/sparse_ffn.h"
#include "ops/sparse_prefill.h"
#include "pipeline/streamed_ffns.h"
#include "pipeline/streamed_matrices.h"
#include "sparsity/selector.h"
#include "tensor/view.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// New tokens of one sequence. They follow what its cache holds and are added to it.
struct BatchSequence {
  KvSequence* kv = nullptr;
  std::span<const TokenId> tokens;
};

// What an FFN of single neurons (a packed file's) does for one token.
struct NeuronObservation {
  int64_t layer = 0;
  int64_t expert = 0;
  int64_t token = 0;  // row of the batch
  // Neurons that were to be computed, ascending; nothing means all.
  std::optional<std::span<const int32_t>> listed;
  bool skips_silent = false;  // those whose gate does not fire are left out
  // What all neurons do, listed or not: all.up gates fire, those of `fired`; these are active, by
  // these factors. Ascending.
  SparseFfnCounts all;
  std::span<const int32_t> fired;
  std::span<const int32_t> active;
  std::span<const float> factors;
};

// Sees intermediate results; for measurements and tests. Called on the thread that runs Forward,
// for every FFN that a pass computes, in the order of the functions. `tokens` are the rows of the
// batch that the FFN computes, ascending; the other arguments have a row for each of them, but for
// the residual, which has a row for every token of the batch. Valid during the call.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // residual: what enters the FFN block, before its norm; input: what gate and up multiply.
  virtual void OnFfnInput(int64_t /*layer*/, int64_t /*expert*/,
                          std::span<const int64_t> /*tokens*/, FloatView /*residual*/,
                          FloatView /*input*/) {}
  // Products of gate and up, [tokens.size()][intermediate_size], before the activation.
  virtual void OnFfnGateUp(int64_t /*layer*/, int64_t /*expert*/,
                           std::span<const int64_t> /*tokens*/, FloatView /*gate*/,
                           FloatView /*up*/) {}
  // What down multiplies, likewise.
  virtual void OnFfnActivation(int64_t /*layer*/, int64_t /*expert*/,
                               std::span<const int64_t> /*tokens*/, FloatView /*activation*/) {}
  // Of an FFN of single neurons instead of the two above, token by token.
  virtual void OnFfnNeurons(const NeuronObservation& /*observed*/) {}
  // Whether OnFfnGuess is called, of models that are no mixtures and where neurons are predicted:
  // behind OnFfnInput of a layer, token by token, with what the FFN of the layer behind it will
  // probably list, ascending (what lookahead would read).
  virtual bool wants_guesses() const { return false; }
  virtual void OnFfnGuess(int64_t /*layer*/, int64_t /*token*/,
                          std::span<const int32_t> /*neurons*/) {}
};

struct ForwardLimits {
  int64_t max_tokens = 256;      // of one batch, all sequences together
  int64_t max_context = 4096;    // longest sequence
  DType kv_dtype = DType::kF16;  // F16 or F32
  bool ffn_of_neurons = false;   // the model's FFNs are single neurons (a packed file's)
  // Of those, tokens of different sequences that share a neuron's weights while it is at hand, and
  // whose lists are guessed together: at least 1, at most max_tokens and SparseBatch::kMostTokens.
  int64_t tokens_together = 1;
};

// FFNs that are not all in memory; at most one of the two.
struct StreamedWeights {
  StreamedFfns* neurons = nullptr;       // of a packed model
  StreamedMatrices* matrices = nullptr;  // of another
};

// The scratch memory of a pass and the pass itself. One thread at a time.
class Forward {
 public:
  // Tokens from which single neurons are computed for all together.
  static constexpr int64_t kPrefillTokens = 8;
  // Tokens of a prompt to run next where `left` are left and a pass takes `most`: as many as it
  // takes, but for some where fewer than kPrefillTokens would be left over, so that all tokens of a
  // prompt are computed in one way however it is cut.
  static int64_t ChunkOf(int64_t left, int64_t most);
  // Tokens that a selector of single neurons is asked about at a time, at most.
  static constexpr int64_t kSelectTokens = 32;
  // Logit rows that one call of Logits may ask for.
  static constexpr int64_t kMaxLogitRows = 16;

  // Allocates all scratch, charged to `budget` as "activations" and "logits". Everything referred
  // to must outlive the object.
  Forward(const ModelSpec& spec, const ModelWeights& weights, Compute& compute, Budget& budget,
          const ForwardLimits& limits, const StreamedWeights& streamed = {});

  // Runs the batch through all layers. Rows are numbered over the sequences in order.
  // Throws Error(kInvalidArgument) for an empty or too large batch or a token outside the
  // vocabulary, Error(kContextFull) past max_context, Error(kOutOfBudget) when a cache has no
  // room; no cache has changed then. Where FFNs are streamed also Error(kIo) and Error(kCorrupt);
  // the batch's tokens are taken out of its caches again then, and the next call works.
  // A batch of one token for each sequence is decoding: where neurons are streamed, those of its
  // tokens are read and no others, however many sequences there are.
  void Run(std::span<const BatchSequence> batch, ActivationSelector& selector,
           ForwardObserver* observer = nullptr);
  // Asked between layers of later passes; where it says true, the pass ends with Error(kCancelled),
  // as if it had never begun. Null: passes run to their end.
  void StopWhen(std::function<bool()> is_unwanted) { is_unwanted_ = std::move(is_unwanted); }

  // Logits of rows [first, first + count) of the last batch: [count][vocab]. Valid until the
  // next call. count <= kMaxLogitRows.
  FloatView Logits(int64_t first, int64_t count);

  // What the output matrix multiplies, the last hidden states behind their norm, of the rows of the
  // last batch: [rows][hidden_size]. Valid until the next call of Run.
  FloatView FinalStates() const { return Rows(normed_); }

  // Adds the wall time of every op of later calls to `seconds`, which must live as long; null ends
  // that.
  void RecordOps(OpSeconds* seconds) { laps_.Record(seconds); }

  // Draws what FFNs of single neurons compute in later passes into `map`, which must live as long;
  // null ends that.
  void Watch(NeuronMap* map);

  // Neurons computed by FFNs of single neurons, over all passes so far.
  const SparseFfnCounts& ffn_counts() const { return ffn_counts_; }

  const ForwardLimits& limits() const { return limits_; }

  static KvLayout LayoutFor(const ModelSpec& spec, DType kv_dtype);
  // The most tokens that passes ask a selector about at a time.
  static int64_t TokensOfQuery(const ForwardLimits& limits);
  // What the constructor charges, for planning.
  static uint64_t ChargedBytes(const ModelSpec& spec, const ForwardLimits& limits, int threads);

 private:
  struct Sizes;

  void CheckBatch(std::span<const BatchSequence> batch) const;
  void PlaceBatch(std::span<const BatchSequence> batch);
  static void RemoveBatch(std::span<const BatchSequence> batch, size_t placed);
  void RunLayers();
  void ComputeAngles();
  void AttentionBlock(int64_t layer);
  void StoreKv(int64_t layer, FloatView k, FloatView v);
  void FfnBlock(int64_t layer);
  void DenseFfn(int64_t layer);
  void ExpertFfn(int64_t layer);
  void RouteToExperts(int64_t layer);
  void AddExpert(int32_t expert);
  WeightView MatrixInMemory(int64_t layer, int64_t expert, FfnMatrix which) const;
  // Products of `input_`, in memory or not.
  void MultiplyFfn(int64_t layer, int64_t expert, std::span<const FfnProduct> products);
  // The same with the neurons of active_ only.
  void MultiplyListed(int64_t layer, int64_t expert, std::span<const FfnProduct> products);
  // gate/up/activation/down of one FFN for rows of `input_`, into `out`.
  void RunFfn(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView out);
  // The same from single neurons: tokens of a prompt together, those that are decoded a few at a
  // time.
  void RunSparse(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView out);
  void RunNeurons(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView out);
  // The selector's answers on `query` in active_, of some tokens at a time: visit(first), the place
  // of the first of them in query.tokens. Ends where all neurons are meant.
  template <class Visit>
  void SelectInSteps(const SelectionQuery& query, Visit&& visit);
  // Asks what rows of `input_` compute: into prefill_ where they are a prompt's, else into active_.
  void Select(int64_t layer, int64_t expert, std::span<const int64_t> tokens);
  void RunNeuronsTogether(const FfnNeurons& ffn, NeuronObservation observed,
                          std::span<const int64_t> tokens, FloatView out);
  void RunNeuronsOneByOne(const FfnNeurons& ffn, NeuronObservation observed,
                          std::span<const int64_t> tokens, FloatView out);
  // run(x, lists, out) for the rows of `input_`, as many at a time as are computed together.
  using BatchFn = std::function<void(FloatView x, SparseBatch::Lists lists, FloatView out)>;
  void ForEachBatch(FloatView out, const BatchFn& run);
  // What a token of the batch computes, in the order of `tokens`; nothing means all. Valid until
  // the next call.
  std::optional<std::span<const int32_t>> ListOf(int64_t row);
  // The same where not all neurons are in memory.
  void RunStreamed(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView out);
  // What to ask the predictor of the next layer, a guess of its list; nothing where there is none.
  // `scratch` has a row per token.
  std::optional<SelectionQuery> QueryOfNext(int64_t layer, std::span<const int64_t> tokens,
                                            FloatView scratch);
  void ObserveInput(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                    FloatView scratch);
  void ObserveStreamed(const StreamedFfn& ffn, bool skip_silent, std::span<const int64_t> tokens,
                       FloatView out);
  // Of what prefill_ computes: tells the observer once it has all blocks.
  struct Observed {
    std::vector<int32_t> fired, active;
    std::vector<float> factors;
  };
  SparsePrefill::BlockFn Gather(std::vector<Observed>& of_tokens);
  void TellObserver(const std::vector<Observed>& of_tokens, NeuronObservation observed,
                    std::span<const int64_t> tokens, int64_t neurons);
  void StreamPrompt(const StreamedFfn& ffn, const SparsePrefill::Choice& choice, FloatView out,
                    const SparsePrefill::BlockFn& after_block);
  void StreamAll(const StreamedFfn& ffn, bool skip_silent, FloatView out);
  // Into map_, which is there: what neurons_ fired last; what an operator fired for so many tokens;
  // all neurons, for every token.
  void DrawFired(int64_t ffn);
  template <class Operator>
  void DrawFired(int64_t ffn, int64_t tokens, const Operator& op);
  void DrawRanges(int64_t ffn, int64_t tokens);
  FloatView Rows(const FloatView& view) const { return view.Rows(0, num_rows_); }

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  Compute& compute_;
  ForwardLimits limits_;
  StreamedFfns* streamed_;
  StreamedMatrices* matrices_;
  std::vector<double> rope_frequencies_;  // radians per position, a value per rotated pair

  Buffer scratch_;
  Buffer logits_memory_;
  // Views into scratch_, max_tokens rows each unless said otherwise.
  FloatView hidden_;  // the residual stream
  FloatView normed_;
  FloatView q_, k_, v_;
  FloatView attended_;
  FloatView block_out_;  // what a block adds to the residual
  FloatView gate_, up_;
  FloatView gathered_;  // tokens of one expert, packed
  FloatView expert_out_;
  FloatView router_;  // router probabilities
  FloatView cos_, sin_;
  FloatView attention_scratch_;  // a row per thread
  FloatView attention_partial_;  // one row
  FloatView logits_;             // kMaxLogitRows rows
  MatMulInput input_;
  std::optional<SparseFfn> neurons_;      // of one token
  std::optional<SparseBatch> batch_;      // of a few
  std::optional<SparsePrefill> prefill_;  // of many

  std::function<bool()> is_unwanted_;

  // The batch being run.
  bool is_decoding_ = false;  // one token of each sequence
  // Of the FFN of single neurons that is its turn: whether its tokens are computed by prefill_, and
  // whether they list neurons.
  bool is_prompt_ = false;
  bool has_lists_ = false;
  ActivationSelector* selector_ = nullptr;
  ForwardObserver* observer_ = nullptr;
  OpLaps laps_;
  NeuronMap* map_ = nullptr;  // null where nobody looks
  int64_t num_rows_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<int64_t> positions_;
  std::vector<KvSequence*> sequences_;              // per row
  std::vector<std::span<std::byte* const>> pages_;  // per row
  std::vector<int64_t> all_rows_;                   // 0, 1, 2, ...
  std::vector<ExpertLoad> expert_loads_;            // rows routed to each expert
  std::vector<int32_t> used_experts_;               // those with rows, as they are computed
  std::vector<FloatView> expert_outputs_;           // of those, in expert_out_
  ActiveSets active_;
  std::vector<int32_t> observed_fired_, observed_listed_;  // of one token, for observers
  SparseFfnCounts ffn_counts_;
};

}  // namespace hearth
