#include "engine/forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "engine/rope_table.h"
#include "ops/attention.h"
#include "ops/elementwise.h"

namespace hearth {
namespace {

const float* Floats(const WeightView& vector) {
  return reinterpret_cast<const float*>(vector.data);
}

// Hands out consecutive float matrices of one buffer; without one it only counts.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* base) : base_(base) {}

  FloatView Take(int64_t rows, int64_t cols) {
    // Rows start on cache lines, so that threads that write neighbouring rows do not share one.
    const int64_t stride = (cols + 15) / 16 * 16;
    auto* data = base_ == nullptr ? nullptr : reinterpret_cast<float*>(base_) + used_;
    used_ += rows * stride;
    return {data, rows, cols, stride};
  }
  size_t bytes() const { return static_cast<size_t>(used_) * sizeof(float); }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

}  // namespace

// Widths of the scratch matrices of a spec.
struct Forward::Sizes {
  int64_t q = 0;
  int64_t kv = 0;
  int64_t ffn = 0;
  int64_t experts = 0;
  int64_t hidden = 0;

  explicit Sizes(const ModelSpec& spec) {
    for (const LayerSpec& layer : spec.layers) {
      q = std::max(q, layer.attention.num_heads * layer.attention.head_dim);
      kv = std::max(kv, layer.attention.num_kv_heads * layer.attention.head_dim);
      ffn = std::max(ffn, layer.ffn.intermediate_size);
      experts = std::max(experts, layer.ffn.num_experts);
    }
    hidden = spec.hidden_size;
  }

  // Of any matrix product.
  int64_t WidestInput(const ForwardLimits& limits) const {
    return std::max({hidden, q, limits.ffn_of_neurons ? 0 : ffn});
  }
  SparseBatchShape BatchOf(const ForwardLimits& limits) const {
    return {limits.tokens_together, hidden, ffn};
  }
  // More than one token at a time.
  bool HasBatch(const ForwardLimits& limits) const {
    return limits.ffn_of_neurons && limits.tokens_together > 1;
  }
  SparsePrefillShape PrefillOf(const ForwardLimits& limits, int threads) const {
    SparsePrefillShape shape = {limits.max_tokens, hidden, ffn, threads};
    // Every thread gets some of them.
    shape.block_neurons = std::max(shape.block_neurons, 4 * kernels::kRowsOfSums * threads);
    return shape;
  }

