#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "sparsity/trace.h"
#include "sparsity/trace_layout.h"

namespace hearth {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are written as they lie");

// LEB128: seven bits a byte, the lowest first, the top bit set in all but the last.
void PutNumber(uint64_t value, std::vector<std::byte>& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<std::byte>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<std::byte>(value));
}

size_t NumberBytes(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

// Neurons between one listed and the next.
size_t DeltaBytes(std::span<const int32_t> neurons) {
  size_t bytes = 0;
  int32_t next = 0;
  for (const int32_t neuron : neurons) {
    bytes += NumberBytes(static_cast<uint64_t>(neuron - next));
    next = neuron + 1;
  }
  return bytes;
}

void PutDeltas(std::span<const int32_t> neurons, std::vector<std::byte>& out) {
  int32_t next = 0;
  for (const int32_t neuron : neurons) {
    PutNumber(static_cast<uint64_t>(neuron - next), out);
    next = neuron + 1;
  }
}

void PutBitmap(std::span<const int32_t> neurons, size_t bytes, std::vector<std::byte>& out) {
  const size_t begin = out.size();
  out.resize(begin + bytes);
  for (const int32_t neuron : neurons) {
    const auto n = static_cast<size_t>(neuron);
    out[begin + n / 8] |= static_cast<std::byte>(1u << n % 8);
  }
}

void PutList(std::span<const int32_t> neurons, int64_t intermediate_size,
             std::vector<std::byte>& out) {
  const size_t bitmap_bytes = (static_cast<size_t>(intermediate_size) + 7) / 8;
  trace::ListKind kind = trace::kAll;
  if (neurons.size() < static_cast<size_t>(intermediate_size)) {
    kind = DeltaBytes(neurons) <= bitmap_bytes ? trace::kDeltas : trace::kBitmap;
  }
  PutNumber(uint64_t{neurons.size()} << trace::kKindBits | kind, out);
  if (kind == trace::kDeltas) PutDeltas(neurons, out);
  if (kind == trace::kBitmap) PutBitmap(neurons, bitmap_bytes, out);
}

void CheckSizes(const TraceHeader& header, const std::string& path) {
  const auto within = [](int64_t value, uint64_t most) {
    return value >= 1 && static_cast<uint64_t>(value) <= most;
  };
  const bool experts_fit =
      header.num_experts == 0 ||
      (within(header.num_experts, trace::kMaxExperts) &&
       within(header.num_experts_per_token, static_cast<uint64_t>(header.num_experts)));
  if (within(header.num_layers, trace::kMaxLayers) && experts_fit &&
      within(header.intermediate_size, trace::kMaxNeurons) &&
      static_cast<uint64_t>(header.lists_per_token()) <=
          trace::kMaxNeuronsPerToken / static_cast<uint64_t>(header.intermediate_size)) {
    return;
  }
  throw Error(ErrorCode::kUnsupported, path, "a model of these sizes cannot be traced",
              fmt::format("at most {} neurons per token", trace::kMaxNeuronsPerToken),
              fmt::format("{} layers of {} times {}", header.num_layers, header.lists_per_layer(),
                          header.intermediate_size));
}

template <typename T>
std::span<const std::byte> ObjectBytes(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path, const TraceHeader& header)
    : header_(header), file_(path) {
  CheckSizes(header, path);
  header_.model_name.resize(std::min<size_t>(header.model_name.size(), trace::kMaxNameBytes));
  trace::Header fields{};
  std::memcpy(fields.magic, trace::kMagic, sizeof(fields.magic));
  fields.version = trace::kVersion;
  fields.name_bytes = static_cast<uint32_t>(header_.model_name.size());
  fields.model_hash = header.model_hash;
  fields.num_layers = static_cast<uint64_t>(header.num_layers);
  fields.num_experts = static_cast<uint64_t>(header.num_experts);
  fields.num_experts_per_token = static_cast<uint64_t>(header.num_experts_per_token);
  fields.intermediate_size = static_cast<uint64_t>(header.intermediate_size);
  fields.activation = static_cast<uint32_t>(header.activation);
  ChecksumStream sum;
  for (const auto bytes : {ObjectBytes(fields), std::as_bytes(std::span(header_.model_name))}) {
    sum.Update(bytes);
    file_.Write(bytes);
  }
  const uint64_t digest = sum.Digest();
  file_.Write(ObjectBytes(digest));
}

void TraceWriter::BeginBatch(std::span<const int32_t> token_ids, bool starts_sequence) {
  batch_tokens_ = static_cast<int64_t>(token_ids.size());
  if (records_.size() < token_ids.size()) records_.resize(token_ids.size());
  lists_.assign(token_ids.size(), 0);
  for (size_t t = 0; t < token_ids.size(); ++t) {
    records_[t].clear();
    const bool starts = starts_sequence && t == 0;
    PutNumber(uint64_t{static_cast<uint32_t>(token_ids[t])} << 1 | (starts ? 1 : 0), records_[t]);
  }
}

void TraceWriter::Append(int64_t token, int32_t expert, std::span<const int32_t> neurons) {
  std::vector<std::byte>& record = records_[static_cast<size_t>(token)];
  if (header_.num_experts > 0) PutNumber(static_cast<uint64_t>(expert), record);
  PutList(neurons, header_.intermediate_size, record);
  ++lists_[static_cast<size_t>(token)];
}

void TraceWriter::EndBatch() {
  uint32_t block_tokens = 0;
  for (int64_t t = 0; t < batch_tokens_; ++t) {
    const auto i = static_cast<size_t>(t);
    if (lists_[i] != header_.lists_per_token()) {
      throw Error(ErrorCode::kInternal, "trace", "lists of a token",
                  std::to_string(header_.lists_per_token()), std::to_string(lists_[i]));
    }
    payload_.insert(payload_.end(), records_[i].begin(), records_[i].end());
    ++block_tokens;
    if (payload_.size() >= trace::kBlockBytes || t + 1 == batch_tokens_) {
      WriteBlock(block_tokens, payload_);
      payload_.clear();
      block_tokens = 0;
    }
  }
  tokens_ += static_cast<uint64_t>(batch_tokens_);
  batch_tokens_ = 0;
}

void TraceWriter::WriteBlock(uint32_t tokens, std::span<const std::byte> payload) {
  trace::BlockHeader block{};
  block.tokens = tokens;
  block.payload_bytes = payload.size();
  ChecksumStream sum;
  for (const auto bytes : {ObjectBytes(block), payload}) {
    sum.Update(bytes);
    file_.Write(bytes);
  }
  const uint64_t digest = sum.Digest();
  file_.Write(ObjectBytes(digest));
}

void TraceWriter::Finish() {
  WriteBlock(0, ObjectBytes(tokens_));
  file_.Finish();
}

uint64_t TraceWriter::BatchBytes(int64_t tokens) const {
  // No list is longer than a bitmap after its count and expert; a vector may hold twice its size.
  const auto list_bytes = static_cast<uint64_t>(header_.intermediate_size) / 8 + 16;
  return 2 * (static_cast<uint64_t>(tokens) * static_cast<uint64_t>(header_.lists_per_token()) *
                  list_bytes +
              trace::kBlockBytes);
}

}  // namespace hearth
