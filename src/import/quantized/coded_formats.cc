#include "import/quantized/coded_formats.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace hearth {
namespace {

constexpr int kWordBits = 32;

// Code `index` of a run of words that lie `step` apart.
uint32_t CodeAt(const uint32_t* words, uint64_t step, uint64_t index, int bits) {
  const uint64_t bit = index * static_cast<uint64_t>(bits);
  const uint32_t* const word = words + bit / kWordBits * step;
  const int shift = static_cast<int>(bit % kWordBits);
  uint32_t code = *word >> shift;
  if (shift + bits > kWordBits) code |= word[step] << (kWordBits - shift);
  return code & ((1u << bits) - 1);
}

// The words that hold codes `first` to `first + count - 1` of a run.
struct WordRange {
  WordRange(uint64_t first, uint64_t count, int bits)
      : begin(first * static_cast<uint64_t>(bits) / kWordBits),
        size(((first + count) * static_cast<uint64_t>(bits) + kWordBits - 1) / kWordBits - begin),
        first_code(begin * kWordBits / static_cast<uint64_t>(bits)) {}
  uint64_t begin;
  uint64_t size;
  uint64_t first_code;  // in the first word, where bits divide 32
};

class PackedMatrix : public CodedMatrix {
 public:
  PackedMatrix(CodeShape shape, PackedParts parts)
      : CodedMatrix(std::move(shape)), parts_(std::move(parts)) {}

  std::vector<const OpenTensor*> parts() const override {
    std::vector<const OpenTensor*> all = {&parts_.codes, &parts_.scales};
    if (parts_.zeros) all.push_back(&*parts_.zeros);
    return all;
  }

 protected:
  // Subtracts the zeros [count][groups] from codes.
  void TakeZeros(const std::vector<float>& zeros, CodedRows* rows) const {
    const CodeShape& s = shape();
    for (uint64_t r = 0; r < rows->count; ++r) {
      for (uint64_t c = 0; c < s.cols; ++c) {
        rows->codes[r * s.cols + c] -= zeros[r * s.groups + s.GroupOf(c)];
      }
    }
  }
  float middle() const { return static_cast<float>(1 << (parts_.bits - 1)); }

  // Scales and zeros of all rows lie group after group: [groups][rows].
  void ReadScalesByGroup(CodedRows* rows) const {
    const CodeShape& s = shape();
    std::vector<float> of_group(rows->count);
    rows->scales.resize(rows->count * s.groups);
    for (uint64_t g = 0; g < s.groups; ++g) {
      ReadFloats(parts_.scales, g * s.rows + rows->first, of_group);
      for (uint64_t r = 0; r < rows->count; ++r) rows->scales[r * s.groups + g] = of_group[r];
    }
  }

  const PackedParts parts_;
};

class GptqMatrix final : public PackedMatrix {
 public:
  using PackedMatrix::PackedMatrix;

  void Read(CodedRows* rows) const override {
    const CodeShape& s = shape();
    const uint64_t word_rows = parts_.codes.tensor.shape[0];
    std::vector<uint32_t> words(word_rows * rows->count);
    for (uint64_t w = 0; w < word_rows; ++w) {
      ReadWords(parts_.codes, w * s.rows + rows->first,
                std::span(words).subspan(w * rows->count, rows->count));
    }
    rows->codes.resize(rows->count * s.cols);
    for (uint64_t r = 0; r < rows->count; ++r) {
      for (uint64_t c = 0; c < s.cols; ++c) {
        rows->codes[r * s.cols + c] =
            static_cast<float>(CodeAt(words.data() + r, rows->count, c, parts_.bits));
      }
    }
    ReadScalesByGroup(rows);
    TakeZeros(Zeros(*rows), rows);
  }

 private:
  // Codes of 3 bits may begin within words: whole rows of words are simplest.
  std::vector<float> Zeros(const CodedRows& rows) const {
    const CodeShape& s = shape();
    const uint64_t per_group = parts_.zeros->tensor.shape[1];
    std::vector<uint32_t> words(per_group);
    std::vector<float> zeros(rows.count * s.groups);
    for (uint64_t g = 0; g < s.groups; ++g) {
      ReadWords(*parts_.zeros, g * per_group, words);
      for (uint64_t r = 0; r < rows.count; ++r) {
        const uint32_t stored = CodeAt(words.data(), 1, rows.first + r, parts_.bits);
        zeros[r * s.groups + g] = static_cast<float>(static_cast<int>(stored) + parts_.zeros_less);
      }
    }
    return zeros;
  }
};

class AwqMatrix final : public PackedMatrix {
 public:
  using PackedMatrix::PackedMatrix;

