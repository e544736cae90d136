// Three figures that sum up a recorded trace: what `hearth synth --like` plants and what a planted
// model is measured by (docs/synth.md).
#pragma once

#include "sparsity/access_sequence.h"

namespace hearth {

struct AccessFigures {
  // Share of an FFN's neurons that a token activates, or of a layer's experts that it is routed to.
  double active = 0;
  // The fewest neurons or experts of the model that 80% of all accesses belong to, as a share.
  double hot_share = 0;
  // Share of a token's accesses that an LRU cache of FiguresCacheShare finds: the mean over the
  // passes after the first quarter, which fills the cache.
  double found = 0;
};

// Half of the neurons; a fifth of the experts, as half of them hold nearly all that is asked for.
double FiguresCacheShare(AccessUnit unit);

// Throws Error(kInvalidArgument) where the sequence has less than four passes.
AccessFigures FiguresOf(const AccessSequence& sequence);

}  // namespace hearth
