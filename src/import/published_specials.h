// Which tokens of a published vocabulary begin and end texts, and its chat template. Internal to
// import/.
#pragma once

#include "format/gguf.h"
#include "import/hugging_face_json.h"
#include "import/published_tokens.h"

namespace hearth {

// Files of a folder; those that it does not have are empty.
struct PublishedTokenFiles {
  const PublishedTokens& tokens;
  const PublishedJson& tokenizer;   // tokenizer.json
  const PublishedJson& settings;    // tokenizer_config.json
  const PublishedJson& config;      // config.json
  const PublishedJson& generation;  // generation_config.json
};

// Sets the ids of special tokens, whether texts begin with BOS, and the chat template. The first
// EOS is the tokenizer's; tokenizer.ggml.eos_token_ids lists it with all that the configs name.
// Throws Error(kCorrupt).
void SetPublishedSpecials(const PublishedTokenFiles& files, GgufMetadata* metadata);

}  // namespace hearth
