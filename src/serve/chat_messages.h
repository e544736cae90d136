// Messages in requests of chats.
#pragma once

#include <vector>

#include "hearth/hearth.hpp"
#include "serve/json_fields.h"

namespace hearth::serve {

// "messages". Keys that clients add to messages and to their parts are ignored: they annotate them,
// and send back what other servers gave them. Throws RequestError, as all that read requests.
std::vector<api::ChatMessage> TakeMessages(Fields& fields);

}  // namespace hearth::serve
