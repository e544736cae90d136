// A file on its way to its name, which one process writes at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "storage/file_handle.h"

namespace hearth::hub {

// Not thread-safe. Errors name the final path, and the system's reason.
class PartialFile {
 public:
  // Opens or makes the file at partial_path and locks it. Where another process holds it, calls
  // on_wait once and waits for it, until `cancel` is set (Error(kCancelled)).
  PartialFile(std::string partial_path, std::string final_path,
              const std::function<void()>& on_wait, const std::atomic<bool>* cancel);

  int fd() const { return handle_.get(); }
  uint64_t bytes() const { return bytes_; }

  void Append(std::span<const std::byte> bytes);
  void Clear();
  // Waits until the disk has it and gives it its name, in place of what was there.
  void Finish();
  void Remove();

  // Removes a partial file unless another process writes it; returns whether it is gone.
  static bool TryRemove(const std::string& partial_path);

 private:
  bool HoldsItsName() const;
  [[noreturn]] void Fail(const char* verb, int reason) const;

  std::string partial_path_;
  std::string final_path_;
  FileHandle handle_;
  uint64_t bytes_ = 0;
};

}  // namespace hearth::hub
