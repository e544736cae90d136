#include "engine/session/session_file.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "kv/kv_file.h"

namespace hearth {
namespace {

constexpr char kSessionMagic[8] = {'H', 'R', 'T', 'H', 'S', 'E', 'S', 'S'};
constexpr uint32_t kSessionVersion = 1;
// The version of files whose text has adapters: their key follows the head.
constexpr uint32_t kAdaptedVersion = 2;
// f16 is 0, as in the files of those who knew no other field here.
constexpr uint16_t kHalfCodec = static_cast<uint16_t>(KvCodec::kF16);
constexpr size_t kFilePieceBytes = size_t{1} << 20;

struct FileHead {
  char magic[8];
  uint32_t version;
  uint8_t mode;         // as FfnMode numbers it: 0 dense, 1 gated, 2 predicted
  uint8_t activations;  // as TileActivations numbers them: 0 i8, 1 f16
  uint16_t codec;       // of the KV pages: its number ^ kHalfCodec
  uint64_t model_hash;
  char isa[16];
  uint64_t num_tokens;
  uint64_t hash;  // XXH3 of the bytes before it, of the adapters' key and of the tokens
};
static_assert(sizeof(FileHead) == 56);
static_assert(sizeof(TokenId) == 4);
static_assert(static_cast<int>(FfnMode::kDense) == 0 && static_cast<int>(FfnMode::kGated) == 1 &&
              static_cast<int>(FfnMode::kPredicted) == 2);
static_assert(static_cast<int>(TileActivations::kInt8) == 0 &&
              static_cast<int>(TileActivations::kF16) == 1);

// The adapters' key as it lies in the file: nothing where there are none.
std::span<const std::byte> KeyBytes(const uint64_t& adapters) {
  if (adapters == 0) return {};
  return std::as_bytes(std::span(&adapters, 1));
}

uint64_t HashOf(const FileHead& head, const CachedText& text) {
  ChecksumStream hash;
  hash.Update(std::as_bytes(std::span(&head, 1)).first(offsetof(FileHead, hash)));
  hash.Update(KeyBytes(text.adapters));
  hash.Update(std::as_bytes(text.tokens));
  return hash.Digest();
}

FileHead HeadFor(const SessionIdentity& identity, const CachedText& text) {
  FileHead head{};
  std::memcpy(head.magic, kSessionMagic, sizeof(kSessionMagic));
  head.version = text.adapters == 0 ? kSessionVersion : kAdaptedVersion;
  head.mode = static_cast<uint8_t>(identity.mode);
  head.activations = static_cast<uint8_t>(identity.activations);
  head.codec = static_cast<uint16_t>(identity.layout.codec) ^ kHalfCodec;
  head.model_hash = identity.model_hash;
  std::memcpy(head.isa, identity.isa.data(), std::min(identity.isa.size(), sizeof(head.isa)));
  head.num_tokens = text.tokens.size();
  head.hash = HashOf(head, text);
  return head;
}

uint64_t KvOffset(const CachedText& text) {
  return sizeof(FileHead) + KeyBytes(text.adapters).size() + text.tokens.size_bytes();
}

// Calls fn(offset, bytes) for the pieces of a page; false where it said so.
template <typename Fn>
bool ForEachPiece(uint64_t page_bytes, Fn&& fn) {
  for (uint64_t at = 0; at < page_bytes; at += kFilePieceBytes) {
    if (!fn(at, static_cast<size_t>(std::min<uint64_t>(kFilePieceBytes, page_bytes - at)))) {
      return false;
    }
  }
  return true;
}

}  // namespace

uint64_t SessionFileBytes(const SessionIdentity& identity, const CachedText& text) {
  return KvOffset(text) + SavedKvBytes(identity.layout, text.length(), "session");
}

uint64_t SessionHashOf(const SessionIdentity& identity, const CachedText& text) {
  return HeadFor(identity, text).hash;
}

bool WriteSession(AtomicFile& file, const SessionIdentity& identity, const CachedText& text,
                  const CopyPageFn& copy) {
  const FileHead head = HeadFor(identity, text);
  file.Write(std::as_bytes(std::span(&head, 1)));
  file.Write(KeyBytes(text.adapters));
  file.Write(std::as_bytes(text.tokens));
  file.Write(MakeKvHeader(identity.layout, text.length()));
  std::vector<std::byte> piece(kFilePieceBytes);
  ChecksumStream hash;
  for (int64_t page = 0; page < KvLayout::PagesFor(text.length()); ++page) {
    hash.Restart();
    const bool goes_on = ForEachPiece(identity.layout.page_bytes(), [&](uint64_t at, size_t bytes) {
      const auto part = std::span(piece).first(bytes);
      if (!copy(page, at, part)) return false;
      hash.Update(part);
      file.Write(part);
      return true;
    });
    if (!goes_on) return false;
    const uint64_t digest = hash.Digest();
    file.Write(std::as_bytes(std::span(&digest, 1)));
  }
  return true;
}

SessionHead ReadSessionHead(const BlockReader& file, const SessionIdentity& identity) {
  FileHead head{};
  const uint64_t size = file.size_bytes();
  if (size >= sizeof(head)) file.ReadAt(0, std::as_writable_bytes(std::span(&head, 1)));
  if (std::memcmp(head.magic, kSessionMagic, sizeof(kSessionMagic)) != 0) {
    throw Error(ErrorCode::kInvalidArgument, file.name(), "it is no saved session");
  }
  if (head.version != kSessionVersion && head.version != kAdaptedVersion) {
    throw Error(ErrorCode::kUnsupported, file.name(), "saved session: version", "1 or 2",
                std::to_string(head.version));
  }
  SessionHead out;
  uint64_t begin = sizeof(head);  // of the tokens
  if (head.version == kAdaptedVersion && size >= begin + sizeof(out.adapters)) {
    file.ReadAt(begin, std::as_writable_bytes(std::span(&out.adapters, 1)));
    begin += sizeof(out.adapters);
  }
  if (head.num_tokens > (size - begin) / sizeof(TokenId)) {
    throw Error(ErrorCode::kCorrupt, file.name(), "saved session: it was cut short");
  }
  if (head.num_tokens > static_cast<uint64_t>(kMostSessionTokens)) {
    throw Error(ErrorCode::kInvalidArgument, file.name(), "saved session: tokens",
                "at most " + std::to_string(kMostSessionTokens), std::to_string(head.num_tokens));
  }
  out.tokens.resize(static_cast<size_t>(head.num_tokens));
  file.ReadAt(begin, std::as_writable_bytes(std::span(out.tokens)));
  const CachedText text = {out.tokens, out.adapters};
  if (head.hash != HashOf(head, text)) {
    throw Error(ErrorCode::kCorrupt, file.name(),
                "saved session: the head's checksum does not match");
  }
  const FileHead expected = HeadFor(identity, text);
  if (std::memcmp(&head, &expected, sizeof(head)) != 0) {
    throw Error(
        ErrorCode::kUnsupported, file.name(),
        "saved session: it is of another model, mode, instruction set, KV codec or activations");
  }
  out.hash = head.hash;
  out.kv_offset = KvOffset(text);
  KvHeader kv;
  if (size < out.kv_offset + kv.size()) {
    throw Error(ErrorCode::kCorrupt, file.name(), "saved session: it was cut short");
  }
  file.ReadAt(out.kv_offset, kv);
  const int64_t length = CheckKvHeader(kv, identity.layout, file.name());
  if (length != std::ssize(out.tokens) ||
      size != out.kv_offset + SavedKvBytes(identity.layout, length, file.name())) {
    throw Error(ErrorCode::kCorrupt, file.name(),
                "saved session: its size is not that of its tokens");
  }
  return out;
}

bool ReadSessionPages(const BlockReader& file, const SessionIdentity& identity,
                      const SessionHead& head, int64_t pages, const TakePageFn& take) {
  std::vector<std::byte> piece(kFilePieceBytes);
  const uint64_t page_bytes = identity.layout.page_bytes();
  ChecksumStream hash;
  for (int64_t page = 0; page < pages; ++page) {
    const uint64_t offset = head.kv_offset + KvPageOffset(identity.layout, page);
    hash.Restart();
    const bool goes_on = ForEachPiece(page_bytes, [&](uint64_t at, size_t bytes) {
      const auto part = std::span(piece).first(bytes);
      file.ReadAt(offset + at, part);
      hash.Update(part);
      return take(page, at, part);
    });
    if (!goes_on) return false;
    uint64_t digest = 0;
    file.ReadAt(offset + page_bytes, std::as_writable_bytes(std::span(&digest, 1)));
    if (digest != hash.Digest()) {
      throw Error(ErrorCode::kCorrupt, file.name(),
                  "saved session: a page's checksum does not match");
    }
    file.DropCached(offset, page_bytes);
  }
  return true;
}

}  // namespace hearth
