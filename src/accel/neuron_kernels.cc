#include "accel/neuron_kernels.h"

#include <algorithm>
#include <vector>

#include "accel/launch_sizes.h"
#include "base/error.h"
#include "tensor/row_groups.h"

namespace hearth::accel {
namespace {

constexpr int64_t kBlockColumns = 32;

ProgramName NeuronProgramOf(DType type) {
  if (NeuronKernels::Has(type)) return {"neurons", NameOf(type)};
  throw Error(ErrorCode::kUnsupported, NameOf(type),
              "devices have no kernel for single neurons of this type");
}

int64_t RowBytesOf(DType type, int64_t hidden) {
  return HasRowGroups(type) ? RowGroupsOf(type, hidden).bytes
                            : static_cast<int64_t>(RowBytes(type, static_cast<size_t>(hidden)));
}

// The same as Words in opencl/kernels/neurons.cl.
int64_t WordsOf(DType type, int64_t hidden) {
  if (!HasRowGroups(type)) return hidden / 4;
  return RowGroupsOf(type, hidden).lanes * (type == DType::kQ8_0 ? 8 : 4);
}

void CheckLists(const DeviceLists& lists, int64_t tokens) {
  const int64_t lists_of = lists.list_stride == 0 ? 1 : tokens;
  CheckRoom(*lists.counts, {1, lists_of});
  CheckRoom(*lists.list, {lists_of, std::max(lists.list_stride, lists.max_count)});
}

// A work-group per token and entry of the longest list.
LaunchSize SizeOf(const DeviceLists& lists, int64_t tokens) {
  return {{kLanes * static_cast<size_t>(tokens), static_cast<size_t>(lists.max_count)},
          {kLanes, 1}};
}

// The first arguments of neuron_gates and neuron_factors.
std::vector<KernelArgument> RowArguments(const DeviceRows& rows, const DeviceLists& lists,
                                         const DeviceTokens& tokens) {
  return {rows.buffer,
          rows.first,
          rows.bias,
          rows.stride,
          ToInt(tokens.hidden),
          lists.list,
          ToInt(lists.list_stride),
          lists.counts,
          tokens.x,
          ToInt(lists.max_count)};
}

}  // namespace

bool NeuronKernels::Has(DType type) { return IsRowType(type); }

NeuronKernels::NeuronKernels(Device& device, DType type)
    : type_(type),
      gates_(device.MakeKernel(NeuronProgramOf(type), "neuron_gates")),
      factors_(device.MakeKernel(NeuronProgramOf(type), "neuron_factors")),
      down_(device.MakeKernel(NeuronProgramOf(type), "neuron_down")),
      merge_(device.MakeKernel({"vectors"}, "merge_slices")) {}

void NeuronKernels::CheckRows(const DeviceRows& rows, int64_t hidden) const {
  if (hidden % kBlockColumns != 0) {
    throw Error(ErrorCode::kInternal, "a kernel", "rows of neurons that end inside a block");
  }
  if (rows.neurons == 0) return;
  CheckRoom(*rows.buffer,
            {rows.neurons - 1, rows.stride, 1, rows.first + RowBytesOf(type_, ToInt(hidden))});
  if (rows.bias >= 0) CheckRoom(*rows.buffer, {rows.neurons - 1, rows.stride, 1, rows.bias + 4});
}

void NeuronKernels::Gates(DeviceQueue& queue, const DeviceRows& rows, const DeviceLists& lists,
                          const DeviceTokens& tokens, DeviceBuffer& gates) {
  CheckRows(rows, tokens.hidden);
  CheckLists(lists, tokens.tokens);
  CheckRoom(*tokens.x, {tokens.tokens, tokens.hidden});
  CheckRoom(gates, {tokens.tokens, lists.max_count});
  std::vector<KernelArgument> arguments = RowArguments(rows, lists, tokens);
  arguments.push_back(&gates);
  queue.Launch(*gates_, SizeOf(lists, tokens.tokens), arguments);
}

void NeuronKernels::MakeFactors(DeviceQueue& queue, const Factors& work, const DeviceLists& lists,
                                const DeviceTokens& tokens) {
  if (work.up != nullptr) CheckRows(*work.up, tokens.hidden);
  CheckLists(lists, tokens.tokens);
  CheckRoom(*tokens.x, {tokens.tokens, tokens.hidden});
  CheckRoom(*work.gates, {tokens.tokens, lists.max_count});
  CheckRoom(*work.factors, {tokens.tokens, lists.max_count});
  // An FFN of two matrices reads no rows here.
  const DeviceRows rows = work.up != nullptr ? *work.up : DeviceRows{work.gates};
  std::vector<KernelArgument> arguments = RowArguments(rows, lists, tokens);
  arguments.insert(
      arguments.end(),
      {work.gates, int32_t{work.up != nullptr}, static_cast<int32_t>(work.activation.kind),
       work.activation.threshold, int32_t{work.activation.skips}, work.activation.below,
       work.activation.from, work.activation.to, work.factors});
  queue.Launch(*factors_, SizeOf(lists, tokens.tokens), arguments);
}

void NeuronKernels::AddDown(DeviceQueue& queue, const Down& work, const DeviceLists& lists,
                            int64_t tokens, int64_t hidden) {
  CheckRows(*work.rows, hidden);
  CheckLists(lists, tokens);
  CheckRoom(*work.factors, {tokens, lists.max_count});
  CheckRoom(*work.partial, {ToInt(tokens) * kSlices, hidden});
  CheckRoom(*work.out, {tokens, hidden});
  const KernelArgument add[] = {work.rows->buffer, work.rows->first,
                                work.rows->stride, ToInt(hidden),
                                lists.list,        ToInt(lists.list_stride),
                                lists.counts,      ToInt(lists.max_count),
                                work.factors,      static_cast<int32_t>(kSlices),
                                work.partial};
  queue.Launch(*down_,
               {{RoundedUp(WordsOf(type_, hidden), kLanes), static_cast<size_t>(tokens * kSlices)},
                {kLanes, 1}},
               add);
  const KernelArgument merge[] = {work.partial, static_cast<int32_t>(kSlices), ToInt(hidden),
                                  work.out};
  queue.Launch(*merge_, {{RoundedUp(hidden, kGroup), static_cast<size_t>(tokens)}, {kGroup, 1}},
               merge);
}

}  // namespace hearth::accel
