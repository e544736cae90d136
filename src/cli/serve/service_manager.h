// What a service manager (systemd) is told of the program.
#pragma once

#include <string_view>

namespace hearth::cli {

// Sends `state`, such as "READY=1", to the socket that $NOTIFY_SOCKET names
// (sd_notify(3)). Nothing happens where there is none, or where nobody listens.
void TellServiceManager(std::string_view state) noexcept;

}  // namespace hearth::cli
