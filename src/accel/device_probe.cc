#include "accel/device_probe.h"

#include <algorithm>

#include "accel/launch_sizes.h"
#include "base/stopwatch.h"

namespace hearth::accel {
namespace {

constexpr uint64_t kLeastBytes = uint64_t{1} << 20;
// The kernel counts words of 16 bytes in 31 bits; reading more would only take longer.
constexpr uint64_t kMostProbeBytes = uint64_t{1} << 32;
// Work-items that read memory at the same time: enough for the largest devices.
constexpr size_t kReaders = 1 << 17;
// Rows that are multiplied with many tokens.
constexpr int64_t kRowsOfMatmul = 1024;

int64_t BytesOf(const Device& device, uint64_t bytes) {
  const uint64_t most =
      std::min({device.info().max_buffer_bytes, device.info().memory_bytes / 4, kMostProbeBytes});
  return static_cast<int64_t>(std::clamp(bytes, kLeastBytes, std::max(most, kLeastBytes)));
}

int64_t RowsOf(int64_t bytes) {
  return bytes / static_cast<int64_t>(RowBytes(DType::kQ4_0, DeviceProbe::kColumns));
}

uint64_t OutBytes(int64_t rows) {
  const int64_t of_matmul = std::min(rows, kRowsOfMatmul) * DeviceProbe::kTokens;
  return static_cast<uint64_t>(4 * std::max({rows, of_matmul, int64_t{kReaders}}));
}

}  // namespace

DeviceProbe::DeviceProbe(Device& device, uint64_t bytes)
    : bytes_(BytesOf(device, bytes)),
      rows_(RowsOf(bytes_)),
      queue_(device.MakeQueue()),
      read_(device.MakeKernel({"probe"}, "read_all")),
      matrix_(device, DType::kQ4_0),
      vectors_(device),
      weights_(device.MakeBuffer("probe", static_cast<uint64_t>(bytes_))),
      x_(device.MakeBuffer("probe", 4 * kColumns * kTokens)),
      out_(device.MakeBuffer("probe", OutBytes(rows_))),
      host_(static_cast<size_t>(bytes_)) {}

double DeviceProbe::TimesPerSecond(double seconds, const std::function<void()>& work) {
  work();  // drivers may still compile at the first launch
  queue_->Finish();
  int64_t times = 0;
  const Stopwatch watch;
  do {
    work();
    queue_->Finish();
    ++times;
  } while (watch.Seconds() < seconds);
  return static_cast<double>(times) / watch.Seconds();
}

DeviceRates DeviceProbe::Measure(double seconds) {
  const auto bytes = static_cast<double>(bytes_);
  const auto row_bytes = static_cast<double>(RowBytes(DType::kQ4_0, kColumns));
  const int64_t rows = std::min(rows_, kRowsOfMatmul);
  DeviceRates rates;
  rates.read_bytes_per_s =
      bytes * TimesPerSecond(seconds, [&] {
        const KernelArgument arguments[] = {weights_.get(), ToInt(bytes_ / 16), out_.get()};
        queue_->Launch(*read_, {{kReaders, 1}, {kGroup, 1}}, arguments);
      });
  rates.matvec_bytes_per_s = row_bytes * static_cast<double>(rows_) * TimesPerSecond(seconds, [&] {
                               matrix_.Multiply(*queue_, {weights_.get(), rows_, kColumns}, *x_, 1,
                                                *out_, MatmulWay::kByToken);
                             });
  rates.matmul_macs_per_s =
      static_cast<double>(rows * kColumns * kTokens) * TimesPerSecond(seconds, [&] {
        matrix_.Multiply(*queue_, {weights_.get(), rows, kColumns}, *x_, kTokens, *out_,
                         MatmulWay::kInTiles);
      });
  rates.upload_bytes_per_s =
      bytes * TimesPerSecond(seconds, [&] { queue_->Upload(host_, *weights_); });
  rates.download_bytes_per_s =
      bytes * TimesPerSecond(seconds, [&] { queue_->Download(*weights_, 0, host_); });
  rates.launch_seconds = 1 / TimesPerSecond(seconds, [&] { vectors_.Add(*queue_, *x_, 1, *out_); });
  return rates;
}

}  // namespace hearth::accel
