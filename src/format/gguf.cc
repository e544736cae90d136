#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "format/foreign_file.h"
#include "format/gguf_parse.h"
#include "format/gguf_split.h"

namespace hearth {
namespace {

// Number of files in the set that a part belongs to; 1 for a file on its own.
uint64_t PartCountOf(const GgufMetadata& metadata) {
  const uint64_t count = metadata.FindUint("split.count").value_or(1);
  if (count > UINT16_MAX) {
    throw Error(ErrorCode::kCorrupt, metadata.file_name(), "key 'split.count'",
                fmt::format("at most {}", UINT16_MAX), fmt::format("{}", count));
  }
  return count == 0 ? 1 : count;
}

void CheckKey(const GgufMetadata& metadata, const char* key, uint64_t found, uint64_t expected) {
  if (found == expected) return;
  throw Error(ErrorCode::kCorrupt, metadata.file_name(), fmt::format("key '{}'", key),
              fmt::format("{}", expected), fmt::format("{}", found));
}

// That the parts say they belong together, in this order.
void CheckParts(const std::vector<GgufPart>& parts) {
  uint64_t num_tensors = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const GgufMetadata& metadata = parts[i].metadata;
    CheckKey(metadata, "split.count", PartCountOf(metadata), parts.size());
    if (parts.size() > 1 || metadata.Has("split.no")) {
      CheckKey(metadata, "split.no", metadata.FindUint("split.no").value_or(0), i);
    }
    num_tensors += parts[i].tensors.size() + parts[i].foreign.size();
  }
  const GgufMetadata& first = parts.front().metadata;
  if (const std::optional<uint64_t> total = first.FindUint("split.tensors.count")) {
    CheckKey(first, "split.tensors.count", *total, num_tensors);
  }
}

}  // namespace

GgufFile GgufFile::OpenParts(const std::string& path, ForeignTensors foreign) {
  std::unique_ptr<BlockReader> reader = OpenFileReader(path);
  GgufPart opened = ParseGgufPart(*reader, foreign);
  const uint64_t count = PartCountOf(opened.metadata);
  std::vector<std::unique_ptr<BlockReader>> readers;
  std::vector<GgufPart> parts;
  if (count == 1) {
    readers.push_back(std::move(reader));
    parts.push_back(std::move(opened));
    return Assemble(std::move(readers), std::move(parts));
  }
  const uint64_t index = opened.metadata.GetUint("split.no");
  if (index >= count) {
    throw Error(ErrorCode::kCorrupt, path, "key 'split.no'", fmt::format("less than {}", count),
                fmt::format("{}", index));
  }
  const std::vector<std::string> paths = FindSplitFiles(path, index, count);
  for (uint64_t i = 0; i < count; ++i) {
    if (i == index && paths[i] == path) {
      readers.push_back(std::move(reader));
      parts.push_back(std::move(opened));
      continue;
    }
    readers.push_back(OpenFileReader(paths[i]));
    parts.push_back(ParseGgufPart(*readers.back(), foreign));
  }
  return Assemble(std::move(readers), std::move(parts));
}

GgufFile GgufFile::Open(const std::string& path, ForeignTensors foreign) {
  RefuseModelFolder(path);
  try {
    return OpenParts(path, foreign);
  } catch (const Error& error) {
    const bool is_format =
        error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kUnsupported;
    const std::optional<std::string> joining = is_format ? HowToJoin(path) : std::nullopt;
    if (!joining) throw;
    throw Error(ErrorCode::kUnsupported, path, *joining);
  }
}

GgufFile GgufFile::FromReaders(std::vector<std::unique_ptr<BlockReader>> parts,
                               ForeignTensors foreign) {
  if (parts.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "GGUF file", "number of parts", "at least 1", "0");
  }
  std::vector<GgufPart> parsed;
  for (const auto& reader : parts) parsed.push_back(ParseGgufPart(*reader, foreign));
  return Assemble(std::move(parts), std::move(parsed));
}

