#include "hub/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "hub/partial_file.h"
#include "storage/atomic_file.h"
#include "storage/block_reader.h"
#include "storage/disk_space.h"

namespace hearth::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartialEnding = ".part";
constexpr size_t kPartialDigits = 16;  // of the hash
// An attempt that brought so much shows that the hub is there.
constexpr uint64_t kProgressBytes = uint64_t{1} << 20;
constexpr size_t kMostHashFileBytes = 4096;

std::string PartialPath(const std::string& path, const RepositoryFile& file) {
  return fmt::format("{}.{}{}", path, file.digest.substr(0, kPartialDigits), kPartialEnding);
}

std::string HashPath(const std::string& path) { return path + ".sha256"; }

void MakeFolders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(ErrorCode::kIo, folder.string(), "cannot be made: " + error.message());
}

uint64_t BytesOf(const std::string& path) {
  std::error_code missing;
  const auto bytes = fs::file_size(path, missing);
  return missing ? 0 : static_cast<uint64_t>(bytes);
}

// The partial files of `path`, whatever their hash.
std::vector<std::string> PartialsOf(const std::string& path) {
  std::vector<std::string> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path(), missing)) {
    if (FileOfPartial(entry.path().string()) == path) found.push_back(entry.path().string());
  }
  return found;
}

// Fetches one file. Lives as long as that takes.
class FileFetch {
 public:
  FileFetch(Hub& hub, const Repository& repository, const RepositoryFile& file, std::string path,
            const FetchOptions& options)
      : hub_(hub),
        repository_(repository),
        file_(file),
        path_(std::move(path)),
        options_(options) {}

  // Whether the whole file is here. Reads all of it where no hash lies beside it.
  bool IsHere(const std::function<void(uint64_t)>& progress) const {
    std::error_code missing;
    if (!fs::is_regular_file(path_, missing) || BytesOf(path_) != file_.bytes) return false;
    const std::string known = KnownHash();
    if (!known.empty()) return known == file_.digest;
    const RegularFile opened = OpenRegularFile(path_);
    FileDigest digest(file_.digest_kind, file_.bytes);
    AddFile(opened.handle.get(), path_, file_.bytes, digest, progress);
    if (digest.Finish() != file_.digest) return false;
    KeepHash();
    return true;
  }

  // Returns how many bytes came. `progress` gets how many are here.
  uint64_t Run(const std::function<void(uint64_t, const std::string&)>& progress) {
    MakeFolders(fs::path(path_).parent_path());
    PartialFile partial(
        PartialPath(path_, file_), path_,
        [&] { options_.notice(fmt::format("{}: another process fetches it; waiting", path_)); },
        options_.cancel);
    if (IsHere([](uint64_t) {})) {  // the other process was done
      partial.Remove();
      return 0;
    }
    RemoveOutdated();
    if (partial.bytes() > file_.bytes) partial.Clear();
    FileDigest digest(file_.digest_kind, file_.bytes);
    AddFile(partial.fd(), path_, partial.bytes(), digest,
            [&](uint64_t done) { progress(done, "checking what is here"); });
    const uint64_t before = partial.bytes();
    Transfer(partial, digest, progress);
    const std::string found = digest.Finish();
    if (found != file_.digest) {
      partial.Remove();
      throw Error(
          ErrorCode::kCorrupt, repository_.name + "/" + file_.path,
          fmt::format("what came is not what the hub has (hash {} instead of {}) and was "
                      "removed; fetch it again",
                      found.substr(0, kPartialDigits), file_.digest.substr(0, kPartialDigits)));
    }
    std::remove(HashPath(path_).c_str());  // of what the new file replaces
    partial.Finish();
    KeepHash();
    return file_.bytes - before;
  }

 private:
  // The hash that lies beside the file; empty where there is none.
  std::string KnownHash() const {
    std::error_code missing;
    const std::string hash_path = HashPath(path_);
    const uint64_t bytes = BytesOf(hash_path);
    const size_t digits = DigestDigits(DigestKind::kSha256);
    if (file_.digest_kind != DigestKind::kSha256 || bytes < digits || bytes > kMostHashFileBytes ||
        fs::last_write_time(hash_path, missing) < fs::last_write_time(path_, missing)) {
      return "";
    }
    std::string hash(digits, '0');
    OpenFileReader(hash_path)->ReadAt(0, std::as_writable_bytes(std::span(hash)));
    return hash;
  }

  void KeepHash() const {
    if (file_.digest_kind != DigestKind::kSha256) return;
    WriteFileAtomically(HashPath(path_),
                        fmt::format("{}  {}\n", file_.digest, fs::path(path_).filename().string()));
  }

  // Partial files of what the hub had before.
  void RemoveOutdated() const {
    for (const std::string& other : PartialsOf(path_)) {
      if (other == PartialPath(path_, file_) || !PartialFile::TryRemove(other)) continue;
      options_.notice(
          fmt::format("{}: it has changed on the hub and is fetched from its beginning", path_));
    }
  }

