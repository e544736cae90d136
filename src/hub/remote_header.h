// The header of a model that is on the hub: what it is, before it is fetched.
#pragma once

#include <functional>
#include <string>

#include "format/gguf.h"
#include "hub/repository.h"

namespace hearth::hub {

// Opens a model on the hub as a GGUF file of which the headers are read, by ranges that grow until
// the GGUF reader has all it wants. Reading tensors throws Error(kUnsupported). Throws what
// Hub::RefusalOf says and what the GGUF reader refuses, naming OWNER/REPO/FILE. Keeps references
// to the hub and the repository.
GgufFile OpenRemoteHeader(Hub& hub, const Repository& repository, const ModelFiles& model);

// Writes the headers as files of the full size, whose tensors are holes and read as zeros, under
// the model's own names into `folder`. Whatever looks at headers alone can open them. Returns the
// path of the first part. Throws Error(kIo).
std::string SaveHeaders(const GgufFile& file, const Repository& repository, const ModelFiles& model,
                        const std::string& folder);

}  // namespace hearth::hub
