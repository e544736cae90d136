#include "format/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "format/gguf_parse.h"
#include "format/gguf_serialize.h"

namespace hearth {

uint32_t FileTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ5_0:
      return 8;
    case DType::kBF16:
      return 32;
    default:
      return 0;  // F32
  }
}

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata,
                       std::vector<GgufTensorDecl> tensors)
    : path_(path) {
  GgufLayout layout = PlanGguf(path, metadata, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    planned_.push_back({layout.offsets[i], layout.bytes[i]});
  }
  total_bytes_ = layout.total_bytes;
  header_ = std::move(layout.header);
  values_ = std::move(layout.values);
  file_ = std::make_unique<AtomicFile>(path);
  file_->Write(header_);
}

void GgufWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > BytesLeftInTensor()) {
    throw Error(ErrorCode::kInvalidArgument, path_,
                fmt::format("bytes appended to tensor {} of {}", next_ + 1, planned_.size()),
                fmt::format("at most {}", BytesLeftInTensor()), fmt::format("{}", bytes.size()));
  }
  if (bytes.empty()) return;
  file_->Write(bytes);
  done_in_tensor_ += bytes.size();
  if (done_in_tensor_ < planned_[next_].bytes) return;

  ++next_;
  done_in_tensor_ = 0;
  static constexpr std::array<std::byte, 4096> kZeros = {};
  uint64_t padding =
      (next_ < planned_.size() ? planned_[next_].offset : total_bytes_) - file_->written_bytes();
  while (padding > 0) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(padding, kZeros.size()));
    file_->Write(std::span(kZeros).first(count));
    padding -= count;
  }
}

uint64_t GgufWriter::BytesLeftInTensor() const {
  return next_ < planned_.size() ? planned_[next_].bytes - done_in_tensor_ : 0;
}

void GgufWriter::SetValue(std::string_view key, const GgufValue& value) {
  const std::vector<std::byte> bytes = SerializeGgufValue(path_, key, value);
  const auto found = values_.find(key);
  const uint64_t room = found == values_.end() ? 0 : found->second.second - found->second.first;
  // What a reader needs to get past the value must not change: the type number, and of an array the
  // type and number of its elements.
  const size_t shape_bytes =
      value.type == GgufType::kArray ? 2 * sizeof(uint32_t) + sizeof(uint64_t) : sizeof(uint32_t);
  if (bytes.size() != room ||
      std::memcmp(bytes.data(), header_.data() + found->second.first, shape_bytes) != 0) {
    throw Error(ErrorCode::kInvalidArgument, path_, fmt::format("new value of '{}'", key),
                fmt::format("the same type in {} bytes", room),
                fmt::format("{} in {}", GgufTypeName(value.type), bytes.size()));
  }
  std::memcpy(header_.data() + found->second.first, bytes.data(), bytes.size());
  header_changed_ = true;
}

const std::string& GgufWriter::Complete() {
  if (next_ < planned_.size()) {
    throw Error(ErrorCode::kInvalidArgument, path_, "tensors written",
                fmt::format("{}", planned_.size()), fmt::format("{}", next_));
  }
  if (header_changed_) file_->Overwrite(0, header_);
  header_changed_ = false;
  file_->Flush();
  return file_->temporary_path();
}

void GgufWriter::Finish() {
  Complete();
  file_->Finish();
}

uint64_t GgufWriter::written_bytes() const { return file_->written_bytes(); }

}  // namespace hearth
