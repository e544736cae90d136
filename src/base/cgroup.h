// The control groups around this process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace hearth {

// Calls fn with the directory of every cgroup that this process is in for `controller` ("memory",
// "cpu"), from its own up to the root: v1 hierarchies with is_v2 false, the v2 one with true.
// Directories need not exist (a container may hide them).
void ForEachCgroup(const std::string& controller,
                   const std::function<void(const std::string& directory, bool is_v2)>& fn);

// The number a file begins with; nothing where the file is missing or says something else ("max").
std::optional<int64_t> ReadNumberFile(const std::string& path);

}  // namespace hearth
