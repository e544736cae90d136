#include "import/sentencepiece_model.h"

#include <cstring>
#include <string_view>

#include "base/error.h"

namespace hearth {
namespace {

enum class Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct MessageField {
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;      // of a varint or a fixed number
  std::string_view bytes;  // of a text or a message
};

// Reads the fields of a message one after another.
class MessageReader {
 public:
  MessageReader(std::string_view rest, const std::string& path) : rest_(rest), path_(path) {}

  bool Next(MessageField* field) {
    if (rest_.empty()) return false;
    const uint64_t tag = Varint();
    field->number = static_cast<uint32_t>(tag >> 3);
    field->wire = static_cast<Wire>(tag & 7);
    switch (field->wire) {
      case Wire::kVarint:
        field->value = Varint();
        return true;
      case Wire::kFixed64:
        field->value = Fixed(8);
        return true;
      case Wire::kFixed32:
        field->value = Fixed(4);
        return true;
      case Wire::kBytes:
        field->bytes = Take(Varint());
        return true;
    }
    Fail();
  }

  [[noreturn]] void Fail() const {
    throw Error(ErrorCode::kCorrupt, path_, "is not a SentencePiece model, or is cut short");
  }

 private:
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(Take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    Fail();
  }

  uint64_t Fixed(size_t size) {
    uint64_t value = 0;
    const std::string_view bytes = Take(size);
    for (size_t i = 0; i < size; ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    }
    return value;
  }

  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) Fail();
    const std::string_view taken = rest_.substr(0, static_cast<size_t>(size));
    rest_.remove_prefix(static_cast<size_t>(size));
    return taken;
  }

  std::string_view rest_;
  const std::string& path_;
};

void ReadPiece(std::string_view message, const std::string& path, SentencePieceModel* model) {
  constexpr uint32_t kText = 1, kScore = 2, kType = 3;
  constexpr int32_t kMostType = 6;
  std::string text;
  float score = 0;
  int32_t type = 1;
  MessageField field;
  MessageReader reader(message, path);
  while (reader.Next(&field)) {
    if (field.number == kText && field.wire == Wire::kBytes) text = std::string(field.bytes);
    if (field.number == kScore && field.wire == Wire::kFixed32) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&score, &bits, sizeof(score));
    }
    if (field.number == kType && field.wire == Wire::kVarint) {
      if (field.value < 1 || field.value > kMostType) reader.Fail();
      type = static_cast<int32_t>(field.value);
    }
  }
  model->texts.push_back(std::move(text));
  model->scores.push_back(score);
  model->types.push_back(type);
}

[[noreturn]] void RefuseModel(const std::string& path, const char* what, const char* expected,
                              const std::string& found) {
  throw Error(ErrorCode::kUnsupported, path, what, expected, found);
}

void ReadTrainer(std::string_view message, const std::string& path, SentencePieceModel* model) {
  constexpr uint32_t kModelType = 3, kSuffixSpace = 24, kUnk = 40, kBos = 41, kEos = 42, kPad = 43;
  constexpr uint64_t kBpe = 2;
  uint64_t model_type = 1;  // Unigram, where the field is missing
  MessageField field;
  MessageReader reader(message, path);
  while (reader.Next(&field)) {
    if (field.wire != Wire::kVarint) continue;
    const auto id = static_cast<int32_t>(static_cast<int64_t>(field.value));
    if (field.number == kModelType) model_type = field.value;
    if (field.number == kSuffixSpace && field.value != 0) {
      RefuseModel(path, "treat_whitespace_as_suffix", "false", "true");
    }
    if (field.number == kUnk) model->unk_id = id;
    if (field.number == kBos) model->bos_id = id;
    if (field.number == kEos) model->eos_id = id;
    if (field.number == kPad) model->pad_id = id;
  }
  constexpr const char* kNames[] = {"unknown", "Unigram", "BPE", "word", "char"};
  if (model_type != kBpe) {
    RefuseModel(path, "model_type", "BPE", kNames[model_type < 5 ? model_type : 0]);
  }
}

void ReadNormalizer(std::string_view message, const std::string& path, SentencePieceModel* model) {
  constexpr uint32_t kName = 1, kCharsMap = 2, kDummyPrefix = 3, kRemovesSpaces = 4, kEscapes = 5;
  std::string name = "a map of characters";
  bool has_map = false, removes_spaces = true, escapes = true;
  MessageField field;
  MessageReader reader(message, path);
  while (reader.Next(&field)) {
    if (field.number == kName && field.wire == Wire::kBytes) name = std::string(field.bytes);
    if (field.number == kCharsMap && field.wire == Wire::kBytes) has_map = !field.bytes.empty();
    if (field.wire != Wire::kVarint) continue;
    if (field.number == kDummyPrefix) model->add_dummy_prefix = field.value != 0;
    if (field.number == kRemovesSpaces) removes_spaces = field.value != 0;
    if (field.number == kEscapes) escapes = field.value != 0;
  }
  if (has_map) RefuseModel(path, "normalizer", "identity", "'" + Printable(name) + "'");
  if (removes_spaces)
    RefuseModel(path, "normalizer", "spaces as they are", "remove_extra_whitespaces");
  if (!escapes) RefuseModel(path, "normalizer", "escape_whitespaces", "spaces that stay spaces");
}

}  // namespace

SentencePieceModel ParseSentencePieceModel(const std::string& bytes, const std::string& path) {
  constexpr uint32_t kPiece = 1, kTrainer = 2, kNormalizer = 3;
  SentencePieceModel model;
  std::string_view trainer, normalizer;
  MessageField field;
  MessageReader reader(bytes, path);
  while (reader.Next(&field)) {
    if (field.wire != Wire::kBytes) continue;
    if (field.number == kPiece) ReadPiece(field.bytes, path, &model);
    if (field.number == kTrainer) trainer = field.bytes;
    if (field.number == kNormalizer) normalizer = field.bytes;
  }
  if (model.texts.empty()) reader.Fail();
  ReadTrainer(trainer, path, &model);
  ReadNormalizer(normalizer, path, &model);
  return model;
}

}  // namespace hearth
