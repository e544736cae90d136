#include "engine/work_estimate.h"

#include <algorithm>
#include <cmath>

namespace hearth {
namespace {

// Adds up one pass.
class Estimate {
 public:
  explicit Estimate(int64_t tokens) : tokens_(static_cast<double>(tokens)) {}

  void Vector(ForwardOp op, const WeightView& vector) {
    if (!vector.empty()) At(op).bytes += static_cast<double>(vector.expert_bytes());
  }

  // A matrix that every token is multiplied with.
  void Matrix(ForwardOp op, const WeightView& matrix) { Matrices(op, matrix, 1, tokens_); }

  // Of a matrix per expert: `read` different ones, `products` vectors multiplied in all.
  void Matrices(ForwardOp op, const WeightView& matrix, double read, double products) {
    OpWork& work = At(op);
    work.bytes += read * static_cast<double>(matrix.expert_bytes());
    if (InfoOf(matrix.dtype).block_size > 1) {
      work.int8_macs += products * static_cast<double>(matrix.rows * matrix.cols);
    }
  }

  OpWork& At(ForwardOp op) { return work_[static_cast<size_t>(op)]; }
  const WorkByOp& work() const { return work_; }

 private:
  const double tokens_;
  WorkByOp work_{};
};

double VisiblePositions(const AttentionSpec& attention, const PassShape& pass) {
  int64_t positions = pass.context + pass.tokens;
  if (attention.sliding_window > 0) {
    positions = std::min(positions, attention.sliding_window + pass.tokens - 1);
  }
  return static_cast<double>(positions);
}

void AddAttention(const AttentionSpec& spec, const LayerWeights& w, const PassShape& pass,
                  Estimate& estimate) {
  estimate.Vector(ForwardOp::kNorm, w.attn_norm);
  estimate.Matrix(ForwardOp::kAttentionQkv, w.attn_q);
  estimate.Matrix(ForwardOp::kAttentionQkv, w.attn_k);
  estimate.Matrix(ForwardOp::kAttentionQkv, w.attn_v);
  estimate.Matrix(ForwardOp::kAttentionOutput, w.attn_output);
  const double position_bytes = static_cast<double>(
      2 * RowBytes(pass.kv_dtype, static_cast<size_t>(spec.num_kv_heads * spec.head_dim)));
  estimate.At(ForwardOp::kAttention).bytes += VisiblePositions(spec, pass) * position_bytes;
}

void AddFfn(const FfnSpec& spec, const LayerWeights& w, int64_t tokens, Estimate& estimate) {
  estimate.Vector(ForwardOp::kNorm, w.ffn_norm);
  double read = 1;
  double products = static_cast<double>(tokens);
  if (spec.num_experts > 0) {
    estimate.Matrix(ForwardOp::kRouter, w.ffn_router);
    const auto all = static_cast<double>(spec.num_experts);
    const auto chosen = static_cast<double>(spec.num_experts_per_token);
    read = tokens == 1 ? chosen : all * (1 - std::pow(1 - chosen / all, products));
    products *= chosen;
  }
  estimate.Matrices(ForwardOp::kFfnGateUp, w.ffn_gate, read, products);
  estimate.Matrices(ForwardOp::kFfnGateUp, w.ffn_up, read, products);
  estimate.Matrices(ForwardOp::kFfnDown, w.ffn_down, read, products);
}

}  // namespace

OpWork& OpWork::operator+=(const OpWork& other) {
  bytes += other.bytes;
  int8_macs += other.int8_macs;
  return *this;
}

WorkByOp EstimatePass(const ModelSpec& spec, const ModelWeights& weights, const PassShape& pass) {
  Estimate estimate(pass.tokens);
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    AddAttention(spec.layers[l].attention, weights.layers[l], pass, estimate);
    AddFfn(spec.layers[l].ffn, weights.layers[l], pass.tokens, estimate);
  }
  estimate.Vector(ForwardOp::kNorm, weights.output_norm);
  if (pass.logit_rows > 0) {
    estimate.Matrices(ForwardOp::kLogits, weights.output, 1, static_cast<double>(pass.logit_rows));
  }
  return estimate.work();
}

WorkByOp EstimatePrompt(const ModelSpec& spec, const ModelWeights& weights, int64_t tokens,
                        int64_t batch_tokens, DType kv_dtype) {
  WorkByOp sum{};
  for (int64_t done = 0; done < tokens; done += batch_tokens) {
    const int64_t count = std::min(batch_tokens, tokens - done);
    const PassShape pass{.tokens = count,
                         .context = done,
                         .logit_rows = done + count == tokens ? 1 : 0,
                         .kv_dtype = kv_dtype};
    const WorkByOp work = EstimatePass(spec, weights, pass);
    for (size_t op = 0; op < sum.size(); ++op) sum[op] += work[op];
  }
  return sum;
}

OpWork Total(const WorkByOp& work) {
  OpWork total;
  for (const OpWork& part : work) total += part;
  return total;
}

double FloorSeconds(const OpWork& work, double bytes_per_second, double int8_macs_per_second) {
  const double read = bytes_per_second > 0 ? work.bytes / bytes_per_second : 0;
  const double compute = int8_macs_per_second > 0 ? work.int8_macs / int8_macs_per_second : 0;
  return std::max(read, compute);
}

}  // namespace hearth
