#include "cli/version.h"

namespace hearth::cli {

std::string VersionLine() { return "hearth " HEARTH_VERSION; }

}  // namespace hearth::cli
