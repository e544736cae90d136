// Where Hearth keeps what it learned of machines and models.
#pragma once

#include <string>

namespace hearth::cli {

// $XDG_CACHE_HOME/hearth, or ~/.cache/hearth; made where it is not there. Throws Error(kNotFound)
// where the environment names neither, Error(kIo).
std::string CacheFolder();

}  // namespace hearth::cli
