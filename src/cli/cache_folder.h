// Where commands keep what they found out for each other.
#pragma once

#include <string>

namespace hearth::cli {

// $XDG_CACHE_HOME/hearth, or ~/.cache/hearth; empty where the environment names neither. Need not
// exist.
std::string CacheFolder();

// The profile of this machine that `hearth doctor` saves there; empty like the folder.
std::string SavedHardwarePath();

}  // namespace hearth::cli
