// Attention on a device, keys and values included: a layer sends the tokens of a pass once, and
// what attention makes of them comes back with their keys and values, for the host's KV pages.
// The host's pages are complete. The device has copies of some of them, in slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "accel/attention_kernels.h"
#include "accel/device.h"
#include "accel/device_matrices.h"
#include "accel/vector_kernels.h"
#include "tensor/kv_layout.h"
#include "tensor/op_kinds.h"
#include "tensor/view.h"

namespace hearth::accel {

// What memory it takes.
struct DeviceAttentionShape {
  KvLayout layout;            // of the host's pages
  int64_t layers = 0;         // that have keys and values there
  int64_t slots = 0;          // pages of each; 0: there is no attention there
  int64_t max_tokens = 1;     // of a pass
  int64_t hidden = 0;         // of what attention is given and makes
  int64_t heads = 0;          // the most of any layer
  int64_t rope_tables = 0;    // rotary embeddings that layers differ in
  int64_t rope_pairs = 0;     // of any
  int64_t vector_floats = 0;  // of all vectors that are added

  // A page of one layer.
  uint64_t page_bytes() const {
    return layout.head_bytes() * static_cast<uint64_t>(layout.num_kv_heads);
  }
};

// An RMS norm of pieces of a row: its weight; null: nothing is normed.
struct DevicePieceNorm {
  DeviceBuffer* weight = nullptr;
  int64_t columns = 0;
};

// A layer.
struct DeviceAttentionLayer {
  int64_t number = 0;              // of its pages
  DeviceMatrixAt q, k, v, output;  // with their biases
  DevicePieceNorm q_norm, k_norm;  // before the rotation
  float norm_epsilon = 0;
  int64_t rope_table = -1;  // -1: nothing is rotated
  int64_t rope_pairs = 0;
  RopeLayout rope_layout = RopeLayout::kAdjacent;
  DeviceScores scores;
};

// The rows of a pass, as DevicePagesOfLayer has them.
struct DeviceAttentionRows {
  std::span<const int32_t> slots, begins, positions;
  // Work-groups that share a row: 1 or AttentionKernels::kParts.
  int64_t parts = 1;
};

// Where results go, in memory of the caller, a row per token.
struct DeviceAttentionOut {
  FloatView keys, values;  // rotated keys
  // Called when `attended`, what the output matrix multiplies, is there; null: nobody wants it.
  FloatView attended;
  std::function<void()> on_attended;
};

// One thread at a time. Calls throw what the device does.
class DeviceAttention {
 public:
  // Builds the kernels and makes all buffers, charged to the device's memory as "kv" and
  // "attention". Products are those of `matrices`, which must outlive it. Throws what
  // Device::MakeBuffer and AttentionKernels do.
  DeviceAttention(DeviceMatrices& matrices, const DeviceAttentionShape& shape);
  static uint64_t KvBytes(const DeviceAttentionShape& shape);
  static uint64_t ScratchBytes(const DeviceAttentionShape& shape);

  // Page numbers that BeginPass has room for.
  static int64_t MostPages(const DeviceAttentionShape& shape) {
    return kSequencesPerSlot * shape.slots;
  }

  // A bias, a norm's weight or sinks, which stay there.
  DeviceBuffer& AddVector(std::span<const float> vector);

  // Sends a page of a layer to a slot; `bytes` must stay as they are until Finish.
  void UploadPage(int64_t layer, int64_t slot, std::span<const std::byte> bytes);
  void Finish() { matrices_.commands().queue().Finish(); }

  // A pass begins, of at most max_tokens rows; `rows` must stay as they are until it ends.
  void BeginPass(const DeviceAttentionRows& rows);
  // The angles of these rows, [tokens][rope_pairs] each, of one of the rotary embeddings.
  void SetAngles(int64_t table, FloatView cosines, FloatView sines);

  // Sends x, a row per row of the pass, and what is to be made of it; all is there after the next
  // Wait of the matrices, and what attention makes in `out`. Waits itself where the caller wants
  // `attended`.
  void Run(const DeviceAttentionLayer& layer, FloatView x, const DeviceAttentionOut& to,
           FloatView out);
  // The same of rows that are on the device: in states(), or of the caller. Returns where on the
  // device its result is, until the next layer. Commands are sent together with those that follow.
  DeviceBuffer& RunThere(const DeviceAttentionLayer& layer, DeviceBuffer& x,
                         const DeviceAttentionOut& to);
  // Room for [max_tokens][hidden], which Run uses too.
  DeviceBuffer& states() { return *x_; }
  int64_t rows() const { return rows_; }  // of the pass

  const DeviceAttentionShape& shape() const { return shape_; }
  // Tokens times layers so far.
  int64_t tokens_attended() const { return tokens_attended_; }

 private:
  // Sequences may share pages, so that their lists together can name more pages than there are.
  static constexpr int64_t kSequencesPerSlot = 8;
  struct Scratch;  // sizes of the buffers below

  void Norm(const DevicePieceNorm& norm, float epsilon, DeviceBuffer& x, int64_t columns);
  void Rotate(const DeviceAttentionLayer& layer);

  DeviceMatrices& matrices_;
  const DeviceAttentionShape shape_;
  VectorKernels vectors_;
  AttentionKernels kernels_;
  std::vector<std::unique_ptr<DeviceBuffer>> pages_;            // by layer
  std::vector<std::unique_ptr<DeviceBuffer>> cosines_, sines_;  // by rotary embedding
  std::vector<std::unique_ptr<DeviceBuffer>> added_;
  std::unique_ptr<DeviceBuffer> x_, q_, k_, v_, attended_, out_, partial_;
  std::unique_ptr<DeviceBuffer> slots_, begins_, positions_;
  int64_t rows_ = 0;
  int64_t parts_ = 1;
  int64_t tokens_attended_ = 0;
};

}  // namespace hearth::accel
