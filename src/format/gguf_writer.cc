#include "format/gguf_writer.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "format/gguf_parse.h"
#include "format/gguf_serialize.h"

namespace hearth {
namespace {

// Of this process alone, so that two writers to one path do not mix.
std::string TemporaryName(const std::string& path) {
  return path + "." + std::to_string(getpid()) + ".partial";
}

// Finish renames over `path`; what is no file must not be replaced, and it is better to know
// before gigabytes are written.
void CheckReplaceable(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return;
  throw Error(ErrorCode::kIo, path, "cannot write", "a regular file or a free name",
              S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
}

}  // namespace

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata,
                       std::vector<GgufTensorDecl> tensors)
    : path_(path), temporary_path_(TemporaryName(path)) {
  const GgufLayout layout = PlanGguf(path, metadata, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    planned_.push_back({layout.offsets[i], layout.bytes[i]});
  }
  total_bytes_ = layout.total_bytes;
  CheckReplaceable(path);
  file_ = std::make_unique<FileWriter>(temporary_path_, path);
  try {
    file_->Write(layout.header);
  } catch (...) {
    std::remove(temporary_path_.c_str());  // the destructor will not run
    throw;
  }
}

GgufWriter::~GgufWriter() {
  if (finished_) return;
  file_.reset();
  std::remove(temporary_path_.c_str());
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

void GgufWriter::Finish() {
  if (finished_) return;
  if (next_ < planned_.size()) {
    throw Error(ErrorCode::kInvalidArgument, path_, "tensors written",
                fmt::format("{}", planned_.size()), fmt::format("{}", next_));
  }
  file_->Close();
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    throw Error(ErrorCode::kIo, path_,
                fmt::format("cannot rename to it: {}", std::strerror(errno)));
  }
  finished_ = true;
}

uint64_t GgufWriter::written_bytes() const { return file_->written_bytes(); }

}  // namespace hearth
