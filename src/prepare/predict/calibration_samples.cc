#include "prepare/predict/calibration_samples.h"

#include <algorithm>

#include "engine/session/text_windows.h"
#include "tensor/half.h"

namespace hearth {
namespace {

constexpr const char* kLedgerName = "calibration samples";

size_t RowsBytes(int64_t tokens, int64_t hidden) {
  return static_cast<size_t>(tokens * hidden) * sizeof(uint16_t);
}

void ToHalf(const float* in, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = FloatToHalf(in[i]);
}

class Collector : public PassObserver {
 public:
  Collector(int64_t first, std::span<LayerSamples> layers) : first_(first), layers_(layers) {}

  // The rows of the next pass: BOS, which no sample is kept of, and then tokens of the text.
  void StartPass(int64_t first_token, int64_t skipped_rows) {
    first_token_ = first_token;
    skipped_rows_ = skipped_rows;
  }

  void OnFfnInput(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                  FloatView residual, FloatView input) override {
    const int64_t index = layer - first_;
    if (index < 0 || index >= static_cast<int64_t>(layers_.size())) return;
    int64_t skip = 0;
    while (skip < input.rows && tokens[static_cast<size_t>(skip)] < skipped_rows_) ++skip;
    layers_[static_cast<size_t>(index)].Add(expert, first_token_ - skipped_rows_,
                                            tokens.subspan(static_cast<size_t>(skip)), residual,
                                            input.Rows(skip, input.rows - skip));
  }

 private:
  int64_t first_;
  std::span<LayerSamples> layers_;
  int64_t first_token_ = 0;
  int64_t skipped_rows_ = 0;
};

}  // namespace

LayerSamples::LayerSamples(Budget& budget, int64_t tokens, int64_t hidden, int64_t experts,
                           bool keeps_residual)
    : tokens_(tokens),
      hidden_(hidden),
      input_(budget, kLedgerName, RowsBytes(tokens, hidden)),
      residual_(budget, kLedgerName, keeps_residual ? RowsBytes(tokens, hidden) : 0),
      tokens_of_(static_cast<size_t>(std::max<int64_t>(experts, 1))) {}

uint64_t LayerSamples::ChargedBytes(int64_t tokens, int64_t hidden, bool keeps_residual) {
  return Buffer::ChargedBytes(RowsBytes(tokens, hidden)) * (keeps_residual ? 2 : 1);
}

void LayerSamples::Add(int64_t expert, int64_t first_token, std::span<const int64_t> batch_tokens,
                       FloatView residual, FloatView input) {
  const auto row = [&](Buffer& buffer, int64_t token) {
    return reinterpret_cast<uint16_t*>(buffer.data()) + token * hidden_;
  };
  for (size_t i = 0; i < batch_tokens.size(); ++i) {
    const int64_t token = first_token + batch_tokens[i];
    tokens_of_[static_cast<size_t>(expert)].push_back(token);
    // Every expert of a token gets the same row.
    ToHalf(input.row(static_cast<int64_t>(i)), hidden_, row(input_, token));
    if (residual_.size_bytes() > 0) {
      ToHalf(residual.row(batch_tokens[i]), hidden_, row(residual_, token));
    }
  }
}

void LayerSamples::Read(PredictorInput which, std::span<const int64_t> tokens,
                        FloatView out) const {
  const Buffer& from = which == PredictorInput::kResidual ? residual_ : input_;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto* row = reinterpret_cast<const uint16_t*>(from.data()) + tokens[i] * hidden_;
    float* to = out.row(static_cast<int64_t>(i));
    for (int64_t c = 0; c < hidden_; ++c) to[c] = HalfToFloat(row[c]);
  }
}

void CollectSamples(Engine& engine, std::span<const TokenId> tokens, int64_t first,
                    std::span<LayerSamples> layers, const SampleProgressFn& progress) {
  const TokenId bos = engine.model().tokenizer().special().bos;
  const int64_t extra = bos >= 0 ? 1 : 0;
  const TextWindows windows(tokens, bos, engine.context());
  Collector collector(first, layers);
  DenseSelector dense;
  int64_t done = 0;  // tokens of the text, BOS left out
  for (uint64_t i = 0; i < windows.size(); ++i) {
    const std::vector<TokenId> window = windows.Window(i);
    KvSequence kv(engine.kv_pool());
    collector.StartPass(done, extra);
    RunInChunks(engine.pass(), kv, window, dense, &collector, [&](size_t begin, size_t count) {
      done += static_cast<int64_t>(count) - (begin == 0 ? extra : 0);
      collector.StartPass(done, 0);
      if (progress) progress(done, static_cast<int64_t>(tokens.size()));
      return true;
    });
  }
}

}  // namespace hearth
