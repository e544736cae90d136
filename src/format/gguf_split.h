// The files of a split set, found from one of them. Internal to format/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hearth {

// Paths of the files of a set of `count` files, the first part first; `path` is part `index` (from
// 0) of it. They are found by their names ("name-00001-of-00003.gguf"), also where `path` links to
// such a name; else in the folder of `path`, or of what it links to, by what their headers say.
// Throws Error(kNotFound) where one is missing, Error(kUnsupported) where several files could be
// the same part.
std::vector<std::string> FindSplitFiles(const std::string& path, uint64_t index, uint64_t count);

}  // namespace hearth
