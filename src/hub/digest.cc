#include "hub/digest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace hearth::hub {
namespace {

constexpr size_t kHashedAtOnce = size_t{1} << 20;

void CheckDigest(int result) {
  if (result != 1) throw Error(ErrorCode::kInternal, "libcrypto", "cannot hash");
}

}  // namespace

size_t DigestDigits(DigestKind kind) { return kind == DigestKind::kSha256 ? 64 : 40; }

FileDigest::FileDigest(DigestKind kind, uint64_t total_bytes)
    : library_(LoadDigests()), context_(library_.make(), library_.free) {
  if (context_ == nullptr) throw std::bad_alloc();
  const bool is_git = kind == DigestKind::kGitSha1;
  CheckDigest(library_.init(context_.get(), is_git ? library_.sha1() : library_.sha256(), nullptr));
  if (!is_git) return;
  const std::string head = fmt::format("blob {}", total_bytes);
  CheckDigest(library_.update(context_.get(), head.c_str(), head.size() + 1));  // with its 0
}

void FileDigest::Update(std::span<const std::byte> bytes) {
  CheckDigest(library_.update(context_.get(), bytes.data(), bytes.size()));
}

std::string FileDigest::Finish() {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CheckDigest(library_.final(context_.get(), hash, &size));
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", hash[i]);
  return hex;
}

void AddFile(int fd, const std::string& name, uint64_t bytes, FileDigest& digest,
             const std::function<void(uint64_t)>& progress) {
  std::vector<std::byte> piece(kHashedAtOnce);
  uint64_t done = 0;
  while (done < bytes) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(piece.size(), bytes - done));
    const ssize_t n = pread(fd, piece.data(), wanted, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Error(
          ErrorCode::kIo, name,
          fmt::format("cannot read: {}", n < 0 ? std::strerror(errno) : "it was cut short"));
    }
    digest.Update(std::span(piece).first(static_cast<size_t>(n)));
    done += static_cast<uint64_t>(n);
    progress(done);
  }
}

}  // namespace hearth::hub
