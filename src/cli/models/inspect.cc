// hearth inspect: what a model file holds and how it would run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>

#include "base/cpu.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/models/inspect_packing.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "engine/load/ffn_mode.h"
#include "engine/load/model.h"
#include "format/packed_file.h"
#include "import/open_model.h"
#include "pass/transformer_pass.h"
#include "prepare/pack/verify.h"
#include "tensor/op_names.h"
#include "text/chat/chat_format.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string model;
  std::optional<GivenActivation> activation;
  bool json = false;
  bool verify = false;
};

// What differs between layers is that of the last one; the largest window.
Json SpecJson(const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers.back();
  int64_t window = 0, layers_with_window = 0, layers_with_experts = 0;
  for (const LayerSpec& any : spec.layers) {
    window = std::max(window, any.attention.sliding_window);
    if (any.attention.sliding_window > 0) ++layers_with_window;
    if (any.ffn.num_experts > 0) ++layers_with_experts;
  }
  return {{"architecture", spec.architecture},
          {"name", spec.name},
          {"hidden_size", spec.hidden_size},
          {"intermediate_size", layer.ffn.intermediate_size},
          {"num_layers", spec.num_layers},
          {"num_heads", layer.attention.num_heads},
          {"num_kv_heads", layer.attention.num_kv_heads},
          {"head_dim", layer.attention.head_dim},
          {"sliding_window", window},
          {"layers_with_window", layers_with_window},
          {"num_experts", layer.ffn.num_experts},
          {"layers_with_experts", layers_with_experts},
          {"num_experts_per_token", layer.ffn.num_experts_per_token},
          {"vocab_size", spec.vocab_size},
          {"context_length", spec.context_length},
          {"ffn_activation", FfnActivationName(layer.ffn.activation)},
          {"tied_embeddings", spec.tied_embeddings}};
}

Json TypesJson(const GgufFile& file) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> by_type;
  for (const GgufTensor& tensor : file.tensors()) {
    auto& [count, bytes] = by_type[NameOf(tensor.dtype)];
    ++count;
    bytes += tensor.bytes;
  }
  Json out = Json::object();
  for (const auto& [name, value] : by_type) {
    out[name] = {{"tensors", value.first}, {"bytes", value.second}};
  }
  for (const GgufForeignTensor& tensor : file.foreign_tensors()) {
    Json& entry = out[ForeignTypeName(tensor.type)];
    if (entry.is_null()) entry = {{"tensors", 0}, {"bytes", nullptr}};
    entry["tensors"] = entry["tensors"].get<uint64_t>() + 1;
  }
  return out;
}

// 0 for more than any file has.
uint64_t CountWeights(const std::array<uint64_t, kGgufMaxDims>& ne) {
  uint64_t count = 1;
  for (const uint64_t n : ne) {
    if (n == 0 || count > UINT64_MAX / n) return 0;
    count *= n;
  }
  return count;
}

// Bundles are bytes to a GGUF reader; to us a neuron is three rows of the hidden size.
uint64_t CountWeights(const GgufFile& file, const Json& model) {
  const uint64_t hidden = model.contains("hidden_size") ? model["hidden_size"].get<uint64_t>() : 0;
  uint64_t count = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    const bool is_bundle = LayerOfBundle(tensor.name).has_value();
    count += is_bundle ? 3 * hidden * tensor.ne[1] * tensor.ne[2] : tensor.num_weights();
  }
  for (const GgufForeignTensor& tensor : file.foreign_tensors()) count += CountWeights(tensor.ne);
  return count;
}

Json TokenizerJson(const GgufMetadata& metadata) {
  if (!metadata.Has("tokenizer.ggml.model")) return nullptr;
  Json out;
  try {
    const auto tokenizer = Tokenizer::FromGguf(metadata);
    out = {{"kind", tokenizer->kind()},         {"pre", tokenizer->pre()},
           {"tokens", tokenizer->vocab_size()}, {"bos", tokenizer->special().bos},
           {"eos", tokenizer->special().eos},   {"add_bos", tokenizer->special().add_bos}};
  } catch (const Error& error) {
    out = {{"error", error.what()}};
  }
  const std::string* chat = metadata.FindString("tokenizer.chat_template");
  out["chat_template"] = chat != nullptr;
  const auto format = chat != nullptr ? DetectChatFormat(*chat) : std::nullopt;
  out["chat_format"] = format ? Json(ChatFormatName(*format)) : Json(nullptr);
  return out;
}

Json ModeNames(const LoadPlan& plan) {
  Json names = Json::array();
  for (const FfnMode mode : UsableModes(plan)) names.push_back(FfnModeName(mode));
  return names;
}

