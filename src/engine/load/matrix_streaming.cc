#include "engine/load/matrix_streaming.h"

#include <algorithm>
#include <utility>

#include "base/buffer.h"

namespace hearth {
namespace {

ExtentMatrix MatrixOf(const ResidentTensor& tensor) {
  WeightView view = tensor.View(nullptr);
  view.data = nullptr;
  view.experts = 1;
  return {.part = tensor.stored->file_index,
          .offset = tensor.stored->offset + tensor.stored_begin(),
          .experts = tensor.stored_experts(),
          .held = tensor.held_experts,
          .rows_of_expert = static_cast<int64_t>(tensor.stored_rows()),
          .stored = tensor.stored->dtype,
          .view = view};
}

}  // namespace

StreamedFfnMatrices StreamedFfnMatrices::TakeFrom(LoadPlan& plan, const GgufFile& file) {
  std::vector<ExtentMap::Layer> layers(static_cast<size_t>(plan.spec.num_layers));
  std::vector<const WeightView*> taken;
  for (size_t l = 0; l < layers.size(); ++l) {
    LayerWeights& w = plan.weights->layers[l];
    WeightView* const slots[] = {&w.ffn_gate, &w.ffn_up, &w.ffn_down};
    for (size_t m = 0; m < kNumFfnMatrices; ++m) {
      const auto tensor =
          std::find_if(plan.tensors.begin(), plan.tensors.end(),
                       [&](const ResidentTensor& t) { return t.decl.slot == slots[m]; });
      if (tensor == plan.tensors.end()) continue;  // the gate of a two-matrix FFN
      layers[l][m] = MatrixOf(*tensor);
      // What estimates of work need to know.
      *slots[m] = layers[l][m].view;
      slots[m]->experts = tensor->stored_experts();
      taken.push_back(slots[m]);
    }
  }
  RemoveTensors(plan, [&](const ResidentTensor& tensor) {
    return std::find(taken.begin(), taken.end(), tensor.decl.slot) != taken.end();
  });
  StreamedFfnMatrices streamed;
  streamed.map_ = ExtentMap(std::move(layers));
  for (size_t part = 0; part < file.num_parts(); ++part) {
    streamed.paths_.push_back(file.part(part).name());
  }
  return streamed;
}

uint64_t StreamedFfnMatrices::OverheadBytes(const StreamingOptions& options) const {
  // As if every extent had a place in the cache.
  ExtentPlan most;
  most.cache_slots = map_.num_extents();
  most.read_buffers = 1;
  return StreamedMatrices::ChargedBytes(map_, most, options.pipeline.policy) -
         most.ChargedBytes(map_.shape()) + kRoundingBytes;
}

uint64_t StreamedFfnMatrices::SmallestBytes(const StreamingOptions& options) const {
  return OverheadBytes(options) + SmallestExtentBytes(map_.shape());
}

ExtentPlan StreamedFfnMatrices::PlanFor(uint64_t bytes, const StreamingOptions& options) const {
  const uint64_t overhead = OverheadBytes(options);
  return PlanExtents(map_.shape(), bytes > overhead ? bytes - overhead : 0);
}

uint64_t StreamedFfnMatrices::BytesOutside(const ExtentPlan& plan) const {
  uint64_t all = 0;
  for (int64_t layer = 0; layer < map_.num_layers(); ++layer) {
    for (size_t m = 0; m < kNumFfnMatrices; ++m) {
      const ExtentMatrix& matrix = map_.Matrix(layer, static_cast<FfnMatrix>(m));
      all +=
          static_cast<uint64_t>(matrix.num_held() * matrix.view.rows) * matrix.stored_row_bytes();
    }
  }
  const auto extents = static_cast<double>(std::max<int64_t>(map_.num_extents(), 1));
  const double outside =
      std::max(0.0, 1 - static_cast<double>(plan.SlotsBeside(map_.shape(), 1)) / extents);
  return static_cast<uint64_t>(outside * static_cast<double>(all));
}

void StreamedFfnMatrices::AddTo(std::map<std::string, uint64_t>& ledger, const ExtentPlan& plan,
                                const StreamingOptions& options) const {
  const uint64_t buffers = ExtentReader::ChargedBytes(map_, plan.read_buffers);
  const uint64_t slots = Buffer::ChargedBytes(plan.SlotsBytes(map_.shape()));
  ledger["FFN matrices"] = slots - plan.lent.bytes();
  if (plan.lent.count > 0) ledger["kv cache"] = plan.lent.bytes();
  ledger["read buffers"] = buffers;
  ledger["cache tables"] =
      StreamedMatrices::ChargedBytes(map_, plan, options.pipeline.policy) - slots - buffers;
}

std::unique_ptr<StreamedMatrices> StreamedFfnMatrices::Open(Budget& budget, const ExtentPlan& plan,
                                                            const StreamingOptions& options) const {
  std::vector<std::unique_ptr<AsyncFile>> files;
  for (const std::string& path : paths_) files.push_back(OpenStreamedFile(path, options));
  return std::make_unique<StreamedMatrices>(budget, map_, std::move(files), plan,
                                            options.pipeline.policy);
}

}  // namespace hearth
