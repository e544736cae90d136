// tokenizer.json as the vocabulary of a GGUF file. Internal to prepare/.
#pragma once

#include "format/gguf.h"
#include "prepare/hugging_face_json.h"

namespace hearth {

// Sets the `tokenizer.*` keys. `settings` is tokenizer_config.json, which may be empty. Throws
// Error(kUnsupported), naming it, for a tokenizer that is no BPE or whose pre-tokenizer is not
// built in, and Error(kCorrupt).
void SetPublishedTokenizer(const PublishedJson& tokenizer, const PublishedJson& settings,
                           const PublishedJson& config, GgufMetadata* metadata);

}  // namespace hearth
