// How a published embedding model makes one vector of a text. Internal to import/.
#pragma once

#include <string>

#include "format/gguf.h"

namespace hearth {

// Sets "<architecture>.pooling_type" where the folder has a modules.json, which says what comes
// after the model, as sentence-transformers writes it; leaves the metadata alone where it has none.
// Throws Error(kUnsupported) for kinds of pooling, and for layers after it, that cannot be run.
void SetPublishedPooling(const std::string& folder, const std::string& architecture,
                         GgufMetadata* metadata);

}  // namespace hearth
