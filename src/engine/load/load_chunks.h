// Pieces of a model file, read while those before them are converted (engine/load/model.h).
//
// Reads go around the page cache, which would cost a copy of all weights and as much memory again;
// what it has already is read from there. Where the next start would be much faster with the file
// cached, because converting waits for a slow disk, and no memory limit forbids it, reads go
// through the cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "engine/load/model.h"
#include "storage/async/async_reader.h"
#include "storage/async/piece_reads.h"

namespace hearth {

// A run of rows of one matrix, read, converted and packed as one piece. In tiled matrices it begins
// with a tile.
struct LoadChunk {
  const ResidentTensor* tensor = nullptr;
  uint64_t expert = 0;  // of those that are held
  uint64_t first_row = 0;
  uint64_t rows = 0;

  uint64_t stored_row_bytes() const { return tensor->stored_row_bytes(); }
  uint64_t stored_bytes() const { return rows * stored_row_bytes(); }
  // Where it begins in the tensor's stored bytes, and in the file.
  uint64_t stored_offset() const {
    return tensor->stored_begin() +
           (tensor->StoredExpert(expert) * tensor->stored_rows() + first_row) * stored_row_bytes();
  }
  uint64_t file_offset() const { return tensor->stored->offset + stored_offset(); }
};

// All rows of the tensors, as they lie in the files, in chunks of at most `most_bytes` or of one
// tile (where a tensor has none, one row).
std::vector<LoadChunk> SplitIntoChunks(const std::vector<ResidentTensor>& tensors,
                                       uint64_t most_bytes);

// Whether the page cache is to keep a file, decided once, after its first kDecideBytes.
// Thread-safe.
class CacheChoice {
 public:
  static constexpr uint64_t kDecideBytes = uint64_t{256} << 20;
  // A next start from the cache takes what converting takes: worth the cache where this one waits
  // so many times as long.
  static constexpr double kWorthwhile = 3;

  explicit CacheChoice(bool may_cache) : may_cache_(may_cache) {}

  // So many bytes were read around the cache; a thread waited for them, then converted them.
  void Note(uint64_t bytes, double wait_seconds, double work_seconds) noexcept;
  bool caches() const noexcept { return caches_; }

 private:
  const bool may_cache_;
  std::atomic<bool> caches_{false};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int64_t> wait_ns_{0};
  std::atomic<int64_t> work_ns_{0};
};

// What threads that load a model read from. Thread-safe. `file` must outlive it.
class LoadSource {
 public:
  // Opens the files once more, for direct reads; parts that are no files (import/hugging_face.h)
  // are read as they were opened. may_cache: whether the page cache may keep what is read; where
  // not, what it keeps all the same is dropped. Throws as OpenAsyncFile.
  LoadSource(const GgufFile& file, const AsyncFileOptions& io, bool may_cache);

  const GgufFile& file() const { return file_; }
  // The file to read a chunk from if ReadsAround is true for it.
  AsyncFile& part(size_t index) const { return *parts_[index]; }
  size_t num_parts() const { return parts_.size(); }
  bool drops_cache() const { return drops_cache_; }
  CacheChoice& choice() { return choice_; }

  // Whether to read a chunk around the page cache.
  bool ReadsAround(const LoadChunk& chunk) const;

 private:
  const GgufFile& file_;
  const bool drops_cache_;
  CacheChoice choice_;
  std::vector<std::unique_ptr<AsyncFile>> parts_;  // null: no file
};

// Reads chunks in the order in which they are asked for, some ahead. One thread at a time.
class LoadReader {
 public:
  // Direct reads begin and end on multiples of this, which nearly all devices accept; others are
  // read through the cache.
  static constexpr uint64_t kAlignment = 4096;
  // Of a buffer for chunks of so many bytes.
  static uint64_t BufferBytes(uint64_t chunk_bytes);

  LoadReader(LoadSource& source, uint64_t most_chunk_bytes, size_t num_buffers);

  bool full() const { return asked_ - taken_ == reads_.size(); }
  bool empty() const { return asked_ == taken_; }

  // Wants a chunk, behind all others; not where full(). `chunk` must stay until it is done.
  void Ask(const LoadChunk& chunk);

  struct Taken {
    const LoadChunk& chunk;
    std::span<const std::byte> stored;
  };
  // The chunk that was asked for first; not where empty(). Waits for it. Its bytes are valid until
  // Done. Throws Error(kIo).
  Taken Take();
  // It is converted, in so many seconds.
  void Done(double work_seconds);

 private:
  struct Read {
    const LoadChunk* chunk = nullptr;
    bool around = false;
    PieceReads pieces;
  };
  struct FreeAligned {
    void operator()(std::byte* p) const { operator delete[](p, std::align_val_t{kAlignment}); }
  };

  size_t Index(uint64_t number) const { return number % reads_.size(); }
  std::byte* BufferOf(size_t index) const { return memory_.get() + index * buffer_bytes_; }
  ReadQueue& QueueOf(size_t part);

  LoadSource& source_;
  const uint64_t buffer_bytes_;
  std::vector<Read> reads_;                           // a buffer each, taken in turn
  std::unique_ptr<std::byte[], FreeAligned> memory_;  // before the queues: they write to it
  std::vector<std::unique_ptr<ReadQueue>> queues_;    // of the parts, once they are read
  uint64_t asked_ = 0;                                // chunks so far
  uint64_t taken_ = 0;                                // and done
  double wait_seconds_ = 0;                           // for the one taken
};

}  // namespace hearth
