// Whether a file will fit on its disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hearth {

// Returns the free bytes of the file system on which `path` lies, or will lie; nothing where the
// system does not say.
std::optional<uint64_t> FreeDiskBytes(const std::string& path);

// A disk that fills up after minutes is worse news than one that is known to be too small: throws
// Error(kIo), naming `path`, where the file system that it will lie on has fewer free bytes. A
// system that does not say how many passes.
void CheckDiskSpace(const std::string& path, uint64_t needed_bytes);

}  // namespace hearth
