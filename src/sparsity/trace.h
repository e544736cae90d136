// Access traces: which neurons are active, token by token, so that caches, plans and devices can be
// tried on them (docs/formats/trace.md). Written and read as a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/atomic_file.h"
#include "storage/block_reader.h"
#include "tensor/op_kinds.h"

namespace hearth {

struct TraceHeader {
  std::string model_name;   // general.name
  uint64_t model_hash = 0;  // ModelHash
  FfnActivation activation = FfnActivation::kSilu;
  int64_t num_layers = 0;
  int64_t num_experts = 0;  // 0: one FFN per layer
  int64_t num_experts_per_token = 0;
  int64_t intermediate_size = 0;

  // Every token has as many lists of neurons in every layer.
  int64_t lists_per_layer() const { return num_experts > 0 ? num_experts_per_token : 1; }
  int64_t lists_per_token() const { return num_layers * lists_per_layer(); }
};

// Not thread-safe. Holds the lists of one batch, encoded.
class TraceWriter {
 public:
  // Creates the file; it takes its name in Finish. Throws Error(kIo), and Error(kUnsupported) for
  // sizes that no reader would take.
  TraceWriter(const std::string& path, const TraceHeader& header);

  // A batch: tokens of one sequence that follow each other. `starts_sequence`: the first of them
  // has nothing before it.
  void BeginBatch(std::span<const int32_t> token_ids, bool starts_sequence);
  // The active neurons, ascending, of one token of the batch in the FFN that is next for it: layer
  // by layer, in a layer expert by expert in ascending order. expert is 0 where there are none.
  void Append(int64_t token, int32_t expert, std::span<const int32_t> neurons);
  // Writes the batch. Throws Error(kInternal) where lists are missing or too many, Error(kIo).
  void EndBatch();

  // Ends the file after the last batch and gives it its name.
  void Finish();

  uint64_t tokens() const { return tokens_; }
  uint64_t written_bytes() const { return file_.written_bytes(); }
  // The most that a batch of `tokens` takes in memory.
  uint64_t BatchBytes(int64_t tokens) const;

 private:
  void WriteBlock(uint32_t tokens, std::span<const std::byte> payload);

  TraceHeader header_;
  AtomicFile file_;
  std::vector<std::vector<std::byte>> records_;  // of the batch's tokens
  std::vector<int64_t> lists_;                   // that each has so far
  int64_t batch_tokens_ = 0;
  std::vector<std::byte> payload_;
  uint64_t tokens_ = 0;
};

// One token of a trace.
class TraceToken {
 public:
  int32_t id = 0;                // in the vocabulary
  bool starts_sequence = false;  // nothing before it

  // The lists in order: layer by layer, TraceHeader::lists_per_layer of them each.
  int64_t num_lists() const { return static_cast<int64_t>(experts_.size()); }
  int32_t expert(int64_t list) const { return experts_[static_cast<size_t>(list)]; }
  std::span<const int32_t> neurons(int64_t list) const {
    const auto i = static_cast<size_t>(list);
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(neurons_).subspan(begin, ends_[i] - begin);
  }

 private:
  friend class TraceReader;
  std::vector<int32_t> experts_;
  std::vector<size_t> ends_;  // of each list in neurons_
  std::vector<int32_t> neurons_;
};

// Not thread-safe. Holds one block of the file (about 1 MiB).
class TraceReader {
 public:
  // Reads the header and how many tokens follow. Throws Error(kCorrupt) where it is no trace, or
  // one that was cut short, Error(kUnsupported) for a later version.
  explicit TraceReader(std::unique_ptr<BlockReader> file);

  const TraceHeader& header() const { return header_; }
  uint64_t num_tokens() const { return num_tokens_; }

  // The next token into `token`, whose memory is used again; false after the last one. Throws
  // Error(kCorrupt) for a block that was altered or makes no sense.
  bool Next(TraceToken& token);

 private:
  void ReadHeader();
  void ReadEnd();
  void ReadBlock();
  void DecodeToken(TraceToken& token);
  void DecodeList(TraceToken& token);
  void DecodeDeltas(uint64_t count, TraceToken& token);
  void DecodeBitmap(uint64_t count, TraceToken& token);
  uint64_t TakeNumber(uint64_t most, const char* field);
  [[noreturn]] void Refuse(const char* field, const std::string& expected,
                           const std::string& found) const;

  std::unique_ptr<BlockReader> file_;
  TraceHeader header_;
  uint64_t num_tokens_ = 0;
  uint64_t read_tokens_ = 0;
  uint64_t position_ = 0;  // of the next block in the file
  uint64_t end_ = 0;       // where the blocks end
  std::vector<std::byte> payload_;
  size_t at_ = 0;              // of the next byte in payload_
  uint32_t block_tokens_ = 0;  // left in payload_
};

}  // namespace hearth
