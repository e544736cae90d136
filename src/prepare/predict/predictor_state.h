// Finished layers of a predictor run, a file each, so that an interrupted run can go on.
//
//   layer-00007.predictor, little-endian:
//     "HPREDST1", u64 fingerprint, f64 seconds, u64 experts, then per expert
//     i64 rank, u64 trained, u64 steps, per step f32 threshold and f64 recall, precision, active,
//     listed; down, up, bias: u64 count and f32 each
//     u64 XXH3-64 of all bytes before
// Written under another name and renamed when complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "prepare/predict/layer_predictors.h"

namespace hearth {

class PredictorState {
 public:
  // dir: an existing folder, or empty to keep nothing. Throws Error(kNotFound) where it is none.
  PredictorState(std::string dir, uint64_t fingerprint);

  // Nothing where the layer is not finished. Throws Error(kInvalidArgument) where the file is of
  // another fingerprint and Error(kCorrupt) where it has been altered.
  std::optional<LayerPredictors> Load(int64_t layer) const;
  bool Has(int64_t layer) const;
  // Loads whatever there is of so many layers: what is wrong is better known before hours of work.
  void Check(int64_t layers) const;
  void Save(int64_t layer, const LayerPredictors& made) const;

  // Removes the files of so many layers, and the folder unless it holds anything else. Failures are
  // ignored.
  static void Remove(const std::string& dir, int64_t layers);

 private:
  std::string PathOf(int64_t layer) const;

  std::string dir_;
  uint64_t fingerprint_;
};

}  // namespace hearth
