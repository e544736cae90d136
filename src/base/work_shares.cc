#include "base/work_shares.h"

#include <algorithm>
#include <numeric>

namespace hearth {
namespace {

// A piece is this part of what a share has left: a few pieces per share while there is much.
constexpr int64_t kPieceDivisor = 4;
// Sections shorter than this say more about waking up than about speed.
constexpr int64_t kMinTellingNs = 50'000;
constexpr double kSpeedWeight = 0.1;  // of a section's measurement
constexpr double kMinSpeed = 0.02;    // every worker keeps a share, so that it can recover

constexpr uint64_t Pack(int64_t begin, int64_t end) {
  return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end);
}
constexpr WorkRange Unpack(uint64_t range) {
  return {static_cast<int64_t>(range >> 32), static_cast<int64_t>(range & 0xffffffff)};
}

int64_t PieceOf(WorkRange range) {
  return std::max<int64_t>(1, (range.end - range.begin) / kPieceDivisor);
}

}  // namespace

WorkShares::WorkShares(int workers)
    : workers_(workers),
      shares_(new Share[static_cast<size_t>(workers)]),
      speeds_(static_cast<size_t>(workers), 1.0) {}

void WorkShares::Deal(int64_t units) {
  const double total = std::accumulate(speeds_.begin(), speeds_.end(), 0.0);
  double before = 0;
  int64_t begin = 0;
  for (int worker = 0; worker < workers_; ++worker) {
    before += speeds_[static_cast<size_t>(worker)];
    const auto share_end = static_cast<int64_t>(static_cast<double>(units) * before / total + 0.5);
    const int64_t end = worker + 1 == workers_ ? units : std::clamp(share_end, begin, units);
    Share& share = shares_[static_cast<size_t>(worker)];
    share.units_done = 0;
    share.ns = 0;
    share.range.store(Pack(begin, end), std::memory_order_relaxed);
    begin = end;
  }
}

std::optional<WorkRange> WorkShares::TakeFront(Share& share) {
  uint64_t packed = share.range.load(std::memory_order_relaxed);
  for (;;) {
    const WorkRange left = Unpack(packed);
    if (left.begin >= left.end) return std::nullopt;
    const int64_t piece_end = left.begin + PieceOf(left);
    if (share.range.compare_exchange_weak(packed, Pack(piece_end, left.end),
                                          std::memory_order_relaxed)) {
      return WorkRange{left.begin, piece_end};
    }
  }
}

std::optional<WorkRange> WorkShares::TakeBack(Share& share) {
  uint64_t packed = share.range.load(std::memory_order_relaxed);
  for (;;) {
    const WorkRange left = Unpack(packed);
    if (left.begin >= left.end) return std::nullopt;
    const int64_t piece_begin = left.end - PieceOf(left);
    if (share.range.compare_exchange_weak(packed, Pack(left.begin, piece_begin),
                                          std::memory_order_relaxed)) {
      return WorkRange{piece_begin, left.end};
    }
  }
}

std::optional<WorkRange> WorkShares::Take(int worker) {
  if (const auto own = TakeFront(shares_[static_cast<size_t>(worker)])) return own;
  for (;;) {
    Share* richest = nullptr;
    int64_t most = 0;
    for (int other = 0; other < workers_; ++other) {
      Share& share = shares_[static_cast<size_t>(other)];
      const WorkRange left = Unpack(share.range.load(std::memory_order_relaxed));
      if (left.end - left.begin > most) {
        most = left.end - left.begin;
        richest = &share;
      }
    }
    if (richest == nullptr) return std::nullopt;
    if (const auto stolen = TakeBack(*richest)) return stolen;
  }
}

void WorkShares::Report(int worker, int64_t units, int64_t ns) {
  Share& share = shares_[static_cast<size_t>(worker)];
  share.units_done = units;
  share.ns = ns;
}

void WorkShares::UpdateSpeeds() {
  double total_rate = 0;
  int measured = 0;
  for (int worker = 0; worker < workers_; ++worker) {
    const Share& share = shares_[static_cast<size_t>(worker)];
    if (share.ns < kMinTellingNs) continue;
    total_rate += static_cast<double>(share.units_done) / static_cast<double>(share.ns);
    ++measured;
  }
  if (measured < 2 || total_rate <= 0) return;
  for (int worker = 0; worker < workers_; ++worker) {
    const Share& share = shares_[static_cast<size_t>(worker)];
    if (share.ns < kMinTellingNs) continue;
    const double rate = static_cast<double>(share.units_done) / static_cast<double>(share.ns);
    double& speed = speeds_[static_cast<size_t>(worker)];
    speed += kSpeedWeight * (rate * measured / total_rate - speed);
    speed = std::max(speed, kMinSpeed);
  }
}

}  // namespace hearth
