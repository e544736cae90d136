#include "storage/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace hearth {
namespace {

constexpr std::string_view kPartial = ".partial";

// Of this process alone, so that two writers to one path do not mix.
std::string TemporaryName(const std::string& path) {
  return path + "." + std::to_string(getpid()) + std::string(kPartial);
}

// Of the process that a temporary name was made by; 0 where it is none.
pid_t WriterOf(std::string_view name) {
  if (!name.ends_with(kPartial)) return 0;
  name.remove_suffix(kPartial.size());
  const std::string_view digits = name.substr(name.rfind('.') + 1);
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  return error == std::errc() && end == digits.data() + digits.size() && pid > 0 ? pid : 0;
}

// Better known before gigabytes are written.
void CheckReplaceable(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return;
  throw Error(ErrorCode::kIo, path, "cannot write", "a regular file or a free name",
              S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
}

// What a link leads to, whether it exists or not: that is what is to be made or replaced, on its
// disk, and the link is to stay.
std::string BehindLinks(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the system follows
  std::filesystem::path at = path;
  std::error_code failure;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(at, failure); ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(at, failure);
    if (failure) break;
    at = at.parent_path() / target;
  }
  return at.string();
}

// So that the disk has the name too. Not every file system can; the file is there in any case.
void SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  static_cast<void>(fsync(fd));
  close(fd);
}

// Removes what processes that are gone left in a folder under names that begin so.
void RemoveLeftovers(const std::filesystem::path& folder, const std::string& beginning) noexcept {
  try {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      const pid_t writer = name.starts_with(beginning) ? WriterOf(name) : 0;
      if (writer > 0 && kill(writer, 0) != 0 && errno == ESRCH) {
        std::remove(entry.path().c_str());
      }
    }
  } catch (const std::exception&) {
    // They only take room.
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, unsigned permissions)
    : path_(BehindLinks(path)), temporary_path_(TemporaryName(path_)) {
  CheckReplaceable(path_);
  const std::filesystem::path target = path_;
  RemoveLeftovers(target.has_parent_path() ? target.parent_path() : ".",
                  target.filename().string() + ".");
  file_ = std::make_unique<FileWriter>(temporary_path_, path, permissions);
}

AtomicFile::~AtomicFile() {
  if (finished_) return;
  file_.reset();
  std::remove(temporary_path_.c_str());
}

void AtomicFile::Finish() {
  if (finished_) return;
  // Before the name: else a power cut could leave the name without what it stands for.
  file_->Sync();
  file_->Close();
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    throw Error(ErrorCode::kIo, path_,
                fmt::format("cannot rename to it: {}", std::strerror(errno)));
  }
  finished_ = true;
  SyncFolderOf(path_);
}

void WriteFileAtomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.Write(std::as_bytes(std::span(text)));
  file.Finish();
}

void RemoveAbandoned(const std::string& folder) noexcept { RemoveLeftovers(folder, ""); }

void CheckWritable(const std::string& path) { AtomicFile probe(path); }

}  // namespace hearth
