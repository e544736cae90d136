// The chat page at "/": one HTML file that asks nobody but this server.
#pragma once

#include <string_view>

namespace hearth::serve {

std::string_view PageHtml();

}  // namespace hearth::serve