  // Attempt after attempt, each from where the last one ended.
  void Transfer(PartialFile& partial, FileDigest& digest,
                const std::function<void(uint64_t, const std::string&)>& progress) {
    size_t failures = 0;
    while (partial.bytes() < file_.bytes) {
      const uint64_t before = partial.bytes();
      const HttpAnswer answer = Attempt(partial, digest, progress);
      if (partial.bytes() == file_.bytes) return;
      if (partial.bytes() - before > kProgressBytes) failures = 0;
      if (failures == options_.waits.size() || (!answer.is_done() && !Hub::MayRetry(answer))) {
        if (answer.is_done()) throw Shorter(partial.bytes());
        throw hub_.RefusalOf(repository_, file_.path, answer);
      }
      const auto asked = std::chrono::milliseconds(std::chrono::seconds(answer.retry_after_s));
      Wait(std::max(options_.waits[failures++], asked),
           [&] { progress(partial.bytes(), "the connection broke, trying again"); });
    }
  }

  HttpAnswer Attempt(PartialFile& partial, FileDigest& digest,
                     const std::function<void(uint64_t, const std::string&)>& progress) {
    uint64_t at = 0;  // in the file, of the next byte that comes
    bool has_begun = false;
    const HttpRequest::Range range{.begin = partial.bytes()};
    return hub_.Read(
        repository_, file_, range, [&](const HttpAnswer& answer, std::span<const std::byte> piece) {
          if (!std::exchange(has_begun, true)) at = BeginOf(answer, partial.bytes());
          // A server without ranges begins with what is here.
          const uint64_t known = std::min<uint64_t>(partial.bytes() - at, piece.size());
          at += piece.size();
          if (at > file_.bytes) {
            throw Error(
                ErrorCode::kCorrupt, repository_.name + "/" + file_.path,
                fmt::format("the hub sends more than the {} bytes that it has said", file_.bytes));
          }
          piece = piece.subspan(static_cast<size_t>(known));
          partial.Append(piece);
          digest.Update(piece);
          progress(partial.bytes(), "");
        });
  }

  // Where the body begins in the file: at most at `wanted`.
  uint64_t BeginOf(const HttpAnswer& answer, uint64_t wanted) const {
    const bool is_wrong = answer.total_bytes.value_or(file_.bytes) != file_.bytes ||
                          (answer.range_begin != wanted && answer.range_begin != 0);
    if (!is_wrong) return answer.range_begin;
    throw Error(
        ErrorCode::kCorrupt, repository_.name + "/" + file_.path,
        fmt::format("asked for the bytes from {} of {}, the hub sends those from {} of {}", wanted,
                    file_.bytes, answer.range_begin, answer.total_bytes.value_or(0)));
  }

  Error Shorter(uint64_t bytes) const {
    return Error(ErrorCode::kCorrupt, repository_.name + "/" + file_.path,
                 fmt::format("the hub has said {} bytes and sends {}", file_.bytes, bytes));
  }

  template <typename Tell>
  void Wait(std::chrono::milliseconds time, Tell&& tell) const {
    constexpr std::chrono::milliseconds kStep{50};
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      if (options_.cancel != nullptr && *options_.cancel) {
        throw Error(ErrorCode::kCancelled, "", "interrupted");
      }
      tell();
      std::this_thread::sleep_for(std::min(kStep, time));
    }
  }

  Hub& hub_;
  const Repository& repository_;
  const RepositoryFile& file_;
  const std::string path_;
  const FetchOptions& options_;
};

// How many bytes are still to come, as far as sizes tell.
uint64_t MissingBytes(const std::vector<RepositoryFile>& files,
                      const std::vector<std::string>& paths) {
  uint64_t missing = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const uint64_t here = std::max(BytesOf(PartialPath(paths[i], files[i])),
                                   BytesOf(paths[i]) == files[i].bytes ? files[i].bytes : 0);
    missing += files[i].bytes - std::min(here, files[i].bytes);
  }
  return missing;
}

}  // namespace

std::string_view FileOfPartial(std::string_view path) {
  constexpr size_t kTail = 1 + kPartialDigits + kPartialEnding.size();
  if (path.size() <= kTail || !path.ends_with(kPartialEnding)) return "";
  const std::string_view tail = path.substr(path.size() - kTail);
  const std::string_view digits = tail.substr(1, kPartialDigits);
  const bool is_hex = digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return tail[0] == '.' && is_hex ? path.substr(0, path.size() - kTail) : "";
}

FetchedModel FetchModel(Hub& hub, const Repository& repository, const ModelFiles& model,
                        const FetchOptions& options) {
  const std::vector<RepositoryFile> files = repository.FilesOf(model);
  FetchedModel fetched;
  for (const RepositoryFile& file : files) {
    if (!IsSafePath(file.path) || !ParseModelName(repository.name)) {
      throw Error(ErrorCode::kInternal, repository.name, "a path that was not checked");
    }
    fetched.paths.push_back((fs::path(options.folder) / repository.name / file.path).string());
    fetched.bytes += file.bytes;
  }
  MakeFolders(fs::path(fetched.paths.front()).parent_path());
  CheckDiskSpace(fetched.paths.front(), MissingBytes(files, fetched.paths));
  uint64_t before = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto progress = [&](uint64_t done, const std::string& note) {
      options.progress(before + done, fetched.bytes, note);
    };
    FileFetch fetch(hub, repository, files[i], fetched.paths[i], options);
    const bool is_here =
        fetch.IsHere([&](uint64_t done) { progress(done, "checking what is here"); });
    if (!is_here) fetched.fetched_bytes += fetch.Run(progress);
    before += files[i].bytes;
  }
  return fetched;
}

}  // namespace hearth::hub