GgufFile GgufFile::Assemble(std::vector<std::unique_ptr<BlockReader>> readers,
                            std::vector<GgufPart> parts) {
  CheckParts(parts);
  GgufFile file;
  file.path_ = readers.front()->name();
  file.parts_ = std::move(readers);
  file.version_ = parts.front().version;
  file.alignment_ = parts.front().alignment;
  size_t num_tensors = 0;
  for (const GgufPart& part : parts) num_tensors += part.tensors.size();
  file.tensors_.reserve(num_tensors);
  for (size_t i = 0; i < parts.size(); ++i) {
    file.header_bytes_.push_back(std::min(parts[i].data_begin, file.parts_[i]->size_bytes()));
    file.AddTensors(parts[i], static_cast<uint32_t>(i));
  }
  file.metadata_ = std::move(parts.front().metadata);
  return file;
}

void GgufFile::AddTensors(GgufPart& part, uint32_t file_index) {
  const auto refuse_twice = [&](const std::string& name) {
    throw Error(ErrorCode::kCorrupt, part.metadata.file_name(),
                fmt::format("tensor '{}': name", Printable(name)), "one of its own",
                "one that an earlier tensor has");
  };
  for (GgufTensor& tensor : part.tensors) {
    tensor.file_index = file_index;
    if (!index_.emplace(tensor.name, tensors_.size()).second) refuse_twice(tensor.name);
    tensors_.push_back(std::move(tensor));
  }
  for (GgufForeignTensor& tensor : part.foreign) {
    if (!index_.emplace(tensor.name, kIsForeign).second) refuse_twice(tensor.name);
    foreign_.push_back(std::move(tensor));
  }
}

void GgufFile::RefuseForeignTensors() const {
  if (foreign_.empty()) return;
  const GgufForeignTensor& tensor = foreign_.front();
  throw Error(ErrorCode::kUnsupported, path_,
              fmt::format("tensor '{}': type", Printable(tensor.name)),
              "a tensor type that Hearth reads", DescribeForeignType(tensor.type));
}

std::optional<std::array<uint64_t, kGgufMaxDims>> GgufFile::FindShape(std::string_view name) const {
  if (const GgufTensor* tensor = FindTensorOrNull(name)) return tensor->ne;
  const auto found = std::find_if(foreign_.begin(), foreign_.end(),
                                  [&](const GgufForeignTensor& t) { return t.name == name; });
  if (found == foreign_.end()) return std::nullopt;
  return found->ne;
}

const GgufTensor* GgufFile::FindTensorOrNull(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end() || found->second == kIsForeign) return nullptr;
  return &tensors_[found->second];
}

const GgufTensor& GgufFile::GetTensor(std::string_view name) const {
  if (const GgufTensor* tensor = FindTensorOrNull(name)) return *tensor;
  throw Error(ErrorCode::kNotFound, path_, fmt::format("tensor '{}' is missing", Printable(name)));
}

void GgufFile::Assume(std::string_view key, GgufValue value) {
  if (metadata_.Has(key)) {
    throw Error(ErrorCode::kInternal, path_, "it says '" + std::string(key) + "' itself");
  }
  metadata_.Set(key, value);
  assumed_.Set(key, std::move(value));
}

uint64_t GgufFile::file_bytes() const {
  uint64_t bytes = 0;
  for (const auto& part : parts_) bytes += part->size_bytes();
  return bytes;
}

void GgufFile::ReadTensor(const GgufTensor& tensor, uint64_t begin,
                          std::span<std::byte> out) const {
  if (tensor.file_index >= parts_.size() || begin > tensor.bytes ||
      out.size() > tensor.bytes - begin) {
    throw Error(ErrorCode::kInvalidArgument, path_,
                fmt::format("read from tensor '{}'", Printable(tensor.name)),
                fmt::format("a range inside its {} bytes", tensor.bytes),
                fmt::format("{} bytes at {}", out.size(), begin));
  }
  parts_[tensor.file_index]->ReadAt(tensor.offset + begin, out);
}

void GgufFile::WillRead(const GgufTensor& tensor, uint64_t begin, uint64_t bytes) const noexcept {
  if (tensor.file_index >= parts_.size()) return;
  parts_[tensor.file_index]->WillRead(tensor.offset + begin, bytes);
}

void GgufFile::DropCached(const GgufTensor& tensor, uint64_t begin, uint64_t bytes) const noexcept {
  if (tensor.file_index >= parts_.size()) return;
  parts_[tensor.file_index]->DropCached(tensor.offset + begin, bytes);
}

void GgufFile::DropCached() const noexcept {
  for (const auto& part : parts_) part->DropCached(0, part->size_bytes());
}

}  // namespace hearth
