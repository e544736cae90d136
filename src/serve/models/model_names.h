// Names of models, as messages show them.
#pragma once

#include <string>
#include <vector>

#include "serve/request_error.h"

namespace hearth::serve {

// Safe to print, and all of any usual name.
std::string ShownName(const std::string& name);
// "'a', 'b'", cut where there are many; "none" where there is none.
std::string NameList(const std::vector<std::string>& names);

// There is no model of the name that is asked for. has: names of those there are.
RequestError NoSuchModel(const std::string& asked, const std::vector<std::string>& has);

}  // namespace hearth::serve
