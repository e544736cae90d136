// `hearth pack`: from a plain GGUF to one whose FFNs lie neuron by neuron (docs/formats/bundle.md),
// sorted by how often they fire.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "format/bundle_layout.h"
#include "format/gguf.h"
#include "prepare/predict/predictor_set.h"
#include "sparsity/mode.h"
#include "sparsity/profile.h"
#include "tensor/dtype.h"

namespace hearth {

struct PackOptions {
  const ModelProfile* profile = nullptr;     // null: neurons stay in the order of the source
  const PredictorSet* predictors = nullptr;  // null: none
  std::optional<DType> quant;                // of bundles; nothing: ChooseBundleType
  // Of a SiLU model, one per layer: neurons whose |silu(gate)| is no larger are left out from now
  // on (prepare/pack/silu_thresholds.h). Empty: none.
  std::vector<float> silu_thresholds;
  // What the file records as the mode that `auto` is; nothing: the sparsest that it can run in.
  std::optional<FfnMode> mode;
  // Called with a path at which all of the file can be read, before it has its name; returns the
  // mode to record. May throw, to cancel. Null: `mode` it is.
  std::function<FfnMode(const std::string& path)> choose_mode;
  // What the process may take, page cache included; nothing: what is free, page cache aside.
  std::optional<uint64_t> memory_bytes;
  int threads = 1;
};

struct PackResult {
  uint64_t file_bytes = 0;
  uint64_t neurons = 0;  // of all FFNs
  BundleLayout layout;
  DType quant = DType::kQ4_0;
  uint64_t predictor_bytes = 0;
  // Error of down, which is cut into other blocks than those of the source, relative to its root
  // mean square, on a sixteenth of its weights.
  double down_error = 0;
  uint64_t peak_bytes = 0;  // of the budget
};

// Called on the calling thread with bytes written and in all. May throw, to cancel.
using PackProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// The type of bundles where the user names none: that of the source's gates where there are kernels
// for single rows of it, else the one that they are converted to (ConvertedType), else (float
// types) Q8_0, which costs next to nothing.
DType ChooseBundleType(DType stored, DType converted);

// Writes `path`, replacing a file that is there once all is written. Gate and up rows of the bundle
// type are moved exactly, others converted; down is quantized along hidden. The bytes depend on the
// source, the profile, the predictors and the type, the
// thresholds and the mode, not on threads or memory.
//
// Throws Error and leaves nothing behind: kUnsupported for a source that the engine could not run
// or that is packed already, or a mode that the file could not run in, kInvalidArgument for a type
// that bundles do not store, for a profile, predictors or thresholds of another model, and where
// path is the source; kOutOfBudget naming the least
// memory that would do; kIo.
PackResult PackModel(const GgufFile& source, const PackOptions& options, const std::string& path,
                     const PackProgressFn& progress = {});

// Throws what PackModel would before it writes the first byte, and leaves nothing behind: for what
// takes hours before there are predictors to pack.
void CheckPack(const GgufFile& source, const PackOptions& options, const std::string& path);

}  // namespace hearth
