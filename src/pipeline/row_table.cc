#include "pipeline/row_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "base/stopwatch.h"
#include "ops/elementwise.h"

namespace hearth {
namespace {

// No file asks for more.
constexpr size_t kMostAlignment = 4096;

// A row with what direct reads add before and after it.
size_t PlaceBytes(const RowTableSpec& spec) {
  return RoundUp(spec.row_bytes(), kMostAlignment) + kMostAlignment;
}

size_t KeptRows(const RowTableSpec& spec) {
  return static_cast<size_t>(std::min(spec.rows, std::max(RowTable::kKeptRows, spec.most_ids)));
}

size_t KeptBytes(const RowTableSpec& spec) { return KeptRows(spec) * spec.row_bytes(); }
size_t BounceBytes(const RowTableSpec& spec) { return RowTable::kDepth * PlaceBytes(spec); }

}  // namespace

RowTable::RowTable(Budget& budget, const RowTableSpec& spec, std::unique_ptr<AsyncFile> file)
    : spec_(spec),
      file_(std::move(file)),
      queue_(file_->OpenQueue({.depth = kDepth, .capacity = kDepth})),
      kept_(budget, "embedding rows", KeptBytes(spec)),
      bounce_(budget, "embedding rows", BounceBytes(spec)) {
  of_id_.reserve(KeptRows(spec));
}

uint64_t RowTable::ChargedBytes(const RowTableSpec& spec) {
  return Buffer::ChargedBytes(KeptBytes(spec)) + Buffer::ChargedBytes(BounceBytes(spec));
}

void RowTable::TakeSlots(std::span<const int32_t> ids) {
  missing_.clear();
  for (const int32_t id : ids) {
    const auto known = of_id_.find(id);
    if (known != of_id_.end()) {
      order_.splice(order_.begin(), order_, known->second.place);
      ++counts_.found;
      continue;
    }
    size_t slot = of_id_.size();
    if (slot == KeptRows(spec_)) {
      // Of these ids at most one that comes later, which is read again.
      const auto oldest = of_id_.find(order_.back());
      slot = oldest->second.slot;
      of_id_.erase(oldest);
      order_.pop_back();
    }
    order_.push_front(id);
    of_id_.emplace(id, Kept{slot, order_.begin()});
    missing_.push_back(id);
  }
}

// Rows that were to be read are not there.
void RowTable::Forget() noexcept {
  of_id_.clear();
  order_.clear();
}

void RowTable::Read() {
  std::array<ReadRequest, kDepth> requests;
  std::array<ReadCompletion, kDepth> done;
  for (size_t begin = 0; begin < missing_.size(); begin += kDepth) {
    const size_t count = std::min<size_t>(kDepth, missing_.size() - begin);
    std::array<uint64_t, kDepth> skips;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t at =
          spec_.offset + static_cast<uint64_t>(missing_[begin + i]) * spec_.row_bytes();
      const AlignedRange range = CoveringRange(at, spec_.row_bytes(), file_->alignment_bytes());
      skips[i] = range.skip;
      requests[i] = {.offset = range.offset,
                     .data = bounce_.data() + i * PlaceBytes(spec_),
                     .bytes = static_cast<uint32_t>(range.bytes),
                     .tag = i};
    }
    int error = queue_->Submit(std::span(requests).first(count)) == count ? 0 : EAGAIN;
    int32_t failed = missing_[begin];
    while (queue_->in_flight() > 0) {
      const size_t landed = queue_->Wait(done);
      for (size_t i = 0; i < landed; ++i) {
        if (done[i].error == 0) continue;
        error = done[i].error;
        failed = missing_[begin + done[i].tag];
      }
    }
    if (error != 0) ThrowReadError(*file_, fmt::format("row {} of {}", failed, spec_.name), error);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(slot(of_id_.at(missing_[begin + i]).slot), requests[i].data + skips[i],
                  spec_.row_bytes());
    }
  }
  counts_.read += missing_.size();
}

void RowTable::LookUp(Compute& compute, std::span<const int32_t> ids, FloatView out) {
  if (std::ssize(ids) > spec_.most_ids) {
    throw Error(ErrorCode::kInternal, "RowTable", "ids of one call", std::to_string(spec_.most_ids),
                std::to_string(ids.size()));
  }
  TakeSlots(ids);
  if (!missing_.empty()) {
    const Stopwatch watch;
    try {
      Read();
    } catch (...) {
      Forget();
      throw;
    }
    counts_.read_seconds += watch.Seconds();
  }
  slots_.clear();
  for (const int32_t id : ids) slots_.push_back(static_cast<int32_t>(of_id_.at(id).slot));
  const WeightView kept = {.data = kept_.data(),
                           .dtype = spec_.dtype,
                           .cols = spec_.cols,
                           .rows = static_cast<int64_t>(KeptRows(spec_))};
  LookUpRows(compute, kept, slots_, out);
}

}  // namespace hearth
