#include "kv/kv_row_writer.h"

#include <algorithm>
#include <cstring>

namespace hearth {

namespace {

template <class T>
void Put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace

void KvRowWriter::FetchKey(std::byte* page_keys) const noexcept {
  constexpr int64_t kLineBytes = 64;
  const std::byte* block = page_keys + layout_.KeyBlockAt(row_);
  for (int64_t at = 0; at < block_.bytes(); at += kLineBytes) __builtin_prefetch(block + at, 1);
}

void KvRowWriter::WriteKey(const float* key, std::byte* page_keys) const noexcept {
  std::byte* block = page_keys + layout_.KeyBlockAt(row_);
  switch (block_.keys) {
    case KvKeys::kF32:
      for (int64_t i = 0; i < block_.head_dim; ++i) {
        Put(block + block_.ComponentAt(token_, i), key[i]);
      }
      return;
    case KvKeys::kF16:
      return WriteHalves(key, block);
    case KvKeys::kInt8:
    case KvKeys::kInt4:
      return WriteCodes(key, block);
  }
}

void KvRowWriter::WriteHalves(const float* key, std::byte* block) const noexcept {
  uint16_t halves[kAtOnce];
  for (int64_t first = 0; first < block_.head_dim; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, block_.head_dim - first);
    encoders_.to_half(key + first, count, halves);
    for (int64_t i = 0; i < count; ++i) {
      Put(block + block_.ComponentAt(token_, first + i), halves[i]);
    }
  }
}

void KvRowWriter::WriteCodes(const float* key, std::byte* block) const noexcept {
  for (int64_t first = 0; first < block_.head_dim; first += block_.range()) {
    const int64_t end = std::min(first + block_.range(), block_.head_dim);
    const kernels::KeyRange range =
        encoders_.key_range(key + first, end - first, MostCodeOf(block_.keys));
    Put(block + block_.ScaleAt(token_, first), range.scale);
    Put(block + block_.ZeroAt(token_, first), range.zero);
    WriteRange(key, first, end, range, block);
  }
}

void KvRowWriter::WriteRange(const float* key, int64_t begin, int64_t end,
                             const kernels::KeyRange& range, std::byte* block) const noexcept {
  uint8_t codes[kAtOnce + 1];
  for (int64_t first = begin; first < end; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, end - first);
    encoders_.key_codes(key + first, count, range, codes);
    if (block_.keys == KvKeys::kInt8) {
      for (int64_t i = 0; i < count; ++i) {
        Put(block + block_.ComponentAt(token_, first + i), codes[i]);
      }
      continue;
    }
    codes[count] = 0;  // beside an odd last component
    for (int64_t i = 0; i < count; i += 2) {
      const auto pair = static_cast<uint8_t>(codes[i] | codes[i + 1] << 4);
      Put(block + block_.ComponentAt(token_, first + i), pair);
    }
  }
}

void KvRowWriter::WriteValue(const float* value, std::byte* page_values) const noexcept {
  std::byte* to = page_values + layout_.ValueAt(row_);
  switch (layout_.values()) {
    case KvValues::kF32:
      std::memcpy(to, value, static_cast<size_t>(layout_.head_dim) * sizeof(float));
      return;
    case KvValues::kF16:
      encoders_.to_half(value, layout_.head_dim, reinterpret_cast<uint16_t*>(to));
      return;
    case KvValues::kFp8:
      Put(page_values + layout_.ValueScaleAt(row_),
          encoders_.to_fp8(value, layout_.head_dim, reinterpret_cast<uint8_t*>(to)));
      return;
  }
}

}  // namespace hearth
