// The fastest tiles on a machine, which `hearth doctor` measured and keeps in its hardware profile
// (docs/formats/hardware.md, "tiles").
#pragma once

#include <string>
#include <vector>

#include "ops/compute.h"
#include "plan/json_object.h"
#include "tensor/tile_geometry.h"

namespace hearth {

// The file that doctor keeps for others: hearth/hardware.json in $XDG_CACHE_HOME (default
// ~/.cache). Empty where neither is an absolute path.
std::string UsersHardwareFile();

// The fastest geometry for so many tokens, and what it and the solver's took: seconds of a thread's
// processor time for kMatMulRowGrain rows.
struct MeasuredTiles {
  TilesForTokens tiles;
  double seconds = 0;
  double solved_seconds = 0;
};

// The list "tiles" of a hardware profile. Throws what JsonObject throws for what is none.
std::vector<MeasuredTiles> ReadTiles(JsonObject& document);

// Makes products use what the profile in `file` says of this machine and these kernels; returns
// whether it does. Otherwise the solver's choice stands: where `file` is empty or not there,
// damaged, or of another version, machine or instruction set. (A cache that is of no use is no
// error.) Before the first product.
bool UseMeasuredTiles(Compute& compute, const std::string& file);

}  // namespace hearth
