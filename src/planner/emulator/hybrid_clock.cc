#include "planner/emulator/hybrid_clock.h"

#include <algorithm>
#include <cmath>

namespace hearth {
namespace {

constexpr double kStateBytes = 4;
// Kernels of attention with its norm and predictor: norm, queries keys and values, rotation, scores
// with values, output, predictor.
constexpr int kDenseLaunches = 6;
// Of an FFN: gates, factors, down, merge (accel/neuron_kernels.h).
constexpr int kFfnLaunches = 4;
// Reads lie this far apart, so that none is in sequence with the one before.
constexpr uint64_t kFlashStep = (uint64_t{1} << 20) * 37;

}  // namespace

HybridClock::HybridClock(const EmulatedMachine& machine, const EmulatedModel& model,
                         const EmulatedPlacement& placement)
    : machine_(machine), model_(model), placement_(placement) {}

double HybridClock::Transfer(double bytes) const {
  return machine_.link_seconds + bytes / machine_.link_bytes_per_s;
}

double HybridClock::OnDevice(double bytes, double macs, int launches) const {
  return launches * machine_.launch_seconds +
         std::max(bytes / machine_.device_bytes_per_s, macs / machine_.device_macs_per_s);
}

double HybridClock::OnHost(double bytes, double macs) const {
  return std::max(bytes / machine_.host_bytes_per_s, macs / machine_.host_macs_per_s);
}

double HybridClock::HostWeights(double bytes, double macs) const {
  const double here = OnHost(bytes, macs);
  if (tokens_ == 1) return here;
  const double there = 2 * Transfer(tokens_ * static_cast<double>(model_.hidden) * kStateBytes) +
                       Transfer(bytes) + OnDevice(bytes, macs, 1);
  return std::min(here, there);
}

double HybridClock::MoveTo(Unit unit) {
  if (where_ == unit) return 0;
  where_ = unit;
  return Transfer(tokens_ * static_cast<double>(model_.hidden) * kStateBytes);
}

void HybridClock::Count(Unit unit, double bytes, bool is_ffn) {
  if (work_ == nullptr) return;
  (unit == Unit::kDevice ? work_->device_bytes : work_->host_bytes) += bytes;
  if (is_ffn) (unit == Unit::kDevice ? work_->device_ffn_bytes : work_->host_ffn_bytes) += bytes;
}

void HybridClock::RunDense(int64_t layer) {
  const Unit unit = placement_.is_dense_there(layer) ? Unit::kDevice : Unit::kHost;
  now_ += MoveTo(unit);
  const auto weights = static_cast<double>(
      model_.attention_bytes + (ListsNeurons(placement_.system) ? model_.predictor_bytes : 0));
  const double cached = static_cast<double>(model_.kv_bytes) * (context_ + tokens_);
  const double macs = weights / model_.bytes_per_weight * tokens_;
  now_ += unit == Unit::kDevice ? OnDevice(weights + cached, macs, kDenseLaunches)
                                : HostWeights(weights, macs) + cached / machine_.host_bytes_per_s;
  Count(unit, weights, false);
}

void HybridClock::RunFfnWhole(int64_t layer) {
  const Unit unit = placement_.is_dense_there(layer) ? Unit::kDevice : Unit::kHost;
  const auto bytes = static_cast<double>(model_.ffn_bytes());
  const double macs = bytes / model_.bytes_per_weight * tokens_;
  now_ += unit == Unit::kDevice ? OnDevice(bytes, macs, kFfnLaunches) : HostWeights(bytes, macs);
  Count(unit, bytes, true);
}

// The unit that has the hidden states waits for the other, and adds what that made.
void HybridClock::RunFfnListed(const EmulatedLists& lists, bool is_there) {
  const auto neuron = static_cast<double>(model_.neuron_bytes);
  const double neuron_macs = neuron / model_.bytes_per_weight;
  const double vectors = Transfer(tokens_ * static_cast<double>(model_.hidden) * kStateBytes);
  const double on_host = lists.host + lists.flash;
  double device_end = now_, host_end = now_;
  if (lists.device > 0) {
    device_end += (is_there ? 0 : vectors) +
                  OnDevice(lists.device * neuron, lists.device_all * neuron_macs, kFfnLaunches);
    Count(Unit::kDevice, lists.device * neuron, true);
    if (!is_there) device_end += vectors;
  }
  if (on_host > 0) {
    const double begin = now_ + (is_there ? vectors : 0);
    const double compute = HostWeights(on_host * neuron, lists.host_all * neuron_macs);
    host_end = begin + compute;
    if (lists.flash > 0) {  // the last one that comes is computed after it has come
      host_end = std::max(host_end, begin + ReadSeconds(lists.flash) + compute / on_host);
    }
    Count(Unit::kHost, on_host * neuron, true);
    if (is_there) host_end += vectors;
  }
  now_ = std::max(device_end, host_end);
}

double HybridClock::ReadSeconds(double neurons) {
  const auto bytes = static_cast<double>(model_.neuron_bytes);
  if (work_ != nullptr) work_->flash_bytes += neurons * bytes;
  if (flash_ == nullptr) {
    return neurons * bytes / machine_.flash.random.back().bytes_per_second;
  }
  constexpr double kNs = 1e-9;
  const auto now_ns = static_cast<int64_t>(std::llround(now_ / kNs));
  int64_t end_ns = now_ns;
  for (auto left = static_cast<int64_t>(std::llround(neurons)); left > 0; --left) {
    flash_offset_ += kFlashStep;
    end_ns = std::max(end_ns, flash_->Serve({flash_offset_, model_.neuron_bytes, 0, 0}, now_ns));
  }
  return static_cast<double>(end_ns - now_ns) * kNs;
}

void HybridClock::RunOutput() {
  now_ += MoveTo(placement_.output_on_device ? Unit::kDevice : Unit::kHost);
  const auto bytes = static_cast<double>(model_.output_bytes);
  const double macs = bytes / model_.bytes_per_weight;  // of the last token alone
  now_ += placement_.output_on_device
              ? OnDevice(bytes, macs, 1) + Transfer(static_cast<double>(model_.vocab) * kStateBytes)
              : OnHost(bytes, macs);
  Count(placement_.output_on_device ? Unit::kDevice : Unit::kHost, bytes, false);
  where_ = Unit::kHost;
}

double HybridClock::PassSeconds(int64_t tokens, int64_t context,
                                const std::vector<EmulatedLists>& lists, DeviceModel* flash,
                                EmulatedWork* work) {
  tokens_ = static_cast<double>(tokens);
  context_ = static_cast<double>(context);
  now_ = 0;
  where_ = Unit::kHost;
  flash_ = flash;
  work_ = work;
  for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
    RunDense(layer);
    if (ListsNeurons(placement_.system)) {
      RunFfnListed(lists[static_cast<size_t>(layer)], placement_.is_dense_there(layer));
    } else {
      RunFfnWhole(layer);
    }
  }
  RunOutput();
  if (placement_.flash_bytes > 0) {  // mapped files are read in order, beside computing
    const auto bytes = static_cast<double>(placement_.flash_bytes);
    now_ = std::max(now_, bytes / machine_.flash.random.back().bytes_per_second);
    if (work_ != nullptr) work_->flash_bytes += bytes;
  }
  return now_;
}

}  // namespace hearth