  // Lays all matrices of `f` out; f may be null to count only.
  void Place(const ModelSpec& spec, const ForwardLimits& limits, int threads, ScratchLayout& layout,
             Forward* f) const {
    const int64_t tokens = limits.max_tokens;
    const auto take = [&](FloatView Forward::*view, int64_t rows, int64_t cols) {
      const FloatView taken = layout.Take(rows, cols);
      if (f != nullptr) f->*view = taken;
    };
    for (const auto view : {&Forward::hidden_, &Forward::normed_, &Forward::block_out_}) {
      take(view, tokens, spec.hidden_size);
    }
    take(&Forward::q_, tokens, q);
    take(&Forward::k_, tokens, kv);
    take(&Forward::v_, tokens, kv);
    take(&Forward::attended_, tokens, q);
    if (!limits.ffn_of_neurons) {
      take(&Forward::gate_, tokens, ffn);
      take(&Forward::up_, tokens, ffn);
    }
    if (experts > 0) {
      take(&Forward::gathered_, tokens, spec.hidden_size);
      take(&Forward::expert_out_, tokens, spec.hidden_size);
      take(&Forward::router_, tokens, experts);
    }
    take(&Forward::cos_, tokens, spec.rope.dims / 2);
    take(&Forward::sin_, tokens, spec.rope.dims / 2);
    const AttentionScratch attention =
        AttentionScratchFor(LayoutFor(spec, limits.kv_dtype),
                            spec.layers.front().attention.num_heads, limits.max_context, threads);
    take(&Forward::attention_scratch_, threads, attention.thread_floats);
    take(&Forward::attention_partial_, 1, attention.partial_floats);
  }
};

KvLayout Forward::LayoutFor(const ModelSpec& spec, DType kv_dtype) {
  // Families differ in width between models, not between the layers of one.
  const AttentionSpec& attention = spec.layers.front().attention;
  return {.dtype = kv_dtype,
          .num_layers = spec.num_layers,
          .num_kv_heads = attention.num_kv_heads,
          .head_dim = attention.head_dim};
}

int64_t Forward::TokensOfQuery(const ForwardLimits& limits) {
  return limits.ffn_of_neurons ? std::min(limits.max_tokens, kSelectTokens) : limits.max_tokens;
}

uint64_t Forward::ChargedBytes(const ModelSpec& spec, const ForwardLimits& limits, int threads) {
  const Sizes sizes(spec);
  ScratchLayout layout(nullptr);
  sizes.Place(spec, limits, threads, layout, nullptr);
  ScratchLayout logits(nullptr);
  logits.Take(kMaxLogitRows, spec.vocab_size);
  return Buffer::ChargedBytes(layout.bytes()) + Buffer::ChargedBytes(logits.bytes()) +
         MatMulInput::ChargedBytes(limits.max_tokens, sizes.WidestInput(limits)) +
         (limits.ffn_of_neurons ? SparseFfn::ChargedBytes(spec.hidden_size, sizes.ffn) +
                                      SparsePrefill::ChargedBytes(sizes.PrefillOf(limits, threads))
                                : 0) +
         (sizes.HasBatch(limits) ? SparseBatch::ChargedBytes(sizes.BatchOf(limits)) : 0);
}

Forward::Forward(const ModelSpec& spec, const ModelWeights& weights, Compute& compute,
                 Budget& budget, const ForwardLimits& limits, const StreamedWeights& streamed)
    : spec_(spec),
      weights_(weights),
      compute_(compute),
      limits_(limits),
      streamed_(streamed.neurons),
      matrices_(streamed.matrices),
      input_(budget, limits.max_tokens, Sizes(spec).WidestInput(limits)) {
  const Sizes sizes(spec);
  ScratchLayout count(nullptr);
  sizes.Place(spec, limits, compute.threads(), count, nullptr);
  scratch_ = Buffer(budget, "activations", count.bytes());
  ScratchLayout layout(scratch_.data());
  sizes.Place(spec, limits, compute.threads(), layout, this);
  ScratchLayout logits_count(nullptr);
  logits_count.Take(kMaxLogitRows, spec.vocab_size);
  logits_memory_ = Buffer(budget, "logits", logits_count.bytes());
  ScratchLayout logits_layout(logits_memory_.data());
  logits_ = logits_layout.Take(kMaxLogitRows, spec.vocab_size);

  if (limits.ffn_of_neurons) {
    neurons_.emplace(budget, spec.hidden_size, sizes.ffn);
    prefill_.emplace(budget, sizes.PrefillOf(limits, compute.threads()));
  }
  if (sizes.HasBatch(limits)) batch_.emplace(budget, sizes.BatchOf(limits));

  const auto max_tokens = static_cast<size_t>(limits.max_tokens);
  all_rows_.resize(max_tokens);
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
  expert_loads_.resize(static_cast<size_t>(sizes.experts));
  expert_outputs_.resize(static_cast<size_t>(sizes.experts));
  std::span<const float> factors;
  if (!weights.rope_factors.empty()) {
    factors = {Floats(weights.rope_factors), static_cast<size_t>(spec.rope.dims / 2)};
  }
  rope_frequencies_ = RopeFrequencies(spec.rope, factors);
}

void Forward::CheckBatch(std::span<const BatchSequence> batch) const {
  int64_t rows = 0;
  for (const BatchSequence& sequence : batch) {
    const auto count = static_cast<int64_t>(sequence.tokens.size());
    if (count == 0) {
      throw Error(ErrorCode::kInvalidArgument, "batch", "a sequence without tokens");
    }
    rows += count;
    if (sequence.kv->length() + count > limits_.max_context) {
      throw Error(ErrorCode::kContextFull, "context", "tokens",
                  "at most " + std::to_string(limits_.max_context),
                  std::to_string(sequence.kv->length() + count));
    }
    for (const BatchSequence& other : batch) {
      if (&other != &sequence && other.kv == sequence.kv) {
        throw Error(ErrorCode::kInvalidArgument, "batch", "a sequence appears twice");
      }
    }
    for (const TokenId token : sequence.tokens) {
      if (token < 0 || token >= spec_.vocab_size) {
        throw Error(ErrorCode::kInvalidArgument, "batch", "token id",
                    "below " + std::to_string(spec_.vocab_size), std::to_string(token));
      }
    }
  }
  if (rows == 0 || rows > limits_.max_tokens) {
    throw Error(ErrorCode::kInvalidArgument, "batch", "tokens",
                "1 to " + std::to_string(limits_.max_tokens), std::to_string(rows));
  }
}

// Takes the tokens of the first `placed` sequences out of their caches again.
void Forward::RemoveBatch(std::span<const BatchSequence> batch, size_t placed) {
  for (size_t i = 0; i < placed; ++i) {
    KvSequence& kv = *batch[i].kv;
    kv.Truncate(kv.length() - static_cast<int64_t>(batch[i].tokens.size()));
  }
}

void Forward::PlaceBatch(std::span<const BatchSequence> batch) {
  size_t placed = 0;
  try {
    for (; placed < batch.size(); ++placed) {
      batch[placed].kv->Append(static_cast<int64_t>(batch[placed].tokens.size()));
    }
  } catch (...) {
    RemoveBatch(batch, placed);
    throw;
  }
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  pages_.clear();
  for (const BatchSequence& sequence : batch) {
    const auto count = static_cast<int64_t>(sequence.tokens.size());
    const int64_t first = sequence.kv->length() - count;
    for (int64_t i = 0; i < count; ++i) {
      tokens_.push_back(sequence.tokens[static_cast<size_t>(i)]);
      positions_.push_back(first + i);
      sequences_.push_back(sequence.kv);
      pages_.push_back(sequence.kv->pages());
    }
  }
  num_rows_ = static_cast<int64_t>(tokens_.size());
  is_decoding_ = std::ssize(batch) == num_rows_;
}

int64_t Forward::ChunkOf(int64_t left, int64_t most) {
  if (left <= most) return left;
  const int64_t rest = left - most;
  if (rest >= kPrefillTokens || most < 2 * kPrefillTokens) return most;
  return left - kPrefillTokens;
}

void Forward::ComputeAngles() {
  compute_.team().ParallelFor(num_rows_, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const auto position = static_cast<double>(positions_[static_cast<size_t>(r)]);
      for (int64_t i = 0; i < cos_.cols; ++i) {
        const double angle = position * rope_frequencies_[static_cast<size_t>(i)];
        cos_.row(r)[i] = static_cast<float>(std::cos(angle) * spec_.rope.attention_factor);
        sin_.row(r)[i] = static_cast<float>(std::sin(angle) * spec_.rope.attention_factor);
      }
    }
  });
}

