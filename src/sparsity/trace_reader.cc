#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "sparsity/trace.h"
#include "sparsity/trace_layout.h"

namespace hearth {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are read as they lie");

template <typename T>
T ReadAt(const BlockReader& file, uint64_t offset) {
  T value;
  file.ReadAt(offset, std::as_writable_bytes(std::span<T, 1>(&value, 1)));
  return value;
}

// How many numbers there are in [0, most].
std::string UpTo(uint64_t most) { return fmt::format("at most {}", most); }

}  // namespace

TraceReader::TraceReader(std::unique_ptr<BlockReader> file) : file_(std::move(file)) {
  ReadHeader();
  ReadEnd();
}

void TraceReader::Refuse(const char* field, const std::string& expected,
                         const std::string& found) const {
  throw Error(ErrorCode::kCorrupt, file_->name(), fmt::format("trace: {}", field), expected, found);
}

void TraceReader::ReadHeader() {
  const auto fields = ReadAt<trace::Header>(*file_, 0);
  if (std::memcmp(fields.magic, trace::kMagic, sizeof(fields.magic)) != 0) {
    Refuse("first bytes", "'HRTHTRAC'",
           "'" + Printable({fields.magic, sizeof(fields.magic)}) + "' (no trace of Hearth)");
  }
  if (fields.version != trace::kVersion) {
    throw Error(ErrorCode::kUnsupported, file_->name(), "trace: version",
                std::to_string(trace::kVersion), std::to_string(fields.version));
  }
  const auto check = [&](const char* field, uint64_t found, uint64_t least, uint64_t most) {
    if (found >= least && found <= most) return;
    Refuse(field, fmt::format("{} to {}", least, most), std::to_string(found));
  };
  check("bytes of the model's name", fields.name_bytes, 0, trace::kMaxNameBytes);
  check("layers", fields.num_layers, 1, trace::kMaxLayers);
  check("experts", fields.num_experts, 0, trace::kMaxExperts);
  check("experts per token", fields.num_experts_per_token, fields.num_experts > 0 ? 1 : 0,
        fields.num_experts);
  check("neurons", fields.intermediate_size, 1, trace::kMaxNeurons);
  check("activation", fields.activation, 0, kNumFfnActivations - 1);
  check("reserved field", fields.reserved, 0, 0);
  header_.model_name.resize(fields.name_bytes);
  file_->ReadAt(sizeof(fields), std::as_writable_bytes(std::span(header_.model_name)));
  header_.model_hash = fields.model_hash;
  header_.activation = static_cast<FfnActivation>(fields.activation);
  header_.num_layers = static_cast<int64_t>(fields.num_layers);
  header_.num_experts = static_cast<int64_t>(fields.num_experts);
  header_.num_experts_per_token = static_cast<int64_t>(fields.num_experts_per_token);
  header_.intermediate_size = static_cast<int64_t>(fields.intermediate_size);
  check("neurons per token",
        static_cast<uint64_t>(header_.lists_per_token()) * fields.intermediate_size, 1,
        trace::kMaxNeuronsPerToken);
  ChecksumStream sum;
  sum.Update(std::as_bytes(std::span(&fields, 1)));
  sum.Update(std::as_bytes(std::span(header_.model_name)));
  position_ = sizeof(fields) + fields.name_bytes;
  if (ReadAt<uint64_t>(*file_, position_) != sum.Digest()) {
    Refuse("header", "the checksum that it carries", "another");
  }
  position_ += sizeof(uint64_t);
}

void TraceReader::ReadEnd() {
  const uint64_t size = file_->size_bytes();
  if (size - position_ < trace::kEndBytes) Refuse("end", "a last block", "none: it was cut short");
  end_ = size - trace::kEndBytes;
  const auto block = ReadAt<trace::BlockHeader>(*file_, end_);
  num_tokens_ = ReadAt<uint64_t>(*file_, end_ + sizeof(block));
  ChecksumStream sum;
  sum.Update(std::as_bytes(std::span(&block, 1)));
  sum.Update(std::as_bytes(std::span(&num_tokens_, 1)));
  if (block.tokens != 0 || block.reserved != 0 || block.payload_bytes != sizeof(num_tokens_) ||
      ReadAt<uint64_t>(*file_, size - sizeof(uint64_t)) != sum.Digest()) {
    Refuse("end", "a last block", "none: it was cut short or altered");
  }
}

void TraceReader::ReadBlock() {
  if (position_ == end_)
    Refuse("tokens", std::to_string(num_tokens_), std::to_string(read_tokens_));
  constexpr uint64_t kOverhead = sizeof(trace::BlockHeader) + sizeof(uint64_t);
  const uint64_t left = end_ - position_;
  if (left < kOverhead) Refuse("block", "a whole one", "the end of the file");
  const auto block = ReadAt<trace::BlockHeader>(*file_, position_);
  // Every token takes a byte at least, and nobody writes much more than a block's bytes and a
  // token's; the file's size bounds what is allocated anyway.
  if (block.tokens == 0 || block.reserved != 0 || block.payload_bytes > left - kOverhead ||
      block.tokens > block.payload_bytes) {
    Refuse("block", "tokens inside the file",
           fmt::format("{} in {} bytes", block.tokens, block.payload_bytes));
  }
  payload_.resize(static_cast<size_t>(block.payload_bytes));
  file_->ReadAt(position_ + sizeof(block), payload_);
  ChecksumStream sum;
  sum.Update(std::as_bytes(std::span(&block, 1)));
  sum.Update(payload_);
  position_ += sizeof(block) + block.payload_bytes;
  if (ReadAt<uint64_t>(*file_, position_) != sum.Digest()) {
    Refuse("block", "the checksum that it carries", "another");
  }
  position_ += sizeof(uint64_t);
  at_ = 0;
  block_tokens_ = block.tokens;
}

