// The token embedding of a model that stays in its file, because memory is short (M §4.1). Nothing
// but rows of it is used, one per token, unless it is the output matrix as well.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/budget.h"
#include "engine/load/model.h"
#include "engine/load/neuron_streaming.h"
#include "format/gguf.h"
#include "pipeline/row_table.h"

namespace hearth {

struct EmbeddingTable {
  RowTableSpec rows;
  std::string path;  // of the part of the file that has it

  // Takes the embedding out of a plan that holds it. Nothing, and the plan as it was, where it is
  // the output matrix too, or too small to save anything worth a read per token. Passes have at
  // most most_ids tokens.
  static std::optional<EmbeddingTable> TakeFrom(LoadPlan& plan, const GgufFile& file,
                                                int64_t most_ids);

  // Opens the file again. Charges RowTable::ChargedBytes. Throws what OpenStreamedFile and RowTable
  // do.
  std::unique_ptr<RowTable> Open(Budget& budget, const StreamingOptions& options) const;
};

}  // namespace hearth