void Forward::Run(std::span<const BatchSequence> batch, ActivationSelector& selector,
                  ForwardObserver* observer) {
  // Elsewhere nobody sleeps for long, and a caller that may move gets away from other programs.
  std::optional<WorkerTeam::CallerPin> pin;
  if (streamed_ != nullptr || matrices_ != nullptr) pin.emplace(compute_.team());
  CheckBatch(batch);
  PlaceBatch(batch);
  selector_ = &selector;
  observer_ = observer;
  try {
    RunLayers();
  } catch (...) {
    // Only streaming can fail from here on, or nobody wants the result.
    RemoveBatch(batch, batch.size());
    throw;
  }
}

void Forward::RunLayers() {
  // Lists of more sequences than are computed together are not guessed together either.
  const bool is_together = is_decoding_ && num_rows_ <= limits_.tokens_together;
  if (streamed_ != nullptr) streamed_->BeginPass(is_together ? num_rows_ : 0);
  if (matrices_ != nullptr) matrices_->BeginPass();
  laps_.Start();
  ComputeAngles();
  LookUpRows(compute_, weights_.token_embedding, tokens_, Rows(hidden_));
  laps_.Lap(ForwardOp::kEmbedding);
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    if (is_unwanted_ && is_unwanted_()) {
      throw Error(ErrorCode::kCancelled, "batch", "nobody waits for it any more");
    }
    AttentionBlock(layer);
    FfnBlock(layer);
  }
  if (streamed_ != nullptr) streamed_->EndToken();
  if (matrices_ != nullptr) matrices_->EndPass();
  RmsNorm(compute_, Rows(hidden_), Floats(weights_.output_norm), spec_.layers.back().norm_epsilon,
          Rows(normed_));
  laps_.Lap(ForwardOp::kNorm);
}

