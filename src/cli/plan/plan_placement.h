// hearth plan --device-memory: which neurons a device with memory of its own holds.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "model/given_activation.h"
#include "planner/placement/placement_model.h"

namespace hearth::cli {

struct PlacementArguments {
  std::optional<uint64_t> device_bytes;  // --device-memory: a placement is asked for
  // Nothing: what 'hearth doctor' measured of the first device that is no processor; link_us is 10
  // where both bandwidths are given.
  std::optional<double> device_gb_s;
  std::optional<double> link_gb_s;
  std::optional<double> link_us;
  std::optional<double> memory_gb_s;  // nothing: measured here
  std::optional<double> flash_gb_s;   // of single neurons; nothing: what doctor measured, if it did
  DensePlace dense = DensePlace::kAuto;
  std::string profile;
  std::optional<GivenActivation> activation;  // as EngineOptions has it
  AssumedRates assumed;
  DType quant = DType::kQ4_0;
};

// Whether MODEL names a shape or a shape file, and no model file.
bool NamesShape(const std::string& model);

// --device-memory and what goes with it.
void AddPlacementOptions(CLI::App& command, PlacementArguments& arguments);

// Throws UsageError where options of a placement come without --device-memory.
void CheckPlacementUsage(const CLI::App& command, const PlacementArguments& arguments);

// The device and the host that the options describe; host_bytes stays open. Throws as
// PlanPlacement.
PlacementMachine PlacementMachineOf(const PlacementArguments& arguments);

// Where the neurons of a model go, for people.
std::string PlacementText(const PlacementModel& model, const PlacementMachine& machine,
                          const PlacedModel& placed, bool measured);

// Prints where the neurons of a model go. `model`: a shape's name, a shape file (.json) or a model
// file. host_bytes: --memory. Throws UsageError where bandwidths are neither given nor measured.
int PlanPlacement(const std::string& model, std::optional<uint64_t> host_bytes,
                  const PlacementArguments& arguments, bool json);

}  // namespace hearth::cli
