#include "engine/session/session_root.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "storage/file_handle.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

struct SavedFile {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type last_used;
};

struct SessionFolder {
  fs::path path;
  std::vector<SavedFile> files;
  uint64_t bytes = 0;
};

SessionFolder Look(const fs::path& path) {
  SessionFolder folder = {.path = path, .files = {}, .bytes = 0};
  std::error_code failed;
  for (fs::directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;
    if (at->path().extension() != ".session" || !at->is_regular_file(gone)) continue;
    const uint64_t bytes = at->file_size(gone);
    const fs::file_time_type last_used = at->last_write_time(gone);
    if (gone) continue;
    folder.files.push_back({at->path(), bytes, last_used});
    folder.bytes += bytes;
  }
  return folder;
}

std::vector<SessionFolder> FoldersOf(const std::string& root, const std::string& but) {
  std::vector<SessionFolder> folders;
  std::error_code failed;
  for (fs::directory_iterator at(root, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;
    const bool is_folder = at->symlink_status(gone).type() == fs::file_type::directory;
    if (is_folder && at->path().filename() != but) folders.push_back(Look(at->path()));
  }
  return folders;
}

// Removes files until all folders have `most` bytes together, where no server uses them. Returns
// the bytes that are left.
uint64_t Trim(const std::vector<SessionFolder>& folders, uint64_t bytes, uint64_t most) {
  std::vector<SavedFile> removable;
  std::vector<FileHandle> locks;  // held until all is removed
  for (const SessionFolder& folder : folders) {
    FileHandle lock(open((folder.path / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock.get() < 0 || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    locks.push_back(std::move(lock));
    removable.insert(removable.end(), folder.files.begin(), folder.files.end());
  }
  std::sort(removable.begin(), removable.end(),
            [](const SavedFile& a, const SavedFile& b) { return a.last_used < b.last_used; });
  for (const SavedFile& file : removable) {
    if (bytes <= most) break;
    std::error_code gone;
    if (fs::remove(file.path, gone)) bytes -= file.bytes;
  }
  return bytes;
}

}  // namespace

std::string SessionFolderName(const std::string& model, const SessionIdentity& identity) {
  constexpr size_t kMostLetters = 80;
  std::string name;
  for (const char letter : model.substr(0, kMostLetters)) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
                          std::string_view("._-").find(letter) != std::string_view::npos;
    name += is_plain ? letter : '_';
  }
  return fmt::format("{}-{:016x}", name, SessionHashOf(identity, std::span<const TokenId>()));
}

uint64_t PrepareSessionRoot(const SessionRoot& root, const std::string& own_folder) {
  std::error_code failed;
  fs::create_directories(fs::path(root.folder).parent_path(), failed);
  if (mkdir(root.folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw Error(ErrorCode::kIo, root.folder,
                std::string("cannot make the folder: ") + std::strerror(errno));
  }
  const std::vector<SessionFolder> folders = FoldersOf(root.folder, own_folder);
  uint64_t bytes = 0;
  for (const SessionFolder& folder : folders) bytes += folder.bytes;
  const uint64_t most = root.limit_bytes / 2;
  if (bytes > most) bytes = Trim(folders, bytes, most);
  return root.limit_bytes - std::min(bytes, most);
}

}  // namespace hearth
