#include "accel/attention_kernels.h"

#include <algorithm>

#include "accel/launch_sizes.h"
#include "base/error.h"

namespace hearth::accel {
namespace {

constexpr ProgramName kProgram = {"attention"};

void CheckRows(const DevicePagesOfLayer& at, int64_t rows) {
  CheckRoom(*at.begins, {1, rows});
  CheckRoom(*at.positions, {1, rows});
}

}  // namespace

AttentionKernels::AttentionKernels(Device& device, const KvLayout& layout)
    : layout_(layout),
      store_kv_(device.MakeKernel(kProgram, "store_kv")),
      attend_(device.MakeKernel(kProgram, "attend")),
      merge_parts_(device.MakeKernel(kProgram, "merge_parts")) {
  if (Takes(layout)) return;
  throw Error(ErrorCode::kInternal, "a kernel", "keys and values that attention does not take");
}

void AttentionKernels::Store(DeviceQueue& queue, const DevicePagesOfLayer& at, DeviceBuffer& keys,
                             DeviceBuffer& values, int64_t rows) {
  const int64_t columns = layout_.num_kv_heads * layout_.head_dim;
  CheckRoom(keys, {rows, columns});
  CheckRoom(values, {rows, columns});
  CheckRows(at, rows);
  const KernelArgument arguments[] = {&keys,
                                      &values,
                                      at.slots,
                                      at.begins,
                                      at.positions,
                                      ToInt(layout_.num_kv_heads),
                                      ToInt(layout_.head_dim),
                                      int32_t{layout_.codec == KvCodec::kF16},
                                      at.pages};
  queue.Launch(*store_kv_, {{RoundedUp(columns, kGroup), static_cast<size_t>(rows)}, {kGroup, 1}},
               arguments);
}

void AttentionKernels::Attend(DeviceQueue& queue, const DevicePagesOfLayer& at,
                              const DeviceScores& scores, const Queries& queries) {
  const int64_t head_dim = layout_.head_dim;
  const int64_t rows = queries.rows, parts = queries.parts;
  if (scores.heads < 1 || scores.heads % layout_.num_kv_heads != 0 || scores.period < 1) {
    throw Error(ErrorCode::kInternal, "a kernel", "heads that attention does not take");
  }
  CheckRoom(*queries.q, {rows, scores.heads * head_dim});
  CheckRoom(*queries.out, {rows, scores.heads * head_dim});
  CheckRows(at, rows);
  if (scores.sinks != nullptr) CheckRoom(*scores.sinks, {1, scores.heads});
  const int64_t of_row = PartialFloats(scores.heads, head_dim, 1, parts);
  CheckRoom(*queries.partial, {1, of_row});
  const int64_t at_once = static_cast<int64_t>(queries.partial->size_bytes()) / (4 * of_row);
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    const auto groups = kGroup * static_cast<size_t>(scores.heads);
    const KernelArgument attend[] = {queries.q,
                                     at.pages,
                                     at.slots,
                                     at.begins,
                                     at.positions,
                                     ToInt(first),
                                     ToInt(scores.heads),
                                     ToInt(layout_.num_kv_heads),
                                     ToInt(head_dim),
                                     int32_t{layout_.codec == KvCodec::kF16},
                                     ToInt(scores.window),
                                     ToInt(parts),
                                     scores.scale,
                                     scores.temperature,
                                     ToInt(scores.period),
                                     scores.softcap,
                                     queries.partial};
    queue.Launch(*attend_, {{groups, static_cast<size_t>(count * parts)}, {kGroup, 1}}, attend);
    const KernelArgument merge[] = {queries.partial,
                                    scores.sinks != nullptr ? scores.sinks : queries.partial,
                                    int32_t{scores.sinks != nullptr},
                                    ToInt(first),
                                    ToInt(scores.heads),
                                    ToInt(head_dim),
                                    ToInt(parts),
                                    queries.out};
    queue.Launch(*merge_parts_, {{groups, static_cast<size_t>(count)}, {kGroup, 1}}, merge);
  }
}

}  // namespace hearth::accel
