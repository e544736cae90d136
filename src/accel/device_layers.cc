#include "accel/device_layers.h"

#include "base/error.h"

namespace hearth::accel {

uint64_t DeviceLayers::ScratchBytes(const DeviceLayersShape& shape) {
  if (!shape.any()) return 0;
  return sizeof(float) *
         static_cast<uint64_t>(shape.max_tokens * shape.hidden + shape.vector_floats);
}

DeviceLayers::DeviceLayers(DeviceMatrices& matrices, DeviceAttention& attention,
                           const DeviceLayersShape& shape)
    : matrices_(matrices),
      attention_(attention),
      shape_(shape),
      vectors_(matrices.device()),
      hidden_(matrices.device().MakeBuffer(
          "layers", static_cast<uint64_t>(shape.max_tokens * shape.hidden) * sizeof(float))) {}

DeviceBuffer& DeviceLayers::AddVector(std::span<const float> vector) {
  added_.push_back(matrices_.device().MakeBuffer("layers", vector.size_bytes()));
  matrices_.commands().queue().Upload(std::as_bytes(vector), *added_.back());
  matrices_.commands().queue().Finish();
  return *added_.back();
}

void DeviceLayers::Upload(FloatView hidden) {
  if (hidden.rows != attention_.rows() || hidden.cols != shape_.hidden) {
    throw Error(ErrorCode::kInternal, "DeviceLayers", "rows that are not of the pass");
  }
  matrices_.commands().AddTokens(hidden.rows);
  matrices_.commands().UploadRows(hidden, *hidden_);
}

void DeviceLayers::Read(const VectorKernels::Norm& norm, DeviceBuffer& x) {
  DeviceQueue& queue = matrices_.commands().queue();
  const int64_t rows = attention_.rows();
  if (norm.weight != nullptr) {
    return vectors_.Normalize(queue, {hidden_.get(), rows, shape_.hidden}, norm, x);
  }
  const int64_t count = rows * shape_.hidden;
  vectors_.Clear(queue, x, count);
  vectors_.Add(queue, *hidden_, count, x);
}

void DeviceLayers::Show(DeviceBuffer& x, FloatView seen, const std::function<void()>& on_seen) {
  matrices_.commands().DownloadRows(x, seen);
  matrices_.commands().Send();
  matrices_.commands().Wait();
  if (on_seen) on_seen();
}

void DeviceLayers::AddBlock(const VectorKernels::Norm& norm, float scale, DeviceBuffer& x) {
  DeviceQueue& queue = matrices_.commands().queue();
  const int64_t rows = attention_.rows();
  if (norm.weight != nullptr) vectors_.Normalize(queue, {&x, rows, shape_.hidden}, norm, x);
  vectors_.Add(queue, x, rows * shape_.hidden, *hidden_, scale);
}

void DeviceLayers::Run(const DeviceWholeLayer& layer, FloatView keys, FloatView values,
                       const DeviceLayerWatcher* watcher) {
  DeviceAttentionOut to = {.keys = keys, .values = values};
  Read(layer.attention_norm, attention_.states());
  if (watcher != nullptr) {
    Show(attention_.states(), watcher->normed, watcher->on_attention_input);
    to.attended = watcher->attended;
    to.on_attended = watcher->on_attended;
  }
  DeviceBuffer& attended = attention_.RunThere(*layer.attention, attention_.states(), to);
  const auto add_attention = [&] {
    AddBlock(layer.after_attention, layer.residual_scale, attended);
  };
  if (!layer.is_parallel) add_attention();
  Read(layer.ffn_norm, matrices_.states());
  if (watcher != nullptr) {
    Show(*hidden_, watcher->hidden, nullptr);
    Show(matrices_.states(), watcher->normed, watcher->on_ffn_input);
  }
  const DeviceFfnWatcher* const ffn_watcher = watcher == nullptr ? nullptr : &watcher->ffn;
  AddBlock(layer.after_ffn, layer.residual_scale,
           matrices_.RunFfn(layer.ffn, matrices_.states(), attention_.rows(), ffn_watcher));
  if (layer.is_parallel) add_attention();
  tokens_computed_ += attention_.rows();
}

void DeviceLayers::Download(FloatView hidden) {
  matrices_.commands().DownloadRows(*hidden_, hidden);
  matrices_.commands().Send();
}

}  // namespace hearth::accel
