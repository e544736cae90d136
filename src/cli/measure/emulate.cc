// hearth emulate: how fast a card that is not here would decode beside its host.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/options/option_values.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"
#include "planner/emulator/hybrid_replay.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTokens = 4096;

struct EmulateCommand {
  std::string machine;
  std::string model;
  DType quant = DType::kF16;
  std::optional<uint64_t> memory_bytes, device_bytes;  // nothing: the machine's
  EmulationOptions options;
  int64_t answer_tokens = 128;
  bool json = false;
};

struct EmulatedPoint {
  EmulatedSystem system;
  Emulation emulation;
};

Json PointJson(const EmulatedPoint& point, const EmulateCommand& command) {
  const Emulation& e = point.emulation;
  const EmulatedWork& work = e.work;
  return {{"system", EmulatedSystemName(point.system)},
          {"prompt_ms", 1000 * e.prompt_seconds},
          {"uploads",
           {{"prompt_ms", 1000 * e.uploads.seconds},
            {"read_ms", 1000 * e.uploads.read},
            {"upload_ms", 1000 * e.uploads.upload},
            {"compute_ms", 1000 * e.uploads.compute}}},
          {"token_ms", 1000 * e.token_seconds},
          {"decode_tok_s", e.decode_tok_s()},
          {"answer_tok_s", e.AnswerTokensPerSecond(command.answer_tokens)},
          {"device_load", e.device_load()},
          {"device_ffn_load", e.device_ffn_load()},
          {"bytes_per_token",
           {{"device", work.device_bytes}, {"host", work.host_bytes}, {"flash", work.flash_bytes}}},
          {"dense_layers_on_device", e.placement.dense_layers},
          {"device_neurons", e.placement.device_neurons},
          {"host_neurons", e.placement.host_neurons}};
}

Json EmulationJson(const EmulateCommand& command, const std::vector<EmulatedPoint>& points) {
  Json list = Json::array();
  for (const EmulatedPoint& point : points) list.push_back(PointJson(point, command));
  return {{"machine", command.machine},
          {"model", command.model},
          {"quant", NameOf(command.quant)},
          {"memory_bytes", command.options.budgets.host_bytes},
          {"device_bytes", command.options.budgets.device_bytes},
          {"active", command.options.active},
          {"skew", command.options.skew},
          {"prompt_tokens", command.options.prompt_tokens},
          {"answer_tokens", command.answer_tokens},
          {"points", std::move(list)}};
}

std::string EmulationText(const EmulateCommand& command, const std::vector<EmulatedPoint>& points) {
  std::string text = fmt::format(
      "{} in {} on an emulated {}, {} of its memory and {} of the host's\n\n{:<10}{:>11}{:>11}"
      "{:>14}{:>13}{:>12}{:>14}\n",
      command.model, NameOf(command.quant), command.machine,
      FormatSize(command.options.budgets.device_bytes),
      FormatSize(command.options.budgets.host_bytes), "system", "prompt ms", "token ms",
      "decode tok/s", "on device", "from flash", "uploaded ms");
  for (const EmulatedPoint& point : points) {
    const Emulation& e = point.emulation;
    text += fmt::format("{:<10}{:>11.1f}{:>11.2f}{:>14.2f}{:>12.1f}%{:>12}{:>14.1f}\n",
                        EmulatedSystemName(point.system), 1000 * e.prompt_seconds,
                        1000 * e.token_seconds, e.decode_tok_s(), 100 * e.device_load(),
                        FormatSize(static_cast<uint64_t>(e.work.flash_bytes)),
                        1000 * e.uploads.seconds);
  }
  return text;
}

int Emulate(EmulateCommand& command) {
  const EmulatedMachine machine = AsUsage([&] { return FindEmulatedMachine(command.machine); });
  const ModelShape shape = AsUsage([&] { return ResolvePlannedShape(command.model); });
  const EmulatedModel model = EmulatedModelOf(shape, command.quant);
  EmulationOptions options = command.options;
  options.budgets = {.device_bytes = command.device_bytes.value_or(machine.device_bytes),
                     .host_bytes = command.memory_bytes.value_or(machine.host_bytes),
                     .context = options.prompt_tokens + command.answer_tokens};
  if (options.budgets.device_bytes > machine.device_bytes) {
    throw UsageError(
        fmt::format("--device-memory: {} has {}", machine.name, FormatSize(machine.device_bytes)));
  }
  command.options = options;
  std::vector<EmulatedPoint> points;
  for (const EmulatedSystem system : kEmulatedSystems) {
    options.system = system;
    points.push_back({system, Emulate(machine, model, shape, options)});
  }
  WriteOutput(command.json ? DumpJson(EmulationJson(command, points))
                           : EmulationText(command, points));
  return kExitDone;
}

}  // namespace

void AddEmulateCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<EmulateCommand>();
  CLI::App* command = app.add_subcommand(
      "emulate",
      "Plan a model for a card that is not here, and replay it beside layers on the card");
  command
      ->add_option("--machine", options->machine,
                   "rtx-4090, rtx-2080ti or adreno-750, with its host")
      ->option_text("NAME")
      ->required();
  command
      ->add_option("--model", options->model,
                   "a shape (hearth help synth names them; opt-6.7b to "
                   "opt-175b, falcon-40b) or a shape file (.json)")
      ->option_text("SHAPE")
      ->required();
  command
      ->add_option_function<std::string>(
          "--quant",
          [options](const std::string& name) {
            const std::optional<DType> type = DTypeFromName(name);
            if (!type || (*type != DType::kF16 && *type != DType::kQ4_0 && *type != DType::kQ8_0)) {
              throw UsageError("--quant: expected f16, q8_0 or q4_0, found '" + Printable(name) +
                               "'");
            }
            options->quant = *type;
          },
          "type of the weights (f16)")
      ->option_text("TYPE");
  AddSizeOption(*command, "--memory", options->memory_bytes, "memory of the host (the machine's)");
  AddSizeOption(*command, "--device-memory", options->device_bytes,
                "memory of the device (the machine's)");
  command
      ->add_option("--active", options->options.active,
                   "mean share of neurons that a token lists (0.1)")
      ->option_text("SHARE");
  command
      ->add_option("--skew", options->options.skew,
                   "share of neurons with 80% of activations (0.28)")
      ->option_text("SHARE");
  command->add_option("--prompt", options->options.prompt_tokens, "tokens of the prompt (64)")
      ->option_text("N")
      ->check(WholeIn(1, kMostTokens));
  command
      ->add_option("--answer", options->answer_tokens,
                   "tokens of the answer that answer_tok_s is about (128)")
      ->option_text("N")
      ->check(WholeIn(1, kMostTokens));
  command
      ->add_option("--tokens", options->options.decode_tokens,
                   "tokens that are replayed for a mean (32)")
      ->option_text("N")
      ->check(WholeIn(1, kMostTokens));
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &action] { action = [options] { return Emulate(*options); }; });
}

}  // namespace hearth::cli
