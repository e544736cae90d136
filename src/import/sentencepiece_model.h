// tokenizer.model: a SentencePiece model as its trainer writes it. Internal to import/.
//
// The file is one message in the wire format of protocol buffers, as published with
// sentencepiece_model.proto. Treated as hostile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hearth {

struct SentencePieceModel {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> types;  // numbered as TokenType
  int32_t unk_id = 0;
  int32_t bos_id = 1;
  int32_t eos_id = 2;
  int32_t pad_id = -1;
  bool add_dummy_prefix = true;
};

// `bytes` is the whole file; `path` begins messages. Throws Error(kCorrupt) where it is not such a
// message, and Error(kUnsupported), naming the kind, for a model that is not BPE or that changes
// texts before it cuts them.
SentencePieceModel ParseSentencePieceModel(const std::string& bytes, const std::string& path);

}  // namespace hearth
