#include "kv/kv_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/stopwatch.h"

namespace hearth {
namespace {

// What is read ahead of a layer's attention, where more than two buffers are needed for that, and
// of how many layers one buffer at the most.
constexpr uint64_t kAheadBytes = uint64_t{6} << 20;
constexpr int64_t kLayersPerBuffer = 8;

size_t BytesOf(const KvFileMap& map) {
  return Buffer::UpToHugePage(static_cast<size_t>(map.buffers()) * map.layer_bytes());
}

}  // namespace

int64_t KvFileMap::buffers() const {
  if (slots == 0) return 2;
  const auto ahead = static_cast<int64_t>((kAheadBytes + layer_bytes() - 1) / layer_bytes());
  return std::max<int64_t>(2, std::min(1 + ahead, layout.num_layers / kLayersPerBuffer));
}

KvRing::KvRing(Budget& budget, const KvFileMap& map, AsyncFile& file)
    : map_(map), file_(file), memory_(budget, "kv buffers", BytesOf(map)) {
  const auto slots = static_cast<size_t>(map.slots);
  sides_.resize(static_cast<size_t>(map.buffers()));
  for (size_t i = 0; i < sides_.size(); ++i) {
    sides_[i].memory = memory_.data() + i * map.layer_bytes();
    sides_[i].list.reserve(slots);
  }
  last_first_list_.reserve(slots);
  requests_.reserve(sides_.size() * slots);
  waiting_.reserve(sides_.size());
  queue_ = file.OpenQueue(
      {.depth = kDepth, .capacity = std::max<size_t>(kDepth, sides_.size() * slots)});
}

uint64_t KvRing::ChargedBytes(const KvFileMap& map) { return Buffer::ChargedBytes(BytesOf(map)); }

void KvRing::Begin(KvSlotLists lists) {
  const bool is_ahead = IsAhead(lists);
  const auto layers = std::ssize(lists);
  const std::span<const int32_t> first = lists.front();
  expects_same_ =
      std::equal(first.begin(), first.end(), last_first_list_.begin(), last_first_list_.end());
  last_first_list_.assign(first.begin(), first.end());
  lists_ = lists;
  in_pass_ = true;
  is_ahead_ = false;
  if (is_ahead) return;
  Drain();
  first_visit_ = 0;
  for (int64_t layer = 0; layer < std::min(layers, std::ssize(sides_)); ++layer) {
    Fill(layer, lists[static_cast<size_t>(layer)]);
  }
}

// Whether the buffers are being filled with what this pass needs first.
bool KvRing::IsAhead(KvSlotLists lists) const {
  if (in_pass_ || !is_ahead_) return false;
  for (size_t layer = 0; layer < sides_.size(); ++layer) {
    const Side& side = sides_[(static_cast<size_t>(first_visit_) + layer) % sides_.size()];
    const std::span<const int32_t> list = lists[layer];
    if (side.epoch != epoch_ || side.error != 0 ||
        !std::equal(list.begin(), list.end(), side.list.begin(), side.list.end())) {
      return false;
    }
  }
  return true;
}

void KvRing::Fill(int64_t layer, std::span<const int32_t> list) {
  Side& side = BufferOf(layer);
  side.list.assign(list.begin(), list.end());
  side.epoch = epoch_;
  side.error = 0;
  side.file_layer = layer % map_.layout.num_layers;
  side.is_waiting = true;
  waiting_.push_back(static_cast<size_t>(&side - sides_.data()));
  StartWaiting();
}

// Neighbouring slots lie side by side in the file and in memory: they are one read.
void KvRing::AddReads(const Side& side) {
  const auto index = static_cast<size_t>(&side - sides_.data());
  const std::vector<int32_t>& list = side.list;
  const size_t stride = map_.stride();
  const auto most = std::max<size_t>(1, kMostRunBytes / stride);
  for (size_t begin = 0; begin < list.size();) {
    size_t end = begin + 1;
    while (end < list.size() && end - begin < most && list[end] == list[end - 1] + 1) ++end;
    const int32_t slot = list[begin];
    requests_.push_back({.offset = map_.OffsetOf(side.file_layer, slot),
                         .data = side.memory + static_cast<size_t>(slot) * stride,
                         .bytes = static_cast<uint32_t>((end - begin) * stride),
                         .tag = TagOf(index, slot)});
    begin = end;
  }
}

// Once nothing is read, the reads of the next buffers begin. Between passes all do: while tokens
// are chosen nobody polls, and nobody waits.
void KvRing::StartWaiting() noexcept {
  if (waiting_.empty() || (in_pass_ && queue_->in_flight() > 0)) return;
  requests_.clear();
  size_t started = 0;
  for (uint64_t bytes = 0; started < waiting_.size(); ++started) {
    Side& side = sides_[waiting_[started]];
    bytes += side.list.size() * map_.stride();
    if (in_pass_ && started > 0 && bytes > kTogetherBytes) break;
    const size_t before = requests_.size();
    AddReads(side);
    side.is_waiting = false;
    side.in_flight = static_cast<int64_t>(requests_.size() - before);
    read_bytes_ += side.list.size() * map_.stride();
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(started));
  // The queue has room for all slots of all buffers; were it full, their layers would fail.
  for (size_t i = queue_->Submit(requests_); i < requests_.size(); ++i) {
    const ReadCompletion refused = {.tag = requests_[i].tag, .error = EAGAIN};
    Take({&refused, 1});
  }
}

void KvRing::Take(std::span<const ReadCompletion> completions) noexcept {
  for (const ReadCompletion& completion : completions) {
    Side& side = sides_[completion.tag % sides_.size()];
    --side.in_flight;
    if (completion.error == 0) continue;
    side.error = completion.error;
    side.failed_slot = static_cast<int32_t>(completion.tag / sides_.size());
  }
}

void KvRing::Poll() noexcept {
  if (queue_->in_flight() == 0) return;
  std::array<ReadCompletion, kDepth> some;
  Take(std::span(some).first(queue_->Poll(some)));
  StartWaiting();
}

void KvRing::WaitForSome() noexcept {
  std::array<ReadCompletion, kDepth> some;
  Take(std::span(some).first(queue_->Wait(some)));
  StartWaiting();
}

void KvRing::Drain() noexcept {
  waiting_.clear();
  for (Side& side : sides_) side.is_waiting = false;
  while (queue_->in_flight() > 0) WaitForSome();
}

void KvRing::Wait(int64_t layer) {
  Side& side = BufferOf(layer);
  if (side.is_waiting || side.in_flight > 0) {
    const Stopwatch watch;
    while (side.is_waiting || side.in_flight > 0) WaitForSome();
    wait_seconds_ += watch.Seconds();
  }
  if (side.error == 0) return;
  failed_slot_ = side.failed_slot;
  throw Error(ErrorCode::kIo, "kv cache",
              fmt::format("reading spilled pages from {} failed: {}", file_.name(),
                          std::generic_category().message(side.error)));
}

void KvRing::Done(int64_t layer) {
  const auto layers = std::ssize(lists_);
  const int64_t next = layer + std::ssize(sides_);
  if (next < layers) {
    Fill(next, lists_[static_cast<size_t>(next)]);
  } else if (expects_same_ && layers >= std::ssize(sides_)) {
    Fill(next, lists_[static_cast<size_t>(next - layers)]);
  }
  if (layer + 1 < layers) return;
  in_pass_ = false;
  is_ahead_ = expects_same_ && layers >= std::ssize(sides_);
  first_visit_ += layers;
  StartWaiting();
}

}  // namespace hearth
