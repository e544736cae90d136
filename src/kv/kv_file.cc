// Saving and restoring a sequence's pages; the bytes are described in docs/formats/kv.md.

#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "kv/kv_cache.h"

namespace hearth {
namespace {

constexpr char kMagic[8] = {'H', 'R', 'T', 'H', 'K', 'V', '0', '1'};

struct KvFileHeader {
  char magic[8];
  uint32_t dtype_gguf_id;
  uint32_t page_tokens;
  uint64_t num_layers;
  uint64_t num_kv_heads;
  uint64_t head_dim;
  uint64_t length_tokens;
  uint64_t header_hash;  // XXH3 of the bytes before it
};
static_assert(sizeof(KvFileHeader) == 56);

uint64_t HashOf(const KvFileHeader& header) {
  return Checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(KvFileHeader, header_hash)));
}

KvFileHeader HeaderFor(const KvLayout& layout, int64_t length) {
  KvFileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.dtype_gguf_id = InfoOf(layout.dtype).gguf_id;
  header.page_tokens = static_cast<uint32_t>(KvLayout::kPageTokens);
  header.num_layers = static_cast<uint64_t>(layout.num_layers);
  header.num_kv_heads = static_cast<uint64_t>(layout.num_kv_heads);
  header.head_dim = static_cast<uint64_t>(layout.head_dim);
  header.length_tokens = static_cast<uint64_t>(length);
  header.header_hash = HashOf(header);
  return header;
}

void CheckHeader(const KvFileHeader& header, const KvLayout& layout, const std::string& file) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    throw Error(ErrorCode::kCorrupt, file, "kv file", "the mark HRTHKV01",
                "'" + Printable({header.magic, sizeof(kMagic)}) + "'");
  }
  if (header.header_hash != HashOf(header)) {
    throw Error(ErrorCode::kCorrupt, file, "kv file: the header's checksum does not match");
  }
  const auto length = static_cast<int64_t>(header.length_tokens);
  const KvFileHeader expected = HeaderFor(layout, length);
  if (std::memcmp(&header, &expected, sizeof(header)) != 0) {
    throw Error(ErrorCode::kInvalidArgument, file,
                "kv file: it was saved from a model or KV type of another shape");
  }
}

}  // namespace

void KvSequence::Save(FileWriter& file) const {
  const KvFileHeader header = HeaderFor(layout(), length_);
  file.Write(std::as_bytes(std::span(&header, 1)));
  const size_t bytes = layout().page_bytes();
  for (const std::byte* page : page_data_) {
    file.Write({page, bytes});
    const uint64_t hash = Checksum({page, bytes});
    file.Write(std::as_bytes(std::span(&hash, 1)));
  }
}

KvSequence KvSequence::Restore(KvPool& pool, const BlockReader& file, uint64_t offset) {
  KvFileHeader header;
  file.ReadAt(offset, std::as_writable_bytes(std::span(&header, 1)));
  CheckHeader(header, pool.layout(), file.name());
  offset += sizeof(header);
  KvSequence sequence(pool);
  const int64_t room = pool.free_pages() * KvLayout::kPageTokens;
  if (header.length_tokens > static_cast<uint64_t>(room)) {
    throw Error(ErrorCode::kOutOfBudget, file.name(), "saved tokens",
                "at most " + std::to_string(room) + " (the free KV memory)",
                std::to_string(header.length_tokens));
  }
  sequence.Append(static_cast<int64_t>(header.length_tokens));
  const size_t bytes = pool.layout().page_bytes();
  for (std::byte* page : sequence.page_data_) {
    file.ReadAt(offset, {page, bytes});
    uint64_t hash = 0;
    file.ReadAt(offset + bytes, std::as_writable_bytes(std::span(&hash, 1)));
    if (hash != Checksum({page, bytes})) {
      throw Error(ErrorCode::kCorrupt, file.name(), "kv file: a page's checksum does not match");
    }
    offset += bytes + sizeof(hash);
  }
  return sequence;
}

}  // namespace hearth
