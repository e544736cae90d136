#include "accel/device_attention.h"

#include <algorithm>

#include "base/error.h"

namespace hearth::accel {

// Numbers of each buffer.
struct DeviceAttention::Scratch {
  explicit Scratch(const DeviceAttentionShape& shape) {
    const int64_t tokens = shape.max_tokens;
    hidden = tokens * shape.hidden;
    q = tokens * shape.heads * shape.layout.head_dim;
    kv = tokens * shape.layout.num_kv_heads * shape.layout.head_dim;
    angles = tokens * shape.rope_pairs;
    partial = AttentionKernels::PartialFloats(shape.heads, shape.layout.head_dim,
                                              std::max(tokens, AttentionKernels::kParts), 1);
    list = MostPages(shape);
  }

  int64_t hidden, q, kv, angles, partial, list;
};

uint64_t DeviceAttention::KvBytes(const DeviceAttentionShape& shape) {
  return static_cast<uint64_t>(shape.layers * shape.slots) * shape.page_bytes();
}

uint64_t DeviceAttention::ScratchBytes(const DeviceAttentionShape& shape) {
  if (shape.slots == 0) return 0;
  const Scratch scratch(shape);
  const int64_t numbers = 2 * scratch.hidden + 2 * scratch.q + 2 * scratch.kv +
                          2 * shape.rope_tables * scratch.angles + scratch.partial + scratch.list +
                          2 * shape.max_tokens + shape.vector_floats;
  return sizeof(float) * static_cast<uint64_t>(numbers);
}

DeviceAttention::DeviceAttention(DeviceMatrices& matrices, const DeviceAttentionShape& shape)
    : matrices_(matrices),
      shape_(shape),
      vectors_(matrices.device()),
      kernels_(matrices.device(), shape.layout) {
  const uint64_t bytes_of_layer = static_cast<uint64_t>(shape.slots) * shape.page_bytes();
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    pages_.push_back(matrices.device().MakeBuffer("kv", bytes_of_layer));
  }
  const auto make = [&](int64_t numbers) {
    return matrices.device().MakeBuffer("attention",
                                        static_cast<uint64_t>(numbers) * sizeof(float));
  };
  const Scratch scratch(shape);
  for (int64_t table = 0; table < shape.rope_tables; ++table) {
    cosines_.push_back(make(scratch.angles));
    sines_.push_back(make(scratch.angles));
  }
  x_ = make(scratch.hidden);
  out_ = make(scratch.hidden);
  q_ = make(scratch.q);
  attended_ = make(scratch.q);
  k_ = make(scratch.kv);
  v_ = make(scratch.kv);
  partial_ = make(scratch.partial);
  slots_ = make(scratch.list);
  begins_ = make(shape.max_tokens);
  positions_ = make(shape.max_tokens);
}

DeviceBuffer& DeviceAttention::AddVector(std::span<const float> vector) {
  added_.push_back(matrices_.device().MakeBuffer("attention", vector.size_bytes()));
  matrices_.commands().queue().Upload(std::as_bytes(vector), *added_.back());
  Finish();
  return *added_.back();
}

void DeviceAttention::UploadPage(int64_t layer, int64_t slot, std::span<const std::byte> bytes) {
  if (bytes.size() != shape_.page_bytes() || slot >= shape_.slots) {
    throw Error(ErrorCode::kInternal, "DeviceAttention", "a page of another size");
  }
  matrices_.commands().queue().Upload(bytes, *pages_.at(static_cast<size_t>(layer)),
                                      static_cast<uint64_t>(slot) * shape_.page_bytes());
}

void DeviceAttention::BeginPass(const DeviceAttentionRows& rows) {
  rows_ = std::ssize(rows.positions);
  parts_ = rows.parts;
  if (rows_ > shape_.max_tokens || std::ssize(rows.slots) > MostPages(shape_) ||
      rows.begins.size() != rows.positions.size()) {
    throw Error(ErrorCode::kInternal, "DeviceAttention", "rows that do not fit");
  }
  DeviceQueue& queue = matrices_.commands().queue();
  queue.Upload(std::as_bytes(rows.slots), *slots_);
  queue.Upload(std::as_bytes(rows.begins), *begins_);
  queue.Upload(std::as_bytes(rows.positions), *positions_);
}