  void Read(CodedRows* rows) const override {
    const CodeShape& s = shape();
    const WordRange range(rows->first, rows->count, kBits);
    std::vector<uint32_t> words(range.size);
    rows->codes.resize(rows->count * s.cols);
    for (uint64_t c = 0; c < s.cols; ++c) {
      ReadWords(parts_.codes, c * (s.rows / kPerWord) + range.begin, words);
      for (uint64_t r = 0; r < rows->count; ++r) {
        rows->codes[r * s.cols + c] = Code(words, rows->first + r - range.first_code);
      }
    }
    ReadScalesByGroup(rows);
    std::vector<float> zeros(rows->count * s.groups);
    for (uint64_t g = 0; g < s.groups; ++g) {
      ReadWords(*parts_.zeros, g * (s.rows / kPerWord) + range.begin, words);
      for (uint64_t r = 0; r < rows->count; ++r) {
        zeros[r * s.groups + g] = Code(words, rows->first + r - range.first_code);
      }
    }
    TakeZeros(zeros, rows);
  }

 private:
  static constexpr int kBits = 4;
  static constexpr uint64_t kPerWord = 8;

  // Even outputs of eight lie in the low half of a word, odd ones in the high half.
  static float Code(const std::vector<uint32_t>& words, uint64_t index) {
    const uint64_t in_word = index % kPerWord;
    const uint64_t nibble = in_word / 2 + (in_word % 2 == 0 ? 0 : kPerWord / 2);
    return static_cast<float>(words[index / kPerWord] >> (kBits * nibble) & 15);
  }
};

class CompressedMatrix final : public PackedMatrix {
 public:
  using PackedMatrix::PackedMatrix;

  void Read(CodedRows* rows) const override {
    const CodeShape& s = shape();
    const uint64_t per_row = parts_.codes.tensor.shape[1];
    std::vector<uint32_t> words(rows->count * per_row);
    ReadWords(parts_.codes, rows->first * per_row, words);
    rows->codes.resize(rows->count * s.cols);
    for (uint64_t r = 0; r < rows->count; ++r) {
      for (uint64_t c = 0; c < s.cols; ++c) {
        rows->codes[r * s.cols + c] =
            static_cast<float>(CodeAt(words.data() + r * per_row, 1, c, parts_.bits));
      }
    }
    rows->scales.resize(rows->count * s.groups);
    ReadFloats(parts_.scales, rows->first * s.groups, rows->scales);
    TakeZeros(Zeros(*rows), rows);
  }

 private:
  std::vector<float> Zeros(const CodedRows& rows) const {
    const CodeShape& s = shape();
    std::vector<float> zeros(rows.count * s.groups, middle());
    if (!parts_.zeros) return zeros;
    const WordRange range(rows.first, rows.count, parts_.bits);
    std::vector<uint32_t> words(range.size * s.groups);
    ReadWords(*parts_.zeros, range.begin * s.groups, words);
    for (uint64_t r = 0; r < rows.count; ++r) {
      for (uint64_t g = 0; g < s.groups; ++g) {
        zeros[r * s.groups + g] = static_cast<float>(
            CodeAt(words.data() + g, s.groups, rows.first + r - range.first_code, parts_.bits));
      }
    }
    return zeros;
  }
};

// E4M3 without infinities: one sign, four exponent bits with a bias of 7, three fraction bits.
float Float8Value(int bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return bits < 128 ? magnitude : -magnitude;
}

class ByteMatrix final : public CodedMatrix {
 public:
  ByteMatrix(CodeShape shape, ByteParts parts)
      : CodedMatrix(std::move(shape)), parts_(std::move(parts)) {
    for (int i = 0; i < 256; ++i) {
      values_[static_cast<size_t>(i)] = parts_.codes.tensor.is_float8
                                            ? Float8Value(i)
                                            : static_cast<float>(static_cast<int8_t>(i));
    }
  }

  void Read(CodedRows* rows) const override {
    const CodeShape& s = shape();
    std::vector<std::byte> bytes(rows->count * s.cols);
    parts_.codes.source->ReadAt(parts_.codes.tensor.offset + rows->first * s.cols, bytes);
    rows->codes.resize(bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      rows->codes[i] = values_[std::to_integer<size_t>(bytes[i])];
    }
    rows->scales.resize(rows->count * s.groups);
    for (uint64_t r = 0; r < rows->count; ++r) {
      ReadFloats(parts_.scales, (rows->first + r) / parts_.block_rows * s.groups,
                 std::span(rows->scales).subspan(r * s.groups, s.groups));
    }
  }

  std::vector<const OpenTensor*> parts() const override { return {&parts_.codes, &parts_.scales}; }

 private:
  const ByteParts parts_;
  std::array<float, 256> values_;
};

}  // namespace

std::unique_ptr<CodedMatrix> MakeGptqMatrix(CodeShape shape, PackedParts parts) {
  return std::make_unique<GptqMatrix>(std::move(shape), std::move(parts));
}
std::unique_ptr<CodedMatrix> MakeAwqMatrix(CodeShape shape, PackedParts parts) {
  return std::make_unique<AwqMatrix>(std::move(shape), std::move(parts));
}
std::unique_ptr<CodedMatrix> MakeCompressedMatrix(CodeShape shape, PackedParts parts) {
  return std::make_unique<CompressedMatrix>(std::move(shape), std::move(parts));
}
std::unique_ptr<CodedMatrix> MakeByteMatrix(CodeShape shape, ByteParts parts) {
  return std::make_unique<ByteMatrix>(std::move(shape), std::move(parts));
}

}  // namespace hearth
