// The tokenizer of a published folder as the vocabulary of a GGUF file. Internal to import/.
#pragma once

#include <string>

#include "format/gguf.h"
#include "import/hugging_face_json.h"

namespace hearth {

// Sets the `tokenizer.*` keys: from tokenizer.json or, where the folder has none, tokenizer.model
// with added_tokens.json; what else is there (tokenizer_config.json, generation_config.json) says
// which tokens begin and end texts. Throws Error(kUnsupported), naming it, for a tokenizer that is
// no BPE, a pre-tokenizer, normalizer or flag that is not there; Error(kCorrupt); and
// Error(kNotFound) for a folder without a tokenizer.
void SetPublishedTokenizer(const std::string& folder, const PublishedJson& config,
                           GgufMetadata* metadata);

}  // namespace hearth
