// The part of a model's FFNs that a device beside the processor computes (P1 §5.3), in the cost of
// a token: what it takes off the processor, and how long it takes itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/planned_device.h"
#include "planner/cost/access_record.h"
#include "planner/cost/cost_model.h"
#include "sparsity/mode.h"

namespace hearth {

struct DeviceShare {
  PlannedDevice planned;
  uint64_t neuron_bytes = 0;  // in its memory
  int64_t experts_per_token = 1;
  double gate_share = 0;    // of these, what is read of a neuron that does not fire
  double bytes_per_s = 0;   // at which it takes weights in
  double sync_seconds = 0;  // of each layer that it has a part in
  // Per token, for matrices beside which nothing is computed, with what sending and fetching takes.
  double dense_seconds = 0;
};

// How many neurons of each layer a token asks for, on the device and beside it, on average.
struct DeviceLoad {
  std::vector<double> there, here;
};
DeviceLoad LoadOf(const AccessRecord& record, std::span<const int64_t> layer_neurons);
// The same where tokens ask for all of `neurons` neurons of `experts_per_token` FFNs of a layer.
DeviceLoad FullLoad(int64_t neurons, int64_t experts_per_token,
                    std::span<const int64_t> layer_neurons);

// What the processor is asked for: lists without the neurons of the device, numbered from the first
// of the others on, as its engine numbers them (HybridFfn), and its part of the activity. Where
// layers differ in what is on the device, numbers of the last neurons stay unused.
AccessRecord BesideDevice(const AccessRecord& record, FfnMode mode,
                          std::span<const int64_t> layer_neurons);

// Adds to a token's cost what its layers wait for the device, where that takes longer than the
// processor.
void AddDevice(const DeviceShare& share, const DeviceLoad& load, FfnMode mode, TokenCost& cost);

// Seconds of a token of a prompt on the device, which computes all its neurons.
double PromptSecondsOnDevice(const DeviceShare& share);

}  // namespace hearth
