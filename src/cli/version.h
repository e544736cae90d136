#pragma once

#include <string>

namespace hearth::cli {

// "hearth 0.1.0".
std::string VersionLine();

}  // namespace hearth::cli
