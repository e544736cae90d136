// From the plan of a synthesized file to the bytes of its tensors, piece by piece. Internal to
// prepare/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "prepare/synth/planted_ffn.h"
#include "prepare/synth/synth_plan.h"
#include "prepare/synth/weight_generator.h"

namespace hearth {

// Immutable and thread-safe.
class SynthTensorMaker {
 public:
  // `planted` is null where no tensor is planted, else calibrated; it must outlive the object.
  SynthTensorMaker(const ModelShape& shape, uint64_t seed, const PlantedModel* planted);

  // Bytes that pieces of the tensor are multiples of.
  static uint64_t UnitBytes(const SynthTensor& tensor);

  // Fills `out` with units from number `first_unit` on. What is drawn for a random tensor depends
  // on where its pieces begin.
  void Make(const SynthTensor& tensor, uint64_t piece, uint64_t first_unit,
            std::span<std::byte> out) const;

 private:
  // A row of weights that are planted: number `index` of the planted model's, not of the tensor.
  void MakeRow(const SynthTensor& tensor, const PlantedBasis* basis, int64_t expert, int64_t index,
               std::span<float> out) const;
  void MakeBundles(const SynthTensor& tensor, uint64_t first, std::span<std::byte> out) const;
  // One entry for every neuron of an FFN, in the order of the bundles.
  void MakeList(const SynthTensor& tensor, int64_t expert, std::span<std::byte> out) const;
  std::vector<int32_t> OrderOf(int64_t layer, int64_t expert) const;

  const int64_t hidden_, neurons_;
  const WeightGenerator generator_;
  const PlantedModel* const planted_;
};

}  // namespace hearth
