#include "import/open_model.h"

#include "import/hugging_face.h"

namespace hearth {

GgufFile OpenModel(const std::string& path, const std::optional<GivenActivation>& given,
                   ForeignTensors foreign) {
  GgufFile file = IsModelFolder(path) ? OpenModelFolder(path) : GgufFile::Open(path, foreign);
  if (given) GiveActivation(*given, &file);
  return file;
}

}  // namespace hearth
