// Any bytes as a saved session (docs/formats/session.md) of a model that it may belong to: its head
// is checked, its tokens and pages are read. Whatever is wrong must come out as hearth::Error, and
// what is taken must be as long as it says.
//
// Checksums would stop nearly every input at the door: they are made right first, but for inputs
// whose first byte is odd, which reach the comparisons.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "engine/session/session_file.h"
#include "kv/kv_file.h"

namespace {

// Of the file's head (session_file.cc keeps its layout to itself).
constexpr size_t kCountAt = 40;
constexpr size_t kHashAt = 48;
constexpr size_t kTokensAt = 56;

hearth::SessionIdentity Identity() {
  return {.model_hash = 1,
          .mode = hearth::FfnMode::kGated,
          .isa = "avx2",
          .layout = {
              .codec = hearth::KvCodec::kF16, .num_layers = 1, .num_kv_heads = 1, .head_dim = 2}};
}

// Sets the checksums of the head and of all pages that are there to what they should be.
void Repair(std::vector<std::byte>& bytes) {
  if (bytes.size() < kTokensAt) return;
  uint64_t count = 0;
  std::memcpy(&count, bytes.data() + kCountAt, sizeof(count));
  if (count > (bytes.size() - kTokensAt) / sizeof(hearth::TokenId)) return;
  hearth::ChecksumStream hash;
  hash.Update(std::span(bytes).first(kHashAt));
  hash.Update(std::span(bytes).subspan(kTokensAt, count * sizeof(hearth::TokenId)));
  uint64_t digest = hash.Digest();
  std::memcpy(bytes.data() + kHashAt, &digest, sizeof(digest));
  const hearth::KvLayout layout = Identity().layout;
  const uint64_t pages_at = kTokensAt + count * sizeof(hearth::TokenId);
  if (pages_at + hearth::kKvHeaderBytes > bytes.size()) return;
  const uint64_t before_hash = hearth::kKvHeaderBytes - sizeof(digest);
  hash.Restart();
  hash.Update(std::span(bytes).subspan(pages_at, before_hash));
  digest = hash.Digest();
  std::memcpy(bytes.data() + pages_at + before_hash, &digest, sizeof(digest));
  for (int64_t page = 0;; ++page) {
    const uint64_t at = pages_at + hearth::KvPageOffset(layout, page);
    if (at + layout.page_bytes() + sizeof(digest) > bytes.size()) return;
    hash.Restart();
    hash.Update(std::span(bytes).subspan(at, layout.page_bytes()));
    digest = hash.Digest();
    std::memcpy(bytes.data() + at + layout.page_bytes(), &digest, sizeof(digest));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin + 1, begin + size);
  if ((data[0] & 1) == 0) Repair(bytes);
  const hearth::SessionIdentity identity = Identity();
  const uint64_t file_bytes = bytes.size();
  const auto file = hearth::MakeMemoryReader("input", std::move(bytes));
  try {
    const hearth::SessionHead head = hearth::ReadSessionHead(*file, identity);
    const hearth::CachedText text = {head.tokens, head.adapters};
    if (hearth::SessionFileBytes(identity, text) != file_bytes) std::abort();
    if (hearth::SessionHashOf(identity, text) != head.hash) std::abort();
    const int64_t pages = hearth::KvLayout::PagesFor(text.length());
    uint64_t read = 0;
    const bool is_whole = hearth::ReadSessionPages(
        *file, identity, head, pages, [&](int64_t, uint64_t, std::span<const std::byte> piece) {
          read += piece.size();
          return true;
        });
    if (!is_whole || read != static_cast<uint64_t>(pages) * identity.layout.page_bytes()) {
      std::abort();
    }
  } catch (const hearth::Error&) {  // refusing is fine
  }
  return 0;
}