// What would be in memory, or why the file cannot be run. has_tensors: not only the header is
// there.
Json RunJson(const GgufFile& file, bool has_tensors) {
  try {
    file.RefuseForeignTensors();
    ReadModelSpec(file);  // an architecture that nobody knows is the first thing to say
    const LoadPlan plan = PlanLoad(file);
    CheckVocabulary(plan.spec, *Tokenizer::FromGguf(file.metadata()), file.path());
    if (has_tensors) CheckRopeFactors(file);
    Json conversions = Json::object();
    for (const auto& [from, to] : plan.conversions) conversions[NameOf(from)] = NameOf(to);
    const KvLayout layout = KvLayoutFor(plan.spec, KvCodec::kF16);
    return {{"runnable", true},
            {"modes", ModeNames(plan)},
            {"auto_mode", FfnModeName(ResolveMode(file, plan, std::nullopt))},
            {"weights_bytes", plan.weights_bytes},
            {"kv_bytes_per_token", layout.token_bytes()},
            {"converted_at_load", conversions}};
  } catch (const Error& error) {
    return {{"runnable", false}, {"reason", error.what()}};
  }
}

std::optional<std::string> Text(const GgufMetadata& metadata, const char* key) {
  const std::string* value = metadata.FindString(key);
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

Json ModelJson(const GgufFile& file) {
  try {
    return SpecJson(ReadModelSpec(file));
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

Json Describe(const GgufFile& file, bool has_tensors) {
  const Json model = ModelJson(file);
  Json out = {{"file", file.path()},
              {"format", fmt::format("GGUF v{}", file.version())},
              {"file_bytes", file.file_bytes()},
              {"parts", file.num_parts()},
              {"tensors", file.tensors().size() + file.foreign_tensors().size()},
              {"weights", CountWeights(file, model)}};
  const auto license = Text(file.metadata(), "general.license");
  out["license"] = license ? Json(*license) : Json(nullptr);
  out["model"] = model;
  out["types"] = TypesJson(file);
  out["packing"] = PackingJson(file);
  out["tokenizer"] = TokenizerJson(file.metadata());
  out["run"] = RunJson(file, has_tensors);
  return out;
}

// " in 5 of 7 layers"; nothing where it is all of them.
std::string OfLayers(const Json& model, const char* count) {
  const auto some = model[count].get<int64_t>(), all = model["num_layers"].get<int64_t>();
  return some == all ? "" : fmt::format(" in {} of {} layers", some, all);
}

std::string ModelText(const Json& model) {
  if (model.contains("error"))
    return fmt::format("model      {}\n", model["error"].get<std::string>());
  std::string out = fmt::format(
      "model      {} {}\n"
      "shape      {} layers, hidden {}, ffn {} ({}), {} heads / {} KV heads of {}, "
      "vocabulary {}\n"
      "context    {} tokens{}\n",
      Printable(model["architecture"].get<std::string>()),
      Printable(model["name"].get<std::string>()), model["num_layers"].get<int64_t>(),
      model["hidden_size"].get<int64_t>(), model["intermediate_size"].get<int64_t>(),
      model["ffn_activation"].get<std::string>(), model["num_heads"].get<int64_t>(),
      model["num_kv_heads"].get<int64_t>(), model["head_dim"].get<int64_t>(),
      model["vocab_size"].get<int64_t>(), model["context_length"].get<int64_t>(),
      model["sliding_window"].get<int64_t>() > 0
          ? fmt::format(", sliding window {}{}", model["sliding_window"].get<int64_t>(),
                        OfLayers(model, "layers_with_window"))
          : "");
  if (model["num_experts"].get<int64_t>() > 0) {
    out += fmt::format("experts    {}, {} per token{}\n", model["num_experts"].get<int64_t>(),
                       model["num_experts_per_token"].get<int64_t>(),
                       OfLayers(model, "layers_with_experts"));
  }
  return out;
}

std::string TokenizerText(const Json& tokenizer) {
  if (tokenizer.is_null()) return "tokenizer  none\n";
  if (tokenizer.contains("error")) {
    return fmt::format("tokenizer  {}\n", tokenizer["error"].get<std::string>());
  }
  const std::string pre = tokenizer["pre"].get<std::string>();
  const std::string chat =
      !tokenizer["chat_template"].get<bool>() ? "none"
      : tokenizer["chat_format"].is_null()
          ? "its own template"
          : "its own template, like " + tokenizer["chat_format"].get<std::string>();
  return fmt::format(
      "tokenizer  {}{}, {} tokens\nchat       {}\n", tokenizer["kind"].get<std::string>(),
      pre.empty() ? "" : " (" + Printable(pre) + ")", tokenizer["tokens"].get<int64_t>(), chat);
}

std::string RunText(const Json& run) {
  if (!run["runnable"].get<bool>()) {
    return fmt::format("runs       no: {}\n", run["reason"].get<std::string>());
  }
  std::string modes;
  for (const Json& mode : run["modes"]) {
    modes += (modes.empty() ? "" : ", ") + mode.get<std::string>();
  }
  std::string out = fmt::format(
      "runs       {}{}; {} of weights in memory, {} of F16 KV cache per 1024 tokens\n", modes,
      run["modes"].size() > 1 ? fmt::format(" (auto: {})", run["auto_mode"].get<std::string>())
                              : "",
      FormatSize(run["weights_bytes"].get<uint64_t>()),
      FormatSize(run["kv_bytes_per_token"].get<uint64_t>() * 1024));
  for (const auto& [from, to] : run["converted_at_load"].items()) {
    out += fmt::format("           {} has no kernel of its own: converted to {} at load\n", from,
                       to.get<std::string>());
  }
  return out;
}

std::string DescribeText(const Json& d) {
  std::string out = fmt::format(
      "file       {}, {}, {}{}\n", d["file"].get<std::string>(), d["format"].get<std::string>(),
      FormatSize(d["file_bytes"].get<uint64_t>()),
      d["parts"].get<int>() > 1 ? fmt::format(" in {} parts", d["parts"].get<int>()) : "");
  out += fmt::format("licence    {}\n", d["license"].is_null()
                                            ? "not stated"
                                            : Printable(d["license"].get<std::string>()));
  out += ModelText(d["model"]);
  out += fmt::format("weights    {:.1f} million in {} tensors\n",
                     static_cast<double>(d["weights"].get<uint64_t>()) / 1e6,
                     d["tensors"].get<uint64_t>());
  for (const auto& [type, value] : d["types"].items()) {
    out += fmt::format(
        "           {:<7}{:>5} tensors {:>11}\n", type, value["tensors"].get<uint64_t>(),
        value["bytes"].is_null() ? "unknown" : FormatSize(value["bytes"].get<uint64_t>()));
  }
  return out + PackingText(d["packing"]) + TokenizerText(d["tokenizer"]) + RunText(d["run"]);
}

// Reads the whole file; throws about the first byte that is not as it was written.
int Verify(const GgufFile& file, bool json) {
  if (!IsPacked(file.metadata())) {
    throw Error(ErrorCode::kUnsupported, file.path(),
                "is a plain model file, which says nothing that it could be verified against");
  }
  VerifyResult result;
  {
    ProgressLine progress("verifying", ProgressUnit::kBytes);
    result = VerifyPackedFile(file, AvailableCpus(),
                              [&](uint64_t done, uint64_t total) { progress.Update(done, total); });
  }
  if (json) {
    WriteOutput(DumpJson({{"file", file.path()},
                          {"verified", true},
                          {"bytes", result.bytes},
                          {"tensors", result.tensors},
                          {"bundles", result.bundles}}));
  } else {
    WriteOutput(fmt::format("{} is intact: {}, {} tensors and {} bundles as they were written\n",
                            file.path(), FormatSize(result.bytes), result.tensors, result.bundles));
  }
  return kExitDone;
}

int Inspect(const InspectOptions& options) {
  if (options.verify) return Verify(GgufFile::Open(FindModel(options.model)), options.json);
  Json description;
  if (const auto remote = FindRemoteName(options.model)) {
    RemoteModel model(*remote, ForeignTensors::kList);
    if (options.activation) GiveActivation(*options.activation, &model.file());
    WarnOfActivation(model.file());
    description = Describe(model.file(), false);
  } else {
    const GgufFile file =
        OpenModel(FindModel(options.model), options.activation, ForeignTensors::kList);
    WarnOfActivation(file);
    description = Describe(file, true);
  }
  WriteOutput(options.json ? DumpJson(description) : DescribeText(description));
  return kExitDone;
}

}  // namespace

void AddInspectCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a model file holds and how it would run");
  command
      ->add_option(
          "MODEL", options->model,
          "model file (GGUF), folder (config.json and safetensors), name of a model that 'hearth "
          "list' shows, or OWNER/REPO[:QUANT] "
          "on the hub, of which the header alone is read")
      ->required()
      ->check(NotEmpty());
  auto* activation = AddActivationOption(*command, options->activation);
  command->add_flag("--json", options->json, "print one JSON document");
  command
      ->add_flag("--verify", options->verify,
                 "read all of a packed file and name what was altered in it")
      ->excludes(activation);
  command->callback([options, &action] { action = [options] { return Inspect(*options); }; });
}

}  // namespace hearth::cli
