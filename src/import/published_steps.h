// What a published tokenizer does to a text before it is merged. Internal to import/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "import/hugging_face_json.h"

namespace hearth {

struct PublishedSteps {
  bool nfc = false;
  // Of SentencePiece-like tokenizers.
  bool prepends_space = false;           // to each text, whatever it begins with
  std::optional<std::string> metaspace;  // prepend_scheme: "always", "first", "never"
  // Of byte-level ones: the text is cut by these, one after another.
  bool byte_level = false;
  std::vector<std::string> patterns;
};

// The "normalizer" and "pre_tokenizer" of a tokenizer.json. Throws Error(kUnsupported), naming it,
// for every step that Hearth does not do, and Error(kCorrupt).
PublishedSteps ReadPublishedSteps(const PublishedJson& tokenizer);

}  // namespace hearth
