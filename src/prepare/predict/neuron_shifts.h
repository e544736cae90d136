// Which score a neuron must reach to be worth listing.
#pragma once

#include <vector>

#include "base/worker_team.h"
#include "prepare/predict/float_matrix.h"

namespace hearth {

// Per neuron the score from which on listing it gains: where the sum over the tokens above of
// (mass - price) is largest. The price is a share of the mean mass of an active neuron, chosen so
// that about `recall` of the mass is listed. A neuron seen active on few tokens is moved toward the
// one score that lists `recall` of all neurons' mass. One row per token.
std::vector<float> ListingScores(WorkerTeam& team, const FloatMatrix& scores,
                                 const FloatMatrix& mass, double recall);

}  // namespace hearth
