// Qwen3 with experts in every layer.
#include "base/error.h"
#include "model/archs/archs.h"

namespace hearth::archs {

void ReadQwen3Moe(const GgufFile& file, ModelSpec* spec) {
  ReadQwen3(file, spec);
  if (MainFfn(*spec).num_experts == 0) {
    throw Error(ErrorCode::kCorrupt, file.path(), "qwen3moe.expert_count", "at least 1", "none");
  }
}

}  // namespace hearth::archs
