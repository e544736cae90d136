#include "import/archs/published_families.h"

namespace hearth {
namespace {

constexpr std::span<const PublishedFamily> (*kFamilyLists[])() = {
    PublishedLlamas, PublishedQwens,    PublishedGemmas,  PublishedPhis,
    PublishedOlmos,  PublishedGranites, PublishedGlms,    PublishedGptOss,
    PublishedGpt2s,  PublishedOpts,     PublishedFalcons, PublishedSmallThinkers};

}  // namespace

const PublishedFamily* FindPublishedFamily(const std::string& model_type) {
  for (const auto& families : kFamilyLists) {
    for (const PublishedFamily& family : families()) {
      if (model_type == family.model_type) return &family;
    }
  }
  return nullptr;
}

void ForFamiliesOf(const std::string& architecture,
                   const std::function<void(const PublishedFamily& family)>& fn) {
  for (const auto& families : kFamilyLists) {
    for (const PublishedFamily& family : families()) {
      if (architecture == family.architecture) fn(family);
    }
  }
}

std::string KnownPublishedFamilies() {
  std::string known;
  for (const auto& families : kFamilyLists) {
    for (const PublishedFamily& family : families()) {
      known += (known.empty() ? "" : ", ") + std::string(family.model_type);
    }
  }
  return known;
}

}  // namespace hearth
