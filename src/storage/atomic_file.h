// A new file that takes its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "storage/file_writer.h"

namespace hearth {

// Writes beside `path` (or what it is a link to) under a temporary name; Finish renames. What was
// there before stays until then, and stays where Finish is never called. Removes what others that
// were killed left of the same path. Not thread-safe.
class AtomicFile {
 public:
  // Throws Error(kIo) where the file cannot be made, or where `path` is a directory, device or
  // pipe, which a rename must not replace.
  explicit AtomicFile(const std::string& path, unsigned permissions = 0666);
  ~AtomicFile();  // removes the temporary file unless Finish was called
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(std::span<const std::byte> bytes) { file_->Write(bytes); }
  void Overwrite(uint64_t offset, std::span<const std::byte> bytes) {
    file_->Overwrite(offset, bytes);
  }
  void KeepOutOfPageCache() { file_->KeepOutOfPageCache(); }
  uint64_t written_bytes() const { return file_->written_bytes(); }

  // Where the file is until it takes its name; with all that was written after Flush.
  const std::string& temporary_path() const { return temporary_path_; }
  void Flush() { file_->Flush(); }

  // Waits until the disk has all bytes, then renames, so that after a power cut the name stands for
  // the old file or for all of the new one. Throws Error(kIo) where the system could not take the
  // bytes or the name.
  void Finish();

 private:
  std::string path_;
  std::string temporary_path_;
  std::unique_ptr<FileWriter> file_;
  bool finished_ = false;
};

// A whole file of its text. Throws as AtomicFile does.
void WriteFileAtomically(const std::string& path, std::string_view text);

// Removes what AtomicFiles of processes that are gone left in a folder: of those that were killed
// before they finished.
void RemoveAbandoned(const std::string& folder) noexcept;

// Throws what writing `path` as an AtomicFile would at its start, and leaves nothing behind: a name
// that cannot be written is better known before hours of work.
void CheckWritable(const std::string& path);

}  // namespace hearth
