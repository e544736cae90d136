#include "accel/vector_kernels.h"

#include "accel/launch_sizes.h"
#include "base/error.h"

namespace hearth::accel {
namespace {

constexpr ProgramName kVectors = {"vectors"};

LaunchSize GroupPerRow(int64_t rows) {
  return {{kGroup * static_cast<size_t>(rows), 1}, {kGroup, 1}};
}

LaunchSize ItemPerColumn(int64_t rows, int64_t columns) {
  return {{RoundedUp(columns, kGroup), static_cast<size_t>(rows)}, {kGroup, 1}};
}

LaunchSize ItemPerNumber(int64_t count) { return {{RoundedUp(count, kGroup), 1}, {kGroup, 1}}; }

}  // namespace

VectorKernels::VectorKernels(Device& device)
    : rms_norm_(device.MakeKernel(kVectors, "rms_norm")),
      layer_norm_(device.MakeKernel(kVectors, "layer_norm")),
      softmax_(device.MakeKernel(kVectors, "softmax")),
      rope_(device.MakeKernel(kVectors, "rope")),
      activate_(device.MakeKernel(kVectors, "activate")),
      activate_alone_(device.MakeKernel(kVectors, "activate_alone")),
      add_(device.MakeKernel(kVectors, "add")),
      gather_rows_(device.MakeKernel(kVectors, "gather_rows")),
      scatter_add_rows_(device.MakeKernel(kVectors, "scatter_add_rows")),
      add_to_rows_(device.MakeKernel(kVectors, "add_to_rows")),
      clear_(device.MakeKernel(kVectors, "clear")) {}

void VectorKernels::RmsNorm(DeviceQueue& queue, const Rows& rows, DeviceBuffer& weight, float eps,
                            DeviceBuffer& out) {
  CheckRoom(*rows.x, {rows.rows, rows.columns});
  CheckRoom(weight, {1, rows.columns});
  CheckRoom(out, {rows.rows, rows.columns});
  const KernelArgument arguments[] = {rows.x, &weight, ToInt(rows.columns), eps, &out};
  queue.Launch(*rms_norm_, GroupPerRow(rows.rows), arguments);
}

void VectorKernels::Normalize(DeviceQueue& queue, const Rows& rows, const Norm& norm,
                              DeviceBuffer& out) {
  if (norm.bias == nullptr) return RmsNorm(queue, rows, *norm.weight, norm.epsilon, out);
  CheckRoom(*rows.x, {rows.rows, rows.columns});
  CheckRoom(*norm.weight, {1, rows.columns});
  CheckRoom(*norm.bias, {1, rows.columns});
  CheckRoom(out, {rows.rows, rows.columns});
  const KernelArgument arguments[] = {rows.x,       norm.weight, norm.bias, ToInt(rows.columns),
                                      norm.epsilon, &out};
  queue.Launch(*layer_norm_, GroupPerRow(rows.rows), arguments);
}

void VectorKernels::Softmax(DeviceQueue& queue, const Rows& rows) {
  CheckRoom(*rows.x, {rows.rows, rows.columns});
  const KernelArgument arguments[] = {rows.x, ToInt(rows.columns)};
  queue.Launch(*softmax_, GroupPerRow(rows.rows), arguments);
}

void VectorKernels::Rope(DeviceQueue& queue, const Heads& heads, const Angles& angles) {
  const int64_t rows = int64_t{ToInt(heads.tokens)} * ToInt(heads.heads);
  CheckRoom(*heads.x, {rows, heads.head_dim});
  CheckRoom(*angles.cosines, {heads.tokens, angles.pairs});
  CheckRoom(*angles.sines, {heads.tokens, angles.pairs});
  if (2 * angles.pairs > heads.head_dim) {
    throw Error(ErrorCode::kInternal, "a kernel", "more components to rotate than a head has");
  }
  const KernelArgument arguments[] = {heads.x,
                                      angles.cosines,
                                      angles.sines,
                                      ToInt(heads.heads),
                                      ToInt(heads.head_dim),
                                      ToInt(angles.pairs),
                                      int32_t{angles.layout == RopeLayout::kHalves}};
  queue.Launch(*rope_, {{RoundedUp(angles.pairs, kLanes), static_cast<size_t>(rows)}, {kLanes, 1}},
               arguments);
}

void VectorKernels::Activate(DeviceQueue& queue, const Activation& activation, DeviceBuffer& gate,
                             DeviceBuffer& up, int64_t count, DeviceBuffer& out) {
  for (const DeviceBuffer* buffer : {&gate, &up, &out}) CheckRoom(*buffer, {1, count});
  const KernelArgument arguments[] = {
      &gate, &up, count, static_cast<int32_t>(activation.kind), activation.threshold, &out};
  queue.Launch(*activate_, ItemPerNumber(count), arguments);
}

void VectorKernels::ActivateAlone(DeviceQueue& queue, const Activation& activation,
                                  DeviceBuffer& gate, int64_t count, DeviceBuffer& out) {
  CheckRoom(gate, {1, count});
  CheckRoom(out, {1, count});
  const KernelArgument arguments[] = {&gate, count, static_cast<int32_t>(activation.kind),
                                      activation.threshold, &out};
  queue.Launch(*activate_alone_, ItemPerNumber(count), arguments);
}

void VectorKernels::Clear(DeviceQueue& queue, DeviceBuffer& x, int64_t count) {
  CheckRoom(x, {1, count});
  const KernelArgument arguments[] = {&x, count};
  queue.Launch(*clear_, ItemPerNumber(count), arguments);
}

void VectorKernels::GatherRows(DeviceQueue& queue, DeviceBuffer& x, const RowList& list,
                               int64_t columns, DeviceBuffer& out) {
  CheckRoom(x, {1, columns});
  CheckRoom(*list.rows, {1, list.count});
  CheckRoom(out, {list.count, columns});
  const KernelArgument arguments[] = {&x, list.rows, ToInt(columns), &out};
  queue.Launch(*gather_rows_, ItemPerColumn(list.count, columns), arguments);
}

void VectorKernels::ScatterAddRows(DeviceQueue& queue, DeviceBuffer& x, const RowList& list,
                                   DeviceBuffer& weights, int64_t columns, DeviceBuffer& out) {
  CheckRoom(x, {list.count, columns});
  CheckRoom(*list.rows, {1, list.count});
  CheckRoom(weights, {1, list.count});
  CheckRoom(out, {1, columns});
  const KernelArgument arguments[] = {&x, list.rows, &weights, ToInt(columns), &out};
  queue.Launch(*scatter_add_rows_, ItemPerColumn(list.count, columns), arguments);
}

void VectorKernels::AddToRows(DeviceQueue& queue, DeviceBuffer& row, int64_t begin, const Rows& x) {
  CheckRoom(row, {1, x.columns, 4, 4 * begin});
  CheckRoom(*x.x, {x.rows, x.columns});
  const KernelArgument arguments[] = {&row, begin, ToInt(x.columns), x.x};
  queue.Launch(*add_to_rows_, ItemPerColumn(x.rows, x.columns), arguments);
}

void VectorKernels::Add(DeviceQueue& queue, DeviceBuffer& a, int64_t count, DeviceBuffer& out,
                        float scale) {
  CheckRoom(a, {1, count});
  CheckRoom(out, {1, count});
  const KernelArgument arguments[] = {&a, scale, count, &out};
  queue.Launch(*add_, ItemPerNumber(count), arguments);
}

}  // namespace hearth::accel
