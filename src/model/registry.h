// Which architectures Hearth knows, and how a file's metadata becomes a ModelSpec.
#pragma once

#include <span>
#include <string_view>

#include "format/gguf.h"
#include "model/model_spec.h"

namespace hearth {

// One model family: a file in archs/, a line in registry.cc.
struct Architecture {
  std::string_view name;  // general.architecture
  // Fills what differs from CommonSpec, which has been read already.
  void (*read_spec)(const GgufFile& file, ModelSpec* spec);
  // Its name implies the FFN's activation, where the file does not say another.
  bool says_activation = false;
};

std::span<const Architecture> Architectures();

// The spec of an opened model file, validated. Throws Error(kUnsupported) for an architecture
// that is not in the registry, naming it and those that are; Error(kCorrupt) for metadata that
// contradicts itself.
ModelSpec ReadModelSpec(const GgufFile& file);

}  // namespace hearth
