#include "sparsity/predictor_selector.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/experts.h"

namespace hearth {
namespace {

// Neurons that one thread compacts at a time for a single token: some microseconds of work.
constexpr int64_t kRangeNeurons = 2048;

// Widths of the scratch matrices, 0 where no layer has a predictor.
struct Sizes {
  int64_t hidden = 0;
  int64_t rank = 0;
  int64_t neurons = 0;
  bool gathers = false;  // rows of the residual that one expert's tokens need

  Sizes(const ModelSpec& model, const PredictorSpec& spec) {
    for (size_t l = 0; l < spec.ranks.size(); ++l) {
      if (spec.ranks[l] == 0) continue;
      const FfnSpec& ffn = model.layers[l].ffn;
      hidden = model.hidden_size;
      rank = std::max(rank, spec.ranks[l]);
      neurons = std::max(neurons, ffn.intermediate_size);
      gathers |= ffn.num_experts > 0 && spec.input == PredictorInput::kResidual;
    }
  }
  int64_t ranges() const { return (neurons + kRangeNeurons - 1) / kRangeNeurons; }
  PredictorWidths widths() const { return {hidden, rank, neurons}; }
  int64_t gathered_floats() const { return gathers ? hidden : 0; }
  // Rounded up, so that every part begins on a cache line. Ids are as long as floats.
  static size_t PartBytes(int64_t tokens, int64_t width) {
    return (static_cast<size_t>(tokens * width) * sizeof(float) + 63) / 64 * 64;
  }
  size_t ScratchBytes(int64_t tokens) const {
    return PartBytes(tokens, gathered_floats()) + PartBytes(tokens, rank) +
           2 * PartBytes(tokens, neurons);
  }
};

}  // namespace

PredictorSelector::PredictorSelector(const ModelSpec& model, const ModelPredictors& predictors,
                                     Compute& compute, Budget& budget, int64_t max_tokens,
                                     int64_t tokens_together)
    : predictors_(predictors),
      compute_(compute),
      max_tokens_(max_tokens),
      hidden_input_(budget, max_tokens, Sizes(model, predictors.spec).hidden),
      inner_input_(budget, max_tokens, Sizes(model, predictors.spec).rank),
      counts_(static_cast<size_t>(model.num_layers)),
      guess_(Sizes(model, predictors.spec).widths(), tokens_together, compute, budget) {
  for (const ModelPredictors::Layer& layer : predictors.layers) {
    if (layer.down.empty() != layer.up.empty() || layer.down.empty() != layer.bias.empty() ||
        layer.down.rows != layer.up.cols || layer.bias.cols != layer.up.rows) {
      throw Error(ErrorCode::kInternal, "PredictorSelector", "views of a predictor do not fit");
    }
  }
  const Sizes sizes(model, predictors.spec);
  scratch_ = Buffer(budget, "activations", sizes.ScratchBytes(max_tokens));
  std::byte* at = scratch_.data();
  const auto take = [&](int64_t width) {
    std::byte* part = at;
    at += Sizes::PartBytes(max_tokens, width);
    return part;
  };
  gathered_ = reinterpret_cast<float*>(take(sizes.gathered_floats()));
  inner_ = reinterpret_cast<float*>(take(sizes.rank));
  logits_ = reinterpret_cast<float*>(take(sizes.neurons));
  lists_ = reinterpret_cast<int32_t*>(take(sizes.neurons));
  range_counts_.resize(static_cast<size_t>(std::max(sizes.ranges(), max_tokens)));
}

uint64_t PredictorSelector::ChargedBytes(const ModelSpec& model, const PredictorSpec& spec,
                                         int64_t max_tokens, int64_t tokens_together) {
  const Sizes sizes(model, spec);
  return MatMulInput::ChargedBytes(max_tokens, sizes.hidden) +
         MatMulInput::ChargedBytes(max_tokens, sizes.rank) +
         Buffer::ChargedBytes(sizes.ScratchBytes(max_tokens)) +
         PredictorGuess::ChargedBytes(sizes.widths(), tokens_together);
}

void PredictorSelector::ResetCounts() {
  std::fill(counts_.begin(), counts_.end(), PredictionCounts{});
}

FloatView PredictorSelector::InputRows(const SelectionQuery& query) {
  if (predictors_.spec.input == PredictorInput::kFfnInput) return query.ffn_input;
  const auto count = static_cast<int64_t>(query.tokens.size());
  const int64_t first = query.tokens.front();
  if (query.tokens.back() - first + 1 == count) return query.residual.Rows(first, count);
  const FloatView rows{gathered_, count, query.residual.cols, query.residual.cols};
  GatherRows(query.residual, query.tokens, rows);
  return rows;
}

void PredictorSelector::Select(const SelectionQuery& query, ActiveSets& out) {
  const PredictorView predictor = predictors_.At(query.layer, query.expert);
  const bool is_on_device = IsOnDevice(query.layer);
  if (predictor.empty() && !is_on_device) {
    out.SetAll();
    return;
  }
  const auto tokens = static_cast<int64_t>(query.tokens.size());
  if (tokens > max_tokens_) {
    throw Error(ErrorCode::kInternal, "PredictorSelector", "more tokens than were planned for");
  }
  const int64_t neurons = is_on_device ? on_device_->neurons(query.layer) : predictor.up.rows;
  const FloatView logits{logits_, tokens, neurons, neurons};
  if (is_on_device) {
    on_device_->Ask(query.layer, InputRows(query), logits);
  } else {
    Ask(predictor, query, logits);
  }
  const auto lists = out.ResetLists(query.tokens.size());
  // What is on a device has no experts.
  const float threshold = is_on_device
                              ? predictors_.spec.thresholds[static_cast<size_t>(query.layer)]
                              : predictor.threshold;
  Compact(threshold, logits, lists);
  if (query.is_guess) return;
  PredictionCounts& counts = counts_[static_cast<size_t>(query.layer)];
  counts.neurons += static_cast<uint64_t>(tokens * neurons);
  for (const auto& list : lists) counts.predicted += list.size();
}

// With the processor's kernels.
void PredictorSelector::Ask(const PredictorView& predictor, const SelectionQuery& query,
                            FloatView logits) {
  const int64_t tokens = logits.rows, rank = predictor.rank();
  const FloatView inner{inner_, tokens, rank, rank};
  hidden_input_.Set(InputRows(query));
  const Product down{predictor.down, inner};
  MatMul(compute_, {&down, 1}, hidden_input_);
  if (predictor.relu) {
    for (float* x = inner_; x < inner_ + tokens * rank; ++x) *x = std::max(*x, 0.0f);
  }
  inner_input_.Set(inner);
  const Product up{predictor.up, logits, reinterpret_cast<const float*>(predictor.bias.data)};
  MatMul(compute_, {&up, 1}, inner_input_);
}

ListGuess* PredictorSelector::BeginGuess(const SelectionQuery& query) {
  const PredictorView predictor = predictors_.At(query.layer, query.expert);
  if (predictor.empty()) return nullptr;
  if (std::ssize(query.tokens) > guess_.max_tokens()) {
    throw Error(ErrorCode::kInternal, "PredictorSelector", "a guess for more tokens than planned");
  }
  guess_.Begin(predictor, InputRows(query));
  return &guess_;
}

// A single token is split into ranges of neurons, whose lists are joined in order; several tokens
// are split among themselves.
void PredictorSelector::Compact(float threshold, FloatView logits,
                                std::span<std::span<const int32_t>> lists) {
  const int64_t neurons = logits.cols;
  const int64_t range = logits.rows == 1 ? kRangeNeurons : neurons;
  const int64_t ranges = (neurons + range - 1) / range;
  compute_.team().ParallelFor(logits.rows * ranges, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = i / ranges, first = i % ranges * range;
      range_counts_[static_cast<size_t>(i)] =
          ListAbove(logits.row(token), first, std::min(first + range, neurons), threshold,
                    lists_ + token * neurons + first);
    }
  });
  for (int64_t token = 0; token < logits.rows; ++token) {
    int32_t* list = lists_ + token * neurons;
    int64_t count = range_counts_[static_cast<size_t>(token * ranges)];
    for (int64_t r = 1; r < ranges; ++r) {
      const int64_t found = range_counts_[static_cast<size_t>(token * ranges + r)];
      std::memmove(list + count, list + r * range, static_cast<size_t>(found) * sizeof(int32_t));
      count += found;
    }
    lists[static_cast<size_t>(token)] = {list, static_cast<size_t>(count)};
  }
}

}  // namespace hearth
