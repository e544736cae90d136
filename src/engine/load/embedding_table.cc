#include "engine/load/embedding_table.h"

#include <algorithm>

namespace hearth {
namespace {

constexpr uint64_t kLeastSavedBytes = uint64_t{4} << 20;

}  // namespace

std::optional<EmbeddingTable> EmbeddingTable::TakeFrom(LoadPlan& plan, const GgufFile& file,
                                                       int64_t most_ids) {
  WeightView* const slot = &plan.weights->token_embedding;
  const auto found = std::find_if(
      plan.tensors.begin(), plan.tensors.end(),
      [&](const ResidentTensor& t) { return t.decl.is_embedding && t.decl.slot == slot; });
  if (found == plan.tensors.end()) return std::nullopt;
  const EmbeddingTable table = {.rows = {.name = found->decl.name,
                                         .offset = found->stored->offset + found->stored_begin(),
                                         .dtype = found->dtype,
                                         .cols = found->decl.cols,
                                         .rows = found->decl.rows,
                                         .most_ids = most_ids},
                                .path = file.part(found->stored->file_index).name()};
  if (found->bytes < RowTable::ChargedBytes(table.rows) + kLeastSavedBytes) return std::nullopt;
  *slot = found->View(nullptr);  // what estimates of work need to know
  RemoveTensors(plan, [&](const ResidentTensor& tensor) { return tensor.decl.slot == slot; });
  return table;
}

std::unique_ptr<RowTable> EmbeddingTable::Open(Budget& budget,
                                               const StreamingOptions& options) const {
  return std::make_unique<RowTable>(budget, rows, OpenStreamedFile(path, options));
}

}  // namespace hearth
