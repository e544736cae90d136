#include "planner/doctor/batch_speed.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>

#include "accel/devices.h"
#include "accel/matrix_kernels.h"
#include "base/budget.h"
#include "base/buffer.h"
#include "base/cpu.h"
#include "base/random_words.h"
#include "base/stopwatch.h"
#include "measure/statistics.h"
#include "ops/linear.h"

namespace hearth {
namespace {

constexpr int64_t kTokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr int64_t kMostTokens = 256;
constexpr int64_t kColumns = 4096;
// More than the caches of a core, so that few tokens wait for memory as they do in a model.
constexpr int64_t kRows = 16384;
// Of a device that would take long for them.
constexpr int64_t kFewestRows = 256;

// Multiply-adds per second of work that does so many.
double Rate(double macs, double seconds, const std::function<void()>& work) {
  int64_t times = 0;
  const Stopwatch watch;
  do {
    work();
    ++times;
  } while (watch.Seconds() < seconds);
  return macs * static_cast<double>(times) / watch.Seconds();
}

// Bytes whose halves are ordinary numbers wherever a type has them.
void FillWeights(std::span<std::byte> bytes) {
  RandomWords random(1);
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random.Next() & 0x3f3f3f3f3f3f3f3fu;
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
}

class ProcessorSide {
 public:
  ProcessorSide()
      : compute_("auto", AvailableCpus()),
        weights_(budget_, "weights", View(nullptr).expert_bytes()),
        x_(budget_, "activations", kMostTokens * kColumns * sizeof(float)),
        out_(budget_, "activations", kMostTokens * kRows * sizeof(float)),
        input_(budget_, kMostTokens, kColumns) {
    FillWeights({weights_.data(), weights_.size_bytes()});
  }
  void Multiply(int64_t tokens) {
    input_.Set({reinterpret_cast<float*>(x_.data()), tokens, kColumns, kColumns});
    const Product product = {View(weights_.data()),
                             {reinterpret_cast<float*>(out_.data()), tokens, kRows, kRows}};
    MatMul(compute_, {&product, 1}, input_);
  }

 private:
  static WeightView View(const std::byte* data) {
    return {.data = data, .dtype = DType::kQ4_0, .cols = kColumns, .rows = kRows, .is_tiled = true};
  }

  Budget budget_;
  Compute compute_;
  Buffer weights_, x_, out_;
  MatMulInput input_;
};

class DeviceSide {
 public:
  explicit DeviceSide(accel::Device& device)
      : kernels_(device, DType::kQ4_0),
        weights_(device.MakeBuffer("probe", kRows * RowBytes(DType::kQ4_0, kColumns))),
        x_(device.MakeBuffer("probe", kMostTokens * kColumns * sizeof(float))),
        out_(device.MakeBuffer("probe", kMostTokens * kRows * sizeof(float))),
        queue_(device.MakeQueue()) {
    std::vector<std::byte> bytes(weights_->size_bytes());
    FillWeights(bytes);
    queue_->Upload(bytes, *weights_);
    queue_->Finish();
  }
  // So many rows that the most tokens take about as long as that.
  void ChooseRows(double seconds) {
    const auto macs = static_cast<double>(kFewestRows * kColumns * kMostTokens);
    rows_ = kFewestRows;
    Multiply(1);  // drivers may still compile at the first launch
    Multiply(kMostTokens);
    const double rate = Rate(macs, 0, [&] { Multiply(kMostTokens); });
    const double of_row = static_cast<double>(kColumns * kMostTokens) / rate;
    rows_ = static_cast<int64_t>(std::clamp(seconds / of_row, double{kFewestRows}, double{kRows}));
  }
  int64_t rows() const { return rows_; }
  void Multiply(int64_t tokens) {
    kernels_.Multiply(*queue_, {.weights = weights_.get(), .rows = rows_, .columns = kColumns}, *x_,
                      tokens, *out_, accel::MatrixKernels::WayFor(tokens));
    queue_->Finish();
  }

 private:
  accel::MatrixKernels kernels_;
  const std::unique_ptr<accel::DeviceBuffer> weights_, x_, out_;
  const std::unique_ptr<accel::DeviceQueue> queue_;
  int64_t rows_ = kRows;
};

}  // namespace

std::vector<BatchSpeed> MeasureBatches(size_t index, const BatchEffort& effort,
                                       const std::string& cache_folder) {
  const std::unique_ptr<accel::Device> device =
      accel::OpenDevice(index, {.cache_folder = cache_folder});
  DeviceSide there(*device);
  there.ChooseRows(effort.seconds);
  ProcessorSide here;
  std::map<int64_t, std::vector<double>> of_device, of_processor;
  for (int round = 0; round < effort.rounds; ++round) {
    for (const int64_t tokens : kTokens) {
      const auto macs_of_row = static_cast<double>(tokens * kColumns);
      of_processor[tokens].push_back(
          Rate(macs_of_row * kRows, effort.seconds, [&] { here.Multiply(tokens); }));
      of_device[tokens].push_back(Rate(macs_of_row * static_cast<double>(there.rows()),
                                       effort.seconds, [&] { there.Multiply(tokens); }));
    }
  }
  std::vector<BatchSpeed> speeds;
  for (const int64_t tokens : kTokens) {
    speeds.push_back(
        {tokens, SpreadOf(of_processor[tokens]).median, SpreadOf(of_device[tokens]).median});
  }
  return speeds;
}

std::optional<int64_t> UploadTokens(std::span<const BatchSpeed> speeds, const UploadRates& rates) {
  std::optional<int64_t> fewest;
  const double moves =
      rates.bytes_per_weight / std::min(rates.read_bytes_per_s, rates.upload_bytes_per_s);
  for (const BatchSpeed& speed : speeds) {
    const auto tokens = static_cast<double>(speed.tokens);
    const double there = std::max(moves, tokens / speed.device_macs_per_s);
    if (there < tokens / speed.processor_macs_per_s) {
      fewest = fewest.value_or(speed.tokens);
    } else {
      fewest.reset();
    }
  }
  return fewest;
}

}  // namespace hearth
