// Whether a file will fit on its disk.
#pragma once

#include <cstdint>
#include <string>

namespace hearth {

// A disk that fills up after minutes is worse news than one that is known to be too small: throws
// Error(kIo), naming `path`, where the file system that it will lie on has fewer free bytes. A
// system that does not say how many passes.
void CheckDiskSpace(const std::string& path, uint64_t needed_bytes);

}  // namespace hearth
