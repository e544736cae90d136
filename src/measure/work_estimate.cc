#include "measure/work_estimate.h"

#include <algorithm>
#include <cmath>

namespace hearth {
namespace {

// Adds up one pass.
class Estimate {
 public:
  explicit Estimate(int64_t tokens) : tokens_(static_cast<double>(tokens)) {}

  void Vector(PassOp op, const WeightView& vector) {
    if (vector.rows > 0) At(op).bytes += static_cast<double>(vector.expert_bytes());
  }

  // A matrix that every token is multiplied with.
  void Matrix(PassOp op, const WeightView& matrix) { Matrices(op, matrix, 1, tokens_); }

  // Rows of single neurons: `per_token` of each token, of `all` there are.
  void Rows(PassOp op, const RowsView& rows, double per_token, double all) {
    OpWork& work = At(op);
    work.bytes += std::min(per_token * tokens_, all) * static_cast<double>(rows.row_bytes());
    const double macs = per_token * tokens_ * static_cast<double>(rows.cols);
    if (!HasRowGroups(rows.dtype)) {
      work.float_macs += macs;
    } else if (op == PassOp::kFfnGateUp) {
      work.int8_macs += macs;
    }
  }

  // Of a matrix per expert: `read` different ones, `products` vectors multiplied in all.
  void Matrices(PassOp op, const WeightView& matrix, double read, double products) {
    OpWork& work = At(op);
    work.bytes += read * static_cast<double>(matrix.expert_bytes());
    const double macs = products * static_cast<double>(matrix.rows * matrix.cols);
    (InfoOf(matrix.dtype).block_size > 1 ? work.int8_macs : work.float_macs) += macs;
  }

  OpWork& At(PassOp op) { return work_[static_cast<size_t>(op)]; }
  const WorkByOp& work() const { return work_; }

 private:
  const double tokens_;
  WorkByOp work_{};
};

// How many experts are read, and how many vectors are multiplied with one, where there are experts.
struct ExpertLoadEstimate {
  double read = 1;
  double products;

  ExpertLoadEstimate(const FfnSpec& spec, int64_t tokens) : products(static_cast<double>(tokens)) {
    if (spec.num_experts == 0) return;
    const auto all = static_cast<double>(spec.num_experts);
    const auto chosen = static_cast<double>(spec.num_experts_per_token);
    read = tokens == 1 ? chosen : all * (1 - std::pow(1 - chosen / all, products));
    products *= chosen;
  }
};

double VisiblePositions(const AttentionSpec& attention, const EstimatedPass& pass) {
  int64_t positions = pass.context + pass.tokens;
  if (attention.sliding_window > 0) {
    positions = std::min(positions, attention.sliding_window + pass.tokens - 1);
  }
  return static_cast<double>(positions);
}

void AddAttention(const AttentionSpec& spec, const LayerWeights& w, const EstimatedPass& pass,
                  Estimate& estimate) {
  estimate.Vector(PassOp::kNorm, w.attn_norm);
  estimate.Matrix(PassOp::kAttentionQkv, w.attn_q);
  estimate.Matrix(PassOp::kAttentionQkv, w.attn_k);
  estimate.Matrix(PassOp::kAttentionQkv, w.attn_v);
  estimate.Matrix(PassOp::kAttentionOutput, w.attn_output);
  const KvLayout layout{.codec = pass.kv_codec,
                        .num_layers = 1,
                        .num_kv_heads = spec.num_kv_heads,
                        .head_dim = spec.head_dim};
  const auto position_bytes = static_cast<double>(layout.token_bytes());
  estimate.At(PassOp::kAttention).bytes += VisiblePositions(spec, pass) * position_bytes;
}

void AddFfn(const FfnSpec& spec, const LayerWeights& w, int64_t tokens, double experts_here,
            Estimate& estimate) {
  estimate.Vector(PassOp::kNorm, w.ffn_norm);
  if (spec.num_experts > 0) estimate.Matrix(PassOp::kRouter, w.ffn_router);
  estimate.Matrix(PassOp::kFfnGateUp, w.shared_gate);
  estimate.Matrix(PassOp::kFfnGateUp, w.shared_up);
  estimate.Matrix(PassOp::kFfnDown, w.shared_down);
  if (w.has_rows()) return;
  ExpertLoadEstimate load(spec, tokens);
  if (spec.num_experts > 0) {
    load.read *= experts_here;
    load.products *= experts_here;
  }
  estimate.Matrices(PassOp::kFfnGateUp, w.ffn_gate, load.read, load.products);
  estimate.Matrices(PassOp::kFfnGateUp, w.ffn_up, load.read, load.products);
  estimate.Matrices(PassOp::kFfnDown, w.ffn_down, load.read, load.products);
}

void AddPredictor(const FfnSpec& spec, const ModelPredictors::Layer& predictor, int64_t tokens,
                  Estimate& estimate) {
  if (predictor.down.rows == 0) return;
  const ExpertLoadEstimate load(spec, tokens);
  for (const WeightView* matrix : {&predictor.down, &predictor.up}) {
    estimate.Matrices(PassOp::kFfnPredictor, *matrix, load.read, load.products);
  }
}

// All layers have rows of the same types.
void AddNeurons(const ModelWeights& weights, const FfnActivity& ffn, Estimate& estimate) {
  double all = 0;
  for (const LayerWeights& layer : weights.layers) {
    all += static_cast<double>(layer.gate_rows.rows * layer.gate_rows.experts);
  }
  const LayerWeights& w = weights.main_layer();
  estimate.Rows(PassOp::kFfnGateUp, w.gate_rows, ffn.gate, all);
  if (w.up_rows.rows > 0) estimate.Rows(PassOp::kFfnGateUp, w.up_rows, ffn.up, all);
  estimate.Rows(PassOp::kFfnDown, w.down_rows, ffn.down, all);
}

}  // namespace

OpWork& OpWork::operator+=(const OpWork& other) {
  bytes += other.bytes;
  int8_macs += other.int8_macs;
  float_macs += other.float_macs;
  return *this;
}

WorkByOp EstimatePass(const ModelSpec& spec, const ModelWeights& weights,
                      const EstimatedPass& pass) {
  Estimate estimate(pass.tokens);
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    AddAttention(spec.layers[l].attention, weights.layers[l], pass, estimate);
    AddFfn(spec.layers[l].ffn, weights.layers[l], pass.tokens,
           pass.ffn.experts_here.empty() ? 1 : pass.ffn.experts_here[l], estimate);
    if (pass.ffn.predictors != nullptr) {
      AddPredictor(spec.layers[l].ffn, pass.ffn.predictors->layers[l], pass.tokens, estimate);
    }
  }
  if (weights.ffns_have_rows()) AddNeurons(weights, pass.ffn, estimate);
  estimate.Vector(PassOp::kNorm, weights.output_norm);
  if (pass.logit_rows > 0) {
    estimate.Matrices(PassOp::kLogits, weights.output, 1, static_cast<double>(pass.logit_rows));
  }
  return estimate.work();
}

WorkByOp EstimatePrompt(const ModelSpec& spec, const ModelWeights& weights, int64_t tokens,
                        int64_t batch_tokens, KvCodec kv_codec, const FfnActivity& ffn) {
  WorkByOp sum{};
  for (int64_t done = 0; done < tokens; done += batch_tokens) {
    const int64_t count = std::min(batch_tokens, tokens - done);
    const EstimatedPass pass{.tokens = count,
                             .context = done,
                             .logit_rows = done + count == tokens ? 1 : 0,
                             .kv_codec = kv_codec,
                             .ffn = ffn};
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
