// What of a file is in the page cache, for tests.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "storage/file_handle.h"

namespace hearth {

// Bytes in the page cache; SIZE_MAX where that cannot be found out.
inline size_t CachedBytes(const std::string& path, size_t size) {
  const FileHandle handle(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, handle.get(), 0);
  if (map == MAP_FAILED) return SIZE_MAX;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  mincore(map, size, pages.data());
  munmap(map, size);
  size_t cached = 0;
  for (const unsigned char state : pages) cached += (state & 1) != 0 ? page : 0;
  return cached;
}

// Writes out what is there and forgets it.
inline void DropByHand(const std::string& path) {
  const FileHandle handle(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  fsync(handle.get());
  posix_fadvise(handle.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace hearth
