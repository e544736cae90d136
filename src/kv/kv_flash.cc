#include "kv/kv_flash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace hearth {

KvFlash::KvFlash(Budget& budget, const KvLayout& layout, int64_t slots, UnnamedFile file)
    : map_{layout, slots},
      file_(std::move(file)),
      queue_(file_.file->OpenQueue({.depth = kPartsAtOnce})),
      bounce_(budget, "kv buffers", static_cast<size_t>(kPartsAtOnce) * map_.stride()),
      ring_(budget, map_, *file_.file) {
  free_.reserve(static_cast<size_t>(slots));
  for (int64_t slot = 0; slot < slots; ++slot) free_.push_back(static_cast<int32_t>(slot));
}

uint64_t KvFlash::FileBytes(const KvLayout& layout, int64_t slots) {
  return KvFileMap{layout, slots}.OffsetOf(layout.num_layers, 0);
}

uint64_t KvFlash::ChargedBytes(const KvLayout& layout, int64_t slots) {
  const KvFileMap map{layout, slots};
  return Buffer::ChargedBytes(static_cast<size_t>(kPartsAtOnce) * map.stride()) +
         KvRing::ChargedBytes(map);
}

KvFlashCounts KvFlash::counts() const {
  return {written_bytes_, ring_.read_bytes(), ring_.wait_seconds()};
}

int32_t KvFlash::TakeSlot() {
  if (free_.empty()) throw Error(ErrorCode::kInternal, "KvFlash", "no slot is free");
  // The lowest, so that slots in use stay together and reads are long.
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const int32_t slot = free_.back();
  free_.pop_back();
  ring_.Forget();
  return slot;
}

void KvFlash::DropSlot(int32_t slot) noexcept {
  free_.push_back(slot);  // reserved for all
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
  ring_.Forget();
}

std::vector<KvFlash::Piece> KvFlash::Cut(uint64_t offset, size_t bytes) const {
  std::vector<Piece> pieces;
  const size_t part = map_.part_bytes();
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t begin = (offset + at) % part;
    const size_t count = std::min<uint64_t>(part - begin, bytes - at);
    pieces.push_back({static_cast<int64_t>((offset + at) / part), begin, count, at});
    at += count;
  }
  return pieces;
}

// The whole parts of at most kPartsAtOnce pieces, each to its place of bounce_.
void KvFlash::ReadParts(int32_t slot, std::span<const Piece> pieces) {
  std::array<ReadRequest, kPartsAtOnce> requests;
  for (size_t i = 0; i < pieces.size(); ++i) {
    requests[i] = {.offset = map_.OffsetOf(pieces[i].layer, slot),
                   .data = bounce(i),
                   .bytes = static_cast<uint32_t>(map_.stride())};
  }
  int error =
      queue_->Submit(std::span(requests).first(pieces.size())) == pieces.size() ? 0 : EAGAIN;
  std::array<ReadCompletion, kPartsAtOnce> done;
  while (queue_->in_flight() > 0) {
    const size_t count = queue_->Wait(done);
    for (size_t i = 0; i < count; ++i) error = done[i].error != 0 ? done[i].error : error;
  }
  if (error == 0) return;
  throw Error(ErrorCode::kIo, "kv cache",
              fmt::format("reading a spilled page from {} failed: {}", file_.file->name(),
                          std::generic_category().message(error)));
}

void KvFlash::Read(int32_t slot, uint64_t offset, std::span<std::byte> out) {
  const std::vector<Piece> all = Cut(offset, out.size());
  for (size_t begin = 0; begin < all.size(); begin += kPartsAtOnce) {
    const auto pieces =
        std::span(all).subspan(begin, std::min<size_t>(kPartsAtOnce, all.size() - begin));
    ReadParts(slot, pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::memcpy(out.data() + pieces[i].at, bounce(i) + pieces[i].begin, pieces[i].bytes);
    }
  }
}

void KvFlash::Write(int32_t slot, uint64_t offset, std::span<const std::byte> bytes) {
  for (const Piece& piece : Cut(offset, bytes.size())) {
    // What the rest of the part has is kept.
    if (piece.bytes < map_.part_bytes()) ReadParts(slot, {&piece, 1});
    std::memcpy(bounce(0) + piece.begin, bytes.data() + piece.at, piece.bytes);
    const int error =
        file_.write(map_.OffsetOf(piece.layer, slot), std::span(bounce(0), map_.stride()));
    if (error != 0) {
      throw Error(ErrorCode::kIo, "kv cache",
                  fmt::format("spilling a page to {} failed: {}", file_.file->name(),
                              std::generic_category().message(error)));
    }
    written_bytes_ += map_.stride();
  }
}

}  // namespace hearth
