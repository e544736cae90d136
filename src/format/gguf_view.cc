#include "format/gguf_view.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "format/gguf_serialize.h"
#include "storage/region_reader.h"

namespace hearth {

GgufFile MakeGgufView(const std::string& name, const GgufMetadata& metadata,
                      const std::vector<GgufViewTensor>& tensors,
                      std::vector<std::unique_ptr<BlockReader>> sources) {
  std::vector<GgufTensorDecl> decls;
  for (const GgufViewTensor& tensor : tensors) decls.push_back(tensor.decl);
  GgufLayout layout = PlanGguf(name, metadata, decls);
  const uint64_t header_bytes = layout.header.size();
  sources.push_back(MakeMemoryReader(name, std::move(layout.header)));
  const size_t header = sources.size() - 1;
  auto view = std::make_unique<RegionReader>(name, std::move(sources));
  view->Append({.source = header, .bytes = header_bytes});
  for (size_t i = 0; i < tensors.size(); ++i) {
    view->AppendZeros(layout.offsets[i] - view->size_bytes());
    for (const Region& region : tensors[i].regions) view->Append(region);
    const uint64_t bytes = view->size_bytes() - layout.offsets[i];
    if (bytes != layout.bytes[i]) {
      throw Error(ErrorCode::kInvalidArgument, name,
                  fmt::format("tensor '{}': bytes", Printable(decls[i].name)),
                  std::to_string(layout.bytes[i]), std::to_string(bytes));
    }
  }
  view->AppendZeros(layout.total_bytes - view->size_bytes());
  std::vector<std::unique_ptr<BlockReader>> parts;
  parts.push_back(std::move(view));
  return GgufFile::FromReaders(std::move(parts));
}

}  // namespace hearth
