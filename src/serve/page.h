// The chat page: "/" and the files under "/page/" that it loads. All of them are inside the
// program.
#pragma once

#include <optional>
#include <string_view>

#include "serve/reply.h"

namespace hearth::serve {

// Whether `path` is "/" or a file of the page. Reads none of them.
bool IsPageFile(std::string_view path);

// Returns that file with its type and policy, or nothing where there is none. All but "/" come
// compressed (Content-Encoding: gzip), whatever the client says: every browser takes that.
std::optional<Response> PageFileAt(std::string_view path);

}  // namespace hearth::serve
