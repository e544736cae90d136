#include "accel/device_predictors.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hearth::accel {
namespace {

uint64_t BytesOf(const DevicePredictorsShape& shape, int64_t width) {
  return static_cast<uint64_t>(shape.max_tokens * width) * sizeof(float);
}

}  // namespace

DevicePredictors::DevicePredictors(DeviceMatrices& matrices, const DevicePredictorsShape& shape,
                                   std::vector<DevicePredictor> layers)
    : matrices_(matrices),
      shape_(shape),
      layers_(std::move(layers)),
      vectors_(matrices.device()),
      inputs_(matrices.device().MakeBuffer("predictors", BytesOf(shape, shape.hidden))),
      inner_(matrices.device().MakeBuffer("predictors", BytesOf(shape, shape.rank))),
      logits_(matrices.device().MakeBuffer("predictors", BytesOf(shape, shape.neurons))) {}

uint64_t DevicePredictors::ScratchBytes(const DevicePredictorsShape& shape) {
  if (!shape.any()) return 0;
  return BytesOf(shape, shape.hidden + shape.rank + shape.neurons);
}

void DevicePredictors::Ask(int64_t layer, FloatView inputs, FloatView logits) {
  const DevicePredictor& predictor = At(layer);
  const int64_t rank = predictor.down.matrix.rows;
  if (inputs.cols != predictor.down.matrix.columns || logits.cols != predictor.up.matrix.rows ||
      logits.rows != inputs.rows || inputs.cols > shape_.hidden || rank > shape_.rank ||
      logits.cols > shape_.neurons) {
    throw Error(ErrorCode::kInternal, "DevicePredictors", "tokens or logits that do not fit");
  }
  DeviceCommands& commands = matrices_.commands();
  commands.SetLayer(layer);
  commands.AddTokens(inputs.rows);
  tokens_asked_ += inputs.rows;
  for (int64_t first = 0; first < inputs.rows; first += shape_.max_tokens) {
    const int64_t count = std::min(shape_.max_tokens, inputs.rows - first);
    commands.UploadRows(inputs.Rows(first, count), *inputs_);
    matrices_.Launch(predictor.down, *inputs_, count, *inner_, MatmulWay::kByToken);
    if (predictor.relu) {
      vectors_.ActivateAlone(commands.queue(), {.kind = FfnActivation::kRelu}, *inner_,
                             count * rank, *inner_);
    }
    matrices_.Launch(predictor.up, *inner_, count, *logits_, MatmulWay::kByToken);
    commands.DownloadRows(*logits_, logits.Rows(first, count));
  }
  commands.Send();
  commands.Wait();
}

}  // namespace hearth::accel
