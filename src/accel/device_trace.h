// What a device and the processor do for FFNs, over time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "storage/clock.h"

namespace hearth::accel {

enum class TraceSide : uint8_t { kProcessor, kDevice };

// One thing that one side did, in seconds of the host's steady clock.
struct TraceSpan {
  std::string what;
  TraceSide side = TraceSide::kProcessor;
  int64_t ffn = 0;
  int64_t tokens = 0;
  double begin_seconds = 0;
  double end_seconds = 0;
};

// One thread at a time.
class DeviceTrace {
 public:
  // Spans that are kept, some 10 MB; a trace of a long run ends there.
  static constexpr size_t kMostSpans = size_t{1} << 17;

  static double Now() { return 1e-9 * static_cast<double>(SteadyClock().NowNs()); }
  void Add(TraceSpan span) {
    if (spans_.size() < kMostSpans) {
      spans_.push_back(std::move(span));
    } else {
      ++num_left_out_;
    }
  }
  const std::vector<TraceSpan>& spans() const { return spans_; }
  uint64_t num_left_out() const { return num_left_out_; }

 private:
  std::vector<TraceSpan> spans_;
  uint64_t num_left_out_ = 0;
};

// What the calling thread does from here to End, entered into a trace; null: nowhere.
class ProcessorSpan {
 public:
  ProcessorSpan(DeviceTrace* trace, const char* what, int64_t ffn, int64_t tokens) : trace_(trace) {
    if (trace_ == nullptr) return;
    span_ = {what, TraceSide::kProcessor, ffn, tokens, DeviceTrace::Now(), 0};
  }
  void End() {
    if (trace_ == nullptr) return;
    span_.end_seconds = DeviceTrace::Now();
    trace_->Add(std::move(span_));
  }

 private:
  DeviceTrace* const trace_;
  TraceSpan span_;
};

}  // namespace hearth::accel
