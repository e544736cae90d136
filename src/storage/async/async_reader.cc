#include "storage/async/async_reader.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "storage/async/pread_file.h"
#include "storage/async/uring_file.h"

namespace hearth {

std::unique_ptr<AsyncFile> MakeAsyncFile(OpenedFile file, const AsyncFileOptions& options) {
  if (options.backend != IoBackend::kPread) {
    const std::string why_not = WhyNoUring();
    if (why_not.empty()) return MakeUringFile(std::move(file));
    if (options.backend == IoBackend::kIoUring) {
      throw Error(ErrorCode::kUnsupported, file.path,
                  fmt::format("cannot be read with io_uring: {}", why_not));
    }
    file.note += fmt::format("{}no io_uring: {}", file.note.empty() ? "" : "; ", why_not);
  }
  return MakePreadFile(std::move(file), options.pread_threads);
}

std::unique_ptr<AsyncFile> OpenAsyncFile(const std::string& path, const AsyncFileOptions& options) {
  return MakeAsyncFile(OpenForReading(path, options.direct), options);
}

void ThrowReadError(const AsyncFile& file, const std::string& what, int error) {
  file.CheckUnchanged();
  throw Error(ErrorCode::kIo, file.name(),
              fmt::format("reading {} failed: {}", what, std::generic_category().message(error)));
}

}  // namespace hearth