bool TraceReader::Next(TraceToken& token) {
  if (block_tokens_ == 0) {
    if (read_tokens_ == num_tokens_ && position_ == end_) return false;
    ReadBlock();
    if (block_tokens_ > num_tokens_ - read_tokens_) {
      Refuse("tokens", UpTo(num_tokens_), "more");
    }
  }
  DecodeToken(token);
  ++read_tokens_;
  if (--block_tokens_ == 0 && at_ != payload_.size()) {
    Refuse("block", "nothing after its tokens", fmt::format("{} bytes", payload_.size() - at_));
  }
  return true;
}

uint64_t TraceReader::TakeNumber(uint64_t most, const char* field) {
  uint64_t value = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    if (at_ == payload_.size()) Refuse(field, "a number", "the end of the block");
    const auto byte = static_cast<uint64_t>(payload_[at_++]);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      if (value > most) Refuse(field, UpTo(most), std::to_string(value));
      return value;
    }
  }
  Refuse(field, "a number of at most 9 bytes", "a longer one");
}

void TraceReader::DecodeToken(TraceToken& token) {
  const uint64_t first = TakeNumber(uint64_t{UINT32_MAX} << 1 | 1, "token");
  token.id = static_cast<int32_t>(static_cast<uint32_t>(first >> 1));
  token.starts_sequence = (first & 1) != 0;
  token.experts_.clear();
  token.ends_.clear();
  token.neurons_.clear();
  for (int64_t layer = 0; layer < header_.num_layers; ++layer) {
    int64_t next_expert = 0;
    for (int64_t list = 0; list < header_.lists_per_layer(); ++list) {
      int64_t expert = 0;
      if (header_.num_experts > 0) {
        expert = static_cast<int64_t>(
            TakeNumber(static_cast<uint64_t>(header_.num_experts) - 1, "expert"));
        if (expert < next_expert) {
          Refuse("expert", fmt::format("{} or more", next_expert), std::to_string(expert));
        }
        next_expert = expert + 1;
      }
      token.experts_.push_back(static_cast<int32_t>(expert));
      DecodeList(token);
      token.ends_.push_back(token.neurons_.size());
    }
  }
}

void TraceReader::DecodeList(TraceToken& token) {
  const auto neurons = static_cast<uint64_t>(header_.intermediate_size);
  const uint64_t first = TakeNumber(neurons << trace::kKindBits | 3, "neurons of a list");
  const uint64_t count = first >> trace::kKindBits;
  switch (first & 3) {
    case trace::kDeltas:
      return DecodeDeltas(count, token);
    case trace::kBitmap:
      return DecodeBitmap(count, token);
    case trace::kAll:
      if (count != neurons) Refuse("a list of all", std::to_string(neurons), std::to_string(count));
      for (uint64_t i = 0; i < neurons; ++i) token.neurons_.push_back(static_cast<int32_t>(i));
      return;
    default:
      Refuse("kind of list", "0 to 2", "3");
  }
}

void TraceReader::DecodeDeltas(uint64_t count, TraceToken& token) {
  const auto neurons = static_cast<uint64_t>(header_.intermediate_size);
  uint64_t next = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (next == neurons) Refuse("neurons of a list", "inside the FFN", "more");
    next += TakeNumber(neurons - 1 - next, "neuron");
    token.neurons_.push_back(static_cast<int32_t>(next++));
  }
}

void TraceReader::DecodeBitmap(uint64_t count, TraceToken& token) {
  const auto neurons = static_cast<size_t>(header_.intermediate_size);
  const size_t bytes = (neurons + 7) / 8;
  if (payload_.size() - at_ < bytes) Refuse("list", "a bitmap", "the end of the block");
  const size_t before = token.neurons_.size();
  for (size_t i = 0; i < bytes; ++i) {
    for (auto bits = static_cast<unsigned>(payload_[at_ + i]); bits != 0; bits &= bits - 1) {
      const size_t neuron = 8 * i + static_cast<size_t>(std::countr_zero(bits));
      if (neuron >= neurons) Refuse("neuron", UpTo(neurons - 1), std::to_string(neuron));
      token.neurons_.push_back(static_cast<int32_t>(neuron));
    }
  }
  at_ += bytes;
  if (token.neurons_.size() - before != count) {
    Refuse("bits of a list", std::to_string(count), std::to_string(token.neurons_.size() - before));
  }
}

}  // namespace hearth
