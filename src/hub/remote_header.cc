#include "hub/remote_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "storage/block_reader.h"
#include "storage/file_writer.h"

namespace hearth::hub {
namespace {

namespace fs = std::filesystem;

// Headers without a vocabulary fit into the first range, most into the second.
constexpr uint64_t kFirstRangeBytes = uint64_t{1} << 20;
// As much as the GGUF reader takes of any file.
constexpr uint64_t kMostHeaderBytes = uint64_t{256} << 20;
constexpr int kMostAttempts = 3;

// The beginning of a file on the hub, read as far as somebody has asked for it.
class RemoteReader : public BlockReader {
 public:
  RemoteReader(Hub& hub, const Repository& repository, RepositoryFile file)
      : hub_(hub),
        repository_(repository),
        file_(std::move(file)),
        name_(repository.name + "/" + file_.path) {}

  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override { return file_.bytes; }

  void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > file_.bytes || out.size() > file_.bytes - offset) {
      throw Error(ErrorCode::kCorrupt, name_, "range",
                  fmt::format("inside the file of {} bytes", file_.bytes),
                  fmt::format("{} bytes at {}", out.size(), offset));
    }
    if (out.empty()) return;
    const std::lock_guard lock(mutex_);
    Extend(offset + out.size());
    std::memcpy(out.data(), known_.data() + offset, out.size());
  }

 private:
  // Makes known_ at least so long.
  void Extend(uint64_t wanted) const {
    if (wanted > kMostHeaderBytes) {
      throw Error(ErrorCode::kUnsupported, name_,
                  "only the header can be read before it is fetched");
    }
    for (int attempt = 1; known_.size() < wanted; ++attempt) {
      const uint64_t doubled = std::max<uint64_t>(kFirstRangeBytes, 2 * known_.size());
      const uint64_t end = std::min(std::max(wanted, doubled), file_.bytes);
      const HttpAnswer answer = ReadUpTo(end);
      if (known_.size() >= wanted) return;
      if (attempt < kMostAttempts && (answer.is_done() || Hub::MayRetry(answer))) continue;
      if (!answer.is_done()) throw hub_.RefusalOf(repository_, file_.path, answer);
      throw Error(
          ErrorCode::kCorrupt, name_,
          fmt::format("the hub sends {} of the {} bytes that were asked for", known_.size(), end));
    }
  }

  HttpAnswer ReadUpTo(uint64_t end) const {
    const uint64_t begin = known_.size();
    uint64_t at = begin;
    bool has_begun = false;
    return hub_.Read(repository_, file_, {.begin = begin, .end = end},
                     [&](const HttpAnswer& answer, std::span<const std::byte> piece) {
                       if (!std::exchange(has_begun, true)) at = answer.range_begin;
                       // No more than was asked for, and nothing that is known already: a server
                       // without ranges sends all of the file.
                       if (at != known_.size() || piece.size() > end - at) {
                         throw Error(ErrorCode::kUnsupported, name_,
                                     "the hub sends no ranges of files: it can be fetched, but not "
                                     "looked at before");
                       }
                       at += piece.size();
                       known_.insert(known_.end(), piece.begin(), piece.end());
                     });
  }

  Hub& hub_;
  const Repository& repository_;
  const RepositoryFile file_;
  const std::string name_;
  mutable std::mutex mutex_;
  mutable std::vector<std::byte> known_;
};

}  // namespace

GgufFile OpenRemoteHeader(Hub& hub, const Repository& repository, const ModelFiles& model) {
  std::vector<std::unique_ptr<BlockReader>> parts;
  for (RepositoryFile& file : repository.FilesOf(model)) {
    parts.push_back(std::make_unique<RemoteReader>(hub, repository, std::move(file)));
  }
  return GgufFile::FromReaders(std::move(parts));
}

std::string SaveHeaders(const GgufFile& file, const Repository& repository, const ModelFiles& model,
                        const std::string& folder) {
  const std::vector<RepositoryFile> files = repository.FilesOf(model);
  std::string first;
  for (size_t i = 0; i < files.size(); ++i) {
    const fs::path path = fs::path(folder) / fs::path(files[i].path).filename();
    std::vector<std::byte> header(static_cast<size_t>(file.header_bytes(i)));
    file.part(i).ReadAt(0, header);
    FileWriter writer(path.string());
    writer.Write(header);
    writer.Close();
    std::error_code error;
    fs::resize_file(path, files[i].bytes, error);
    if (error) {
      throw Error(ErrorCode::kIo, path.string(), "cannot be made as long: " + error.message());
    }
    if (i == 0) first = path.string();
  }
  return first;
}

}  // namespace hearth::hub
