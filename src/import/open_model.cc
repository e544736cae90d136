#include "import/open_model.h"

#include "base/error.h"
#include "import/adapter_file.h"
#include "import/hugging_face.h"

namespace hearth {

GgufFile OpenModel(const std::string& path, const std::optional<GivenActivation>& given,
                   ForeignTensors foreign) {
  if (!IsModelFolder(path) && IsAdapterFolder(path)) {
    throw Error(ErrorCode::kUnsupported, path,
                "is a LoRA adapter, not a model: load it together with its base model");
  }
  GgufFile file = IsModelFolder(path) ? OpenModelFolder(path) : GgufFile::Open(path, foreign);
  if (given) GiveActivation(*given, &file);
  return file;
}

}  // namespace hearth
