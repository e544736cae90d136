// Small models and devices whose times are known, for the simulator's tests.
#pragma once

#include <string>

#include "planner/simulator/device_model.h"
#include "planner/simulator/simulator_model.h"
#include "prepare/shapes/shapes.h"

namespace hearth {

// A model of 4 layers of 512 neurons, 1024 wide, as the paper lays them out: 1.5 KiB of codes each.
inline SimModel SmallSimModel(int64_t experts = 0, int64_t experts_per_token = 0) {
  ModelShape shape = FindShape("bamboo-7b");
  shape.name = "small";
  shape.hidden_size = 1024;
  shape.intermediate_size = 512;
  shape.num_layers = 4;
  shape.num_heads = 8;
  shape.num_kv_heads = 8;
  shape.num_experts = experts;
  shape.num_experts_per_token = experts_per_token;
  SimModel model = SimModelOf(shape, SimSystem::kPowerInfer2);
  // Two reads per neuron, as large models have.
  model.gate_read_bytes = 4096;
  model.bundle_bytes = 8192;
  return model;
}

// Cores of one kind, and flash of one rate for all reads.
inline SimDevice FlatDevice(double macs_per_s, double flash_bytes_per_s, int compute_cores = 4) {
  SimDevice device;
  device.name = "flat";
  device.cores = {{"core", compute_cores + 1, macs_per_s, 0}};
  device.compute = {compute_cores};
  device.io_kind = 0;
  device.memory_bytes_per_s = 1e15;
  device.memory_bytes = uint64_t{1} << 34;
  device.flash.name = "flat";
  device.flash.random = {{1, 1e3}, {uint64_t{1} << 30, 1e3}};
  for (ThroughputPoint& point : device.flash.random) point.bytes_per_second = flash_bytes_per_s;
  device.flash.core_seconds = {0};
  return device;
}

}  // namespace hearth
