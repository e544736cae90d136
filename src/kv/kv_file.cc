#include "kv/kv_file.h"

#include <cstring>
#include <span>

#include "base/checksum.h"
#include "base/error.h"

namespace hearth {
namespace {

constexpr char kMagic[8] = {'H', 'R', 'T', 'H', 'K', 'V', '0', '3'};
constexpr size_t kMagicWithoutVersion = 6;

struct KvFileHeader {
  char magic[8];
  uint32_t codec;
  uint32_t page_tokens;
  uint64_t num_layers;
  uint64_t num_kv_heads;
  uint64_t head_dim;
  uint64_t length_tokens;
  uint64_t header_hash;  // XXH3 of the bytes before it
};
static_assert(sizeof(KvFileHeader) == kKvHeaderBytes);

uint64_t HashOf(const KvFileHeader& header) {
  return Checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(KvFileHeader, header_hash)));
}

}  // namespace

KvHeader MakeKvHeader(const KvLayout& layout, int64_t length) {
  KvFileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.codec = static_cast<uint32_t>(layout.codec);
  header.page_tokens = static_cast<uint32_t>(KvLayout::kPageTokens);
  header.num_layers = static_cast<uint64_t>(layout.num_layers);
  header.num_kv_heads = static_cast<uint64_t>(layout.num_kv_heads);
  header.head_dim = static_cast<uint64_t>(layout.head_dim);
  header.length_tokens = static_cast<uint64_t>(length);
  header.header_hash = HashOf(header);
  KvHeader bytes;
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

int64_t CheckKvHeader(const KvHeader& bytes, const KvLayout& layout, const std::string& file) {
  KvFileHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    const bool is_other_version = std::memcmp(header.magic, kMagic, kMagicWithoutVersion) == 0;
    throw Error(is_other_version ? ErrorCode::kUnsupported : ErrorCode::kCorrupt, file, "saved KV",
                "the mark HRTHKV03", "'" + Printable({header.magic, sizeof(kMagic)}) + "'");
  }
  const auto length = static_cast<int64_t>(header.length_tokens);
  if (header.header_hash != HashOf(header) || length < 0) {
    throw Error(ErrorCode::kCorrupt, file, "saved KV: the header's checksum does not match");
  }
  if (bytes != MakeKvHeader(layout, length)) {
    throw Error(ErrorCode::kUnsupported, file,
                "saved KV: it is of a model or KV type of another shape");
  }
  return length;
}

uint64_t KvPageOffset(const KvLayout& layout, int64_t page) {
  return kKvHeaderBytes +
         static_cast<uint64_t>(page) * (uint64_t{layout.page_bytes()} + kKvPageHashBytes);
}

uint64_t SavedKvBytes(const KvLayout& layout, int64_t length, const std::string& file) {
  const uint64_t page = uint64_t{layout.page_bytes()} + kKvPageHashBytes;
  const uint64_t most = (uint64_t{1} << 62) / page;
  const auto pages = static_cast<uint64_t>(length / KvLayout::kPageTokens) + 1;
  if (length < 0 || pages > most) {
    throw Error(ErrorCode::kCorrupt, file, "saved KV: more tokens than any file holds");
  }
  return KvPageOffset(layout, KvLayout::PagesFor(length));
}

}  // namespace hearth
