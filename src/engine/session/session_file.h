// A saved sequence: which model and tokens it is of, and its KV pages (docs/formats/session.md).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/session/cached_text.h"
#include "sparsity/mode.h"
#include "storage/atomic_file.h"
#include "storage/block_reader.h"
#include "tensor/kv_layout.h"
#include "tensor/op_kinds.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Of one session; 4 MiB of them.
inline constexpr int64_t kMostSessionTokens = int64_t{1} << 20;

// What must agree for saved keys and values to be those that an engine would compute.
struct SessionIdentity {
  uint64_t model_hash = 0;  // ModelHash
  FfnMode mode = FfnMode::kDense;
  std::string isa;  // at most 16 bytes
  KvLayout layout;
  TileActivations activations = TileActivations::kInt8;
};

struct SessionHead {
  std::vector<TokenId> tokens;
  uint64_t adapters = 0;   // AdapterMix::key() of what it was computed with
  uint64_t hash = 0;       // of all but the pages: a name for the file
  uint64_t kv_offset = 0;  // of the header of the pages
};

// Bytes of the file of a text, and its name.
uint64_t SessionFileBytes(const SessionIdentity& identity, const CachedText& text);
uint64_t SessionHashOf(const SessionIdentity& identity, const CachedText& text);

// Bytes [offset, offset + out.size()) of a page; false ends the writing.
using CopyPageFn = std::function<bool(int64_t page, uint64_t offset, std::span<std::byte> out)>;
// Writes a whole session, page after page in pieces of at most 1 MiB. False where `copy` ended it.
// Throws Error(kIo).
bool WriteSession(AtomicFile& file, const SessionIdentity& identity, const CachedText& text,
                  const CopyPageFn& copy);

// Checks all but the pages. Throws Error(kUnsupported) for a file of another version, model or
// setting, Error(kInvalidArgument) for one that is no session, Error(kCorrupt) for a session that
// was cut short or altered, Error(kIo).
SessionHead ReadSessionHead(const BlockReader& file, const SessionIdentity& identity);

using TakePageFn =
    std::function<bool(int64_t page, uint64_t offset, std::span<const std::byte> bytes)>;
// Hands out the first `pages` pages in pieces of at most 1 MiB. False where `take` ended it. Throws
// Error(kCorrupt) behind a page whose checksum does not match, Error(kIo).
bool ReadSessionPages(const BlockReader& file, const SessionIdentity& identity,
                      const SessionHead& head, int64_t pages, const TakePageFn& take);

}  // namespace hearth
