// Row-wise operations on activations, each split over the team by rows.
#pragma once

#include <cstdint>
#include <span>

#include "ops/compute.h"
#include "tensor/op_kinds.h"
#include "tensor/view.h"

namespace hearth {

// out[r] = rms_norm(x[r]) * weight. weight: x.cols floats. out may be x.
void RmsNorm(Compute& compute, FloatView x, const float* weight, float epsilon, FloatView out);

// out[r] = (x[r] - mean) / sqrt(variance + epsilon) * weight + bias, of x.cols floats each.
// out may be x.
void LayerNorm(Compute& compute, FloatView x, const float* weight, const float* bias, float epsilon,
               FloatView out);

// In place, on `heads` consecutive pieces of head_dim in every row.
void RmsNormHeads(Compute& compute, FloatView x, int64_t heads, int64_t head_dim,
                  const float* weight, float epsilon);

// How the heads of some rows are rotated: row r of cos and sin holds the angles of row r's
// position.
struct Rotation {
  FloatView cos, sin;  // [rows][pairs]
  RopeLayout layout;
};
// Rotates the first 2 * rotation.cos.cols components of every head in place.
void Rope(Compute& compute, FloatView x, int64_t heads, int64_t head_dim, const Rotation& rotation);

// out = x, of the same shape.
void Copy(Compute& compute, FloatView x, FloatView out);

// x = cap * tanh(x / cap): what is far from zero stays within cap of it.
void Softcap(Compute& compute, FloatView x, float cap);

// out[r] *= sigmoid(weight . x[r]). weight: x.cols floats.
void ScaleBySigmoid(Compute& compute, FloatView x, const float* weight, FloatView out);

// x *= scale.
void Scale(Compute& compute, FloatView x, float scale);

// What grows with a position p: scale * (1 + temperature * ln(1 + floor(p / period))).
struct PositionScale {
  double scale = 1;
  double temperature = 0;
  int64_t period = 1;
};
// x[r] *= what `by` is at positions[r].
void ScaleByPosition(Compute& compute, FloatView x, std::span<const int64_t> positions,
                     PositionScale by);

// x += y.
void Add(Compute& compute, FloatView x, FloatView y);

// x[r] += row, of x.cols floats.
void AddToRows(Compute& compute, FloatView x, const float* row);

// gate[r] = act(gate[r], up[r]).
void ApplyFfnActivation(Compute& compute, FfnActivation activation, float threshold, FloatView gate,
                        FloatView up);

// out[i] = row ids[i] of the matrix, as float32. Works for every stored type.
void LookUpRows(Compute& compute, const WeightView& matrix, std::span<const int32_t> ids,
                FloatView out);

// x[r] = act(x[r]), where nothing is multiplied with it.
void ApplyActivation(Compute& compute, FfnActivation activation, float threshold, FloatView x);

void FillZero(FloatView x);

}  // namespace hearth
