#include "model/registry.h"

#include <string>

#include "base/error.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"
#include "model/unsupported.h"

namespace hearth {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", archs::ReadLlama},         {"mistral3", archs::ReadMistral3},
    {"bamboo", archs::ReadBamboo, true}, {"prosparse", archs::ReadProSparse, true},
    {"qwen2", archs::ReadQwen2},         {"qwen3", archs::ReadQwen3},
    {"qwen3moe", archs::ReadQwen3Moe},   {"qwen2moe", archs::ReadQwen2Moe},
    {"gemma2", archs::ReadGemma2, true}, {"gemma3", archs::ReadGemma3, true},
    {"phi3", archs::ReadPhi3},           {"olmo2", archs::ReadOlmo2},
    {"smollm3", archs::ReadSmolLm3},     {"granite", archs::ReadGranite},
    {"granitemoe", archs::ReadGranite},  {"glm4", archs::ReadGlm4},
    {"glm4moe", archs::ReadGlm4Moe},     {"gpt-oss", archs::ReadGptOss, true},
    {"gpt2", archs::ReadGpt2},           {"opt", archs::ReadOpt},
    {"falcon", archs::ReadFalcon},       {"smallthinker", archs::ReadSmallThinker, true},
    {"seed_oss", archs::ReadSeedOss},    {"ernie4_5", archs::ReadErnie45},
};

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

ModelSpec ReadModelSpec(const GgufFile& file) {
  RefuseOtherKinds(file);
  const std::string& name = file.metadata().GetString("general.architecture");
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) {
      ModelSpec spec = ReadCommonSpec(file);
      architecture.read_spec(file, &spec);
      ValidateSpec(spec, file.path());
      return spec;
    }
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  throw Error(ErrorCode::kUnsupported, file.path(), "architecture", "one that runs here: " + known,
              "'" + Printable(name) + "'");
}

}  // namespace hearth
