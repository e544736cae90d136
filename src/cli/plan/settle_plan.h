// --plan of commands that compute: a plan's file, or `auto`.
#pragma once

#include "cli/options/model_options.h"

namespace hearth::cli {

// Where options.plan names a plan, reads it or makes it into options.planned, for LoadEngine to
// obey. `auto` is made from cached profiles, for this very program. On the thread that calls
// LoadEngine, before it. Throws hearth::Error.
void SettlePlan(ModelOptions& options);

}  // namespace hearth::cli
