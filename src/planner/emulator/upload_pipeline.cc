#include "planner/emulator/upload_pipeline.h"

#include <algorithm>
#include <vector>

namespace hearth {

UploadTimes RunUploads(std::span<const UploadedUnit> units, const StageRates& rates,
                       const UploadRoom& room) {
  UploadTimes times;
  std::vector<double> buffer_free(static_cast<size_t>(room.pieces), 0);
  std::vector<double> slot_free(static_cast<size_t>(room.slots), 0);
  double read_end = 0, upload_end = 0, compute_end = 0;
  size_t piece = 0, uploaded = 0;
  for (const UploadedUnit& unit : units) {
    double& slot = slot_free[uploaded % slot_free.size()];
    for (uint64_t at = 0; !unit.is_there && at < unit.bytes; at += room.piece_bytes) {
      const auto bytes = static_cast<double>(std::min(room.piece_bytes, unit.bytes - at));
      const double read = bytes / rates.read_bytes_per_s;
      const double upload = rates.upload_seconds + bytes / rates.upload_bytes_per_s;
      double& buffer = buffer_free[piece++ % buffer_free.size()];
      read_end = std::max(read_end, buffer) + read;
      upload_end = std::max({upload_end, read_end, slot}) + upload;
      buffer = upload_end;
      times.read += read;
      times.upload += upload;
    }
    compute_end = std::max(compute_end, unit.is_there ? 0 : upload_end) + unit.compute_seconds;
    times.compute += unit.compute_seconds;
    if (unit.is_there) continue;
    slot = compute_end;
    ++uploaded;
  }
  times.seconds = compute_end;
  return times;
}

UploadTimes UploadedPrompt(const EmulatedMachine& machine, const EmulatedModel& model,
                           const EmulatedPlacement& placement, int64_t tokens) {
  const auto compute = [&](uint64_t bytes) {
    const auto read = static_cast<double>(bytes);
    const double macs = read / model.bytes_per_weight * static_cast<double>(tokens);
    return machine.launch_seconds +
           std::max(read / machine.device_bytes_per_s, macs / machine.device_macs_per_s);
  };
  // Of what the device lacks, neurons and layers that the host has no room for are read.
  uint64_t lacking = 0, flash = placement.flash_bytes;
  std::vector<UploadedUnit> units;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const auto l = static_cast<size_t>(layer);
    units.push_back(
        {model.attention_bytes, compute(model.attention_bytes), placement.is_dense_there(layer)});
    const auto there = static_cast<uint64_t>(placement.device_neurons[l]) * model.neuron_bytes;
    const uint64_t rest = model.ffn_bytes() - there;
    if (there > 0) units.push_back({there, compute(there), true});
    if (rest > 0) units.push_back({rest, compute(rest), false});
    lacking += rest + (placement.is_dense_there(layer) ? 0 : model.attention_bytes);
    if (placement.system == EmulatedSystem::kLayers) continue;
    flash += rest - static_cast<uint64_t>(placement.host_neurons[l]) * model.neuron_bytes;
  }
  // Storage and memory deliver at their own rates; a byte of the rest is of either by its share.
  const double of_flash =
      lacking == 0 ? 0 : std::min(1.0, static_cast<double>(flash) / static_cast<double>(lacking));
  const double seconds_per_byte = of_flash / machine.flash.random.back().bytes_per_second +
                                  (1 - of_flash) / machine.host_bytes_per_s;
  return RunUploads(units, {.read_bytes_per_s = 1 / seconds_per_byte,
                            .upload_bytes_per_s = machine.link_bytes_per_s,
                            .upload_seconds = machine.link_seconds});
}

}  // namespace hearth
