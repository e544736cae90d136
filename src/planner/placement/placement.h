// Which neurons a device with memory of its own (a GPU) holds, and which the host: the integer
// linear program of PowerInfer (P1 §6, equations 1 to 8), solved by CBC.
//
// A batch is up to 64 neurons of one FFN that fire about equally often. Neurons are sorted by how
// often they fire, so that an FFN's batches descend in impact, and what the device holds of an FFN
// is a prefix: a range [0, n).
//
//   maximize    sum of the impacts on the device                              (1, 2)
//   subject to  every batch on the device or on the host                      (3)
//               on the device, a layer has no neuron or at least C_l of them  (4, 5, 7, 8)
//               bytes on the device <= device_bytes, on the host <= host_bytes  (6)
//
// The paper's (6) says "less than"; memory that is full to the last byte is not over its limit.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hearth {

inline constexpr int64_t kPlacementBatch = 64;  // neurons (P1 §6.3.3)

// The batches of one FFN: of a layer, or of one of its experts. FFNs of the same layer follow each
// other; a layer's are of one size.
struct PlacementFfn {
  int64_t layer = 0;
  int64_t neurons = 0;
  std::vector<double> impacts;  // of each batch: the sum of its neurons' frequencies; descending
};

// Batches of sorted rates: `descending` holds how often each neuron fires per token.
PlacementFfn BatchNeurons(int64_t layer, std::span<const double> descending);

struct PlacementProblem {
  std::vector<PlacementFfn> ffns;  // layers ascending from 0, each with at least one
  uint64_t neuron_bytes = 0;       // of every neuron
  uint64_t device_bytes = 0;       // for neurons
  // For neurons; nothing: as much as is needed.
  std::optional<uint64_t> host_bytes;
  double device_bytes_per_s = 0;
  double host_bytes_per_s = 0;
  double sync_seconds = 0;  // T_sync: of one layer that both units share
  // Of the neurons of a layer, those in FFNs that a token computes: of a mixture its experts.
  double computed_share = 1;

  int64_t num_layers() const { return ffns.empty() ? 0 : ffns.back().layer + 1; }
};

// C_l: the fewest neurons of a layer whose time the device shortens by at least T_sync (4, 5).
// Nothing where no number of them does.
std::optional<int64_t> LeastNeurons(const PlacementProblem& problem);

// What keeps the device from having more.
enum class PlacementBound : uint8_t {
  kNone,           // it has all neurons
  kDeviceMemory,   // (6): no further batch fits
  kCommunication,  // (4): there is room, but for fewer neurons of any further layer than C_l
};
const char* PlacementBoundName(PlacementBound bound);  // "none", "device memory", "communication"

struct Placement {
  std::vector<int64_t> device_neurons;  // by FFN: [0, n) lies on the device
  double impact = 0;                    // (2)
  double all_impact = 0;                // were everything there
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;
  PlacementBound bound = PlacementBound::kNone;
};

// How the program is put to the solver.
enum class PlacementForm : uint8_t {
  kShortest,  // kByLayer where it is exact, else kByBatch
  // Batches are equally large, so that a layer with any neurons has its C_l hottest, and layers
  // with the same impacts can be counted instead of named (docs/decisions/0011-placement.md).
  kByLayer,
  kByBatch,  // a variable per batch, as the paper has it
  // Every FFN has the same number of neurons on the device, as an engine needs that streams the
  // others: the most that fit, or none where these are fewer than C_l.
  kUniform,
};

// The best placement: no other has more impact, but for the solver's tolerance (about 1e-6 of the
// whole). Throws Error(kInvalidArgument) for a problem that makes no sense, or for kByLayer where
// it would not be exact, and Error(kOutOfBudget), naming the constraint, where nothing is feasible.
Placement SolvePlacement(const PlacementProblem& problem,
                         PlacementForm form = PlacementForm::kShortest);

}  // namespace hearth
