// How fast storage is where nothing else goes on.
#pragma once

#include "pipeline/bundle_store.h"

namespace hearth {

// Bytes per second of reads as decoding makes them: what slots hold of neurons that are not pinned,
// at random, as many at once as the plan says, for about `seconds`. Uses the spare slots: nothing
// else may be reading. 0 where all neurons are pinned. Throws Error(kIo).
double ProbeNeuronReads(BundleStore& store, double seconds);

}  // namespace hearth
