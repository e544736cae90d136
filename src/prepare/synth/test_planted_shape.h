// The model that tests of planted sparsity make: large enough for shares of neurons to mean
// something, small enough to run.
#pragma once

#include <string>

#include "prepare/shapes/shapes.h"

namespace hearth {

// Four layers of 1024 neurons; `more` holds further keys of a shape (prepare/shapes/shapes.h).
inline ModelShape SmallShape(const std::string& more) {
  return ParseShape(R"({"hidden_size": 256, "intermediate_size": 1024, "num_layers": 4,
                        "num_heads": 4, "num_kv_heads": 2, "vocab_size": 4000, )" +
                        more + "}",
                    "small");
}

}  // namespace hearth