FloatView Forward::Logits(int64_t first, int64_t count) {
  if (first < 0 || count < 1 || count > kMaxLogitRows || first + count > num_rows_) {
    throw Error(ErrorCode::kInternal, "Logits", "rows outside the last batch");
  }
  laps_.Start();
  const FloatView out = logits_.Rows(0, count);
  input_.Set(normed_.Rows(first, count));
  const Product head{weights_.output, out};
  MatMul(compute_, {&head, 1}, input_);
  laps_.Lap(ForwardOp::kLogits);
  return out;
}

// hidden += W_o attention(rope(W_q x), rope(W_k x), W_v x), x = norm(hidden).
void Forward::AttentionBlock(int64_t layer) {
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
  const AttentionSpec& attention = spec.attention;
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const FloatView x = Rows(normed_), q = Rows(q_), k = Rows(k_), v = Rows(v_);
  const FloatView cos = Rows(cos_), sin = Rows(sin_);

  RmsNorm(compute_, Rows(hidden_), Floats(w.attn_norm), spec.norm_epsilon, x);
  laps_.Lap(ForwardOp::kNorm);
  input_.Set(x);
  const Product qkv[] = {{w.attn_q, q, Floats(w.attn_q_bias)},
                         {w.attn_k, k, Floats(w.attn_k_bias)},
                         {w.attn_v, v, Floats(w.attn_v_bias)}};
  MatMul(compute_, qkv, input_);
  laps_.Lap(ForwardOp::kAttentionQkv);
  if (streamed_ != nullptr) streamed_->PollAhead();
  if (attention.qk_norm) {
    RmsNormHeads(compute_, q, attention.num_heads, attention.head_dim, Floats(w.attn_q_norm),
                 spec.norm_epsilon);
    RmsNormHeads(compute_, k, attention.num_kv_heads, attention.head_dim, Floats(w.attn_k_norm),
                 spec.norm_epsilon);
    laps_.Lap(ForwardOp::kNorm);
  }
  Rope(compute_, q, attention.num_heads, attention.head_dim, cos, sin, spec_.rope.layout);
  Rope(compute_, k, attention.num_kv_heads, attention.head_dim, cos, sin, spec_.rope.layout);
  Scale(compute_, q, static_cast<float>(attention.query_scale));
  laps_.Lap(ForwardOp::kRope);
  StoreKv(layer, k, v);
  const KvLayout layout = sequences_.front()->layout();
  Attention(compute_, {.layout = &layout,
                       .layer = layer,
                       .num_heads = attention.num_heads,
                       .sliding_window = attention.sliding_window,
                       .q = q,
                       .out = Rows(attended_),
                       .positions = positions_,
                       .pages = pages_,
                       .scratch = attention_scratch_,
                       .partial = attention_partial_});
  laps_.Lap(ForwardOp::kAttention);
  if (streamed_ != nullptr) streamed_->PollAhead();
  input_.Set(Rows(attended_));
  const Product output{w.attn_output, Rows(block_out_), Floats(w.attn_output_bias)};
  MatMul(compute_, {&output, 1}, input_);
  laps_.Lap(ForwardOp::kAttentionOutput);
  if (streamed_ != nullptr) streamed_->PollAhead();
  Add(compute_, Rows(hidden_), Rows(block_out_));
  laps_.Lap(ForwardOp::kResidual);
}

void Forward::StoreKv(int64_t layer, FloatView k, FloatView v) {
  const auto to_half = compute_.to_half();
  compute_.team().ParallelFor(num_rows_, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      sequences_[static_cast<size_t>(r)]->Store(layer, positions_[static_cast<size_t>(r)], k.row(r),
                                                v.row(r), to_half);
    }
  });
  laps_.Lap(ForwardOp::kKvStore);
}

// hidden += ffn(norm(hidden)).
void Forward::FfnBlock(int64_t layer) {
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  RmsNorm(compute_, Rows(hidden_), Floats(w.ffn_norm), spec.norm_epsilon, Rows(normed_));
  laps_.Lap(ForwardOp::kNorm);
  if (spec.ffn.num_experts == 0) {
    DenseFfn(layer);
  } else {
    ExpertFfn(layer);
  }
  Add(compute_, Rows(hidden_), Rows(block_out_));
  laps_.Lap(ForwardOp::kResidual);
}

}  // namespace hearth