void DeviceAttention::SetAngles(int64_t table, FloatView cosines, FloatView sines) {
  matrices_.commands().UploadRows(cosines, *cosines_.at(static_cast<size_t>(table)));
  matrices_.commands().UploadRows(sines, *sines_.at(static_cast<size_t>(table)));
}

void DeviceAttention::Norm(const DevicePieceNorm& norm, float epsilon, DeviceBuffer& x,
                           int64_t columns) {
  if (norm.weight == nullptr) return;
  const int64_t pieces = rows_ * (columns / norm.columns);
  vectors_.RmsNorm(matrices_.commands().queue(), {&x, pieces, norm.columns}, *norm.weight, epsilon,
                   x);
}

void DeviceAttention::Rotate(const DeviceAttentionLayer& layer) {
  if (layer.rope_table < 0) return;
  const auto table = static_cast<size_t>(layer.rope_table);
  const VectorKernels::Angles angles = {.cosines = cosines_.at(table).get(),
                                        .sines = sines_.at(table).get(),
                                        .pairs = layer.rope_pairs,
                                        .layout = layer.rope_layout};
  DeviceQueue& queue = matrices_.commands().queue();
  const KvLayout& layout = shape_.layout;
  vectors_.Rope(queue, {q_.get(), rows_, layer.scores.heads, layout.head_dim}, angles);
  vectors_.Rope(queue, {k_.get(), rows_, layout.num_kv_heads, layout.head_dim}, angles);
}

void DeviceAttention::Run(const DeviceAttentionLayer& layer, FloatView x,
                          const DeviceAttentionOut& to, FloatView out) {
  if (x.rows != rows_ || x.cols != shape_.hidden) {
    throw Error(ErrorCode::kInternal, "DeviceAttention", "rows that are not of the pass");
  }
  DeviceCommands& commands = matrices_.commands();
  commands.AddTokens(rows_);
  commands.UploadRows(x, *x_);
  commands.DownloadRows(RunThere(layer, *x_, to), out);
  commands.Send();
}

DeviceBuffer& DeviceAttention::RunThere(const DeviceAttentionLayer& layer, DeviceBuffer& x,
                                        const DeviceAttentionOut& to) {
  if (layer.scores.heads > shape_.heads) {
    throw Error(ErrorCode::kInternal, "DeviceAttention", "more heads than there is room for");
  }
  DeviceCommands& commands = matrices_.commands();
  matrices_.Launch(layer.q, x, rows_, *q_);
  matrices_.Launch(layer.k, x, rows_, *k_);
  matrices_.Launch(layer.v, x, rows_, *v_);
  Norm(layer.q_norm, layer.norm_epsilon, *q_, layer.q.matrix.rows);
  Norm(layer.k_norm, layer.norm_epsilon, *k_, layer.k.matrix.rows);
  Rotate(layer);
  const DevicePagesOfLayer at = {.pages = pages_.at(static_cast<size_t>(layer.number)).get(),
                                 .slots = slots_.get(),
                                 .begins = begins_.get(),
                                 .positions = positions_.get()};
  kernels_.Store(commands.queue(), at, *k_, *v_, rows_);
  commands.DownloadRows(*k_, to.keys);
  commands.DownloadRows(*v_, to.values);
  kernels_.Attend(commands.queue(), at, layer.scores,
                  {q_.get(), attended_.get(), partial_.get(), rows_, parts_});
  if (to.on_attended) {
    commands.DownloadRows(*attended_, to.attended);
    commands.Send();
    commands.Wait();
    to.on_attended();
  }
  matrices_.Launch(layer.output, *attended_, rows_, *out_);
  tokens_attended_ += rows_;
  return *out_;
}

}  // namespace hearth::accel
