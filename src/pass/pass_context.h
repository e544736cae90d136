// What all blocks of a pass work with; outlives them.
#pragma once

#include "model/model_spec.h"
#include "model/weights.h"
#include "ops/compute.h"
#include "ops/linear.h"
#include "pass/adapter_terms.h"
#include "pass/device/device_weights.h"
#include "pass/device_kv.h"
#include "pass/pass_seam.h"
#include "pass/spilled_pages.h"
#include "pipeline/row_table.h"

namespace hearth {

struct PassContext {
  const ModelSpec& spec;
  const ModelWeights& weights;
  Compute& compute;
  PassSeam& seam;
  MatMulInput& input;  // of the matrix product that is next
  AdapterTerms& adapters;
  SpilledPages& spilled;
  RowTable* embedding;          // null: it is one of the weights
  const DeviceWeights* device;  // that has some of the matrices; null: none
  DeviceKv& device_kv;
  // Of the pass: whether what is not on the device is uploaded to it.
  const bool& is_uploading;

  // Whether a unit comes to the device for this pass.
  bool IsUploaded(const UploadUnit& unit) const {
    return is_uploading && device->uploads->Has(unit);
  }
  // Of a layer; one with nothing there where there is no device.
  const DeviceLayer& device_layer(int64_t index) const {
    static const DeviceLayer kNone;
    return device == nullptr ? kNone : device->layer(index);
  }

  const LayerSpec& layer(int64_t index) const { return spec.layers[static_cast<size_t>(index)]; }
  const LayerWeights& layer_weights(int64_t index) const {
    return weights.layers[static_cast<size_t>(index)];
  }
};

// A vector of F32, or null where the model has none.
inline const float* FloatsOf(const WeightView& vector) {
  return reinterpret_cast<const float*>(vector.data);
}

}  // namespace hearth
