#include "cli/help_format.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

namespace hearth::cli {
namespace {

constexpr size_t kIndent = 2;
constexpr size_t kMeaningColumn = 28;
constexpr size_t kLeastWidth = 40;
constexpr size_t kMostWidth = 120;

struct Entry {
  std::string names;  // "-n,--tokens"
  std::string value;  // "N", empty for a flag
  std::string meaning;
};
struct Group {
  std::string name;
  std::vector<Entry> entries;
};

// One or two lines for every command, most wanted first.
const std::map<std::string, std::vector<const char*>>& Examples() {
  static const std::map<std::string, std::vector<const char*>> examples = {
      {"run",
       {"hearth run MODEL.gguf", "hearth run MODEL.gguf -p 'Why is the sky blue?'",
        "hearth run MODEL.gguf --raw -p 'Once upon a time' -n 200 --memory 2.5G"}},
      {"serve",
       {"hearth serve MODEL.gguf --memory 2.5G", "hearth serve MODEL.gguf --verbose",
        "hearth serve --models FOLDER --memory 8G",
        "hearth serve MODEL.gguf --host 0.0.0.0 --api-key-file keys.txt"}},
      {"get", {"hearth get OWNER/REPO:Q4_0"}},
      {"list", {"hearth list"}},
      {"rm", {"hearth rm OWNER/REPO:Q4_0"}},
      {"inspect", {"hearth inspect MODEL.gguf", "hearth inspect packed.gguf --verify"}},
      {"eval",
       {"hearth eval MODEL.gguf --text book.txt --ctx 512",
        "hearth eval MODEL.gguf --task questions.jsonl --questions 200"}},
      {"bench", {"hearth bench MODEL.gguf --prefill 128,512 --decode 64"}},
      {"profile",
       {"hearth profile MODEL.gguf --text book.txt -o profile.bin --plot out",
        "hearth profile MODEL.gguf --text book.txt --imatrix imatrix.gguf"}},
      {"tokenize", {"hearth tokenize MODEL.gguf -p 'some text'"}},
      {"template", {"hearth template --template MODEL.gguf --context chat.json"}},
      {"synth",
       {"hearth synth --shape mistral-7b -o m.gguf",
        "hearth synth --shape bamboo-7b --packed -o b.gguf"}},
      {"convert",
       {"hearth convert FOLDER -o model.gguf",
        "hearth convert FOLDER -o merged.gguf --lora adapter.gguf=0.5"}},
      {"quantize",
       {"hearth quantize MODEL.gguf -o small.gguf --recipe q4_k_m",
        "hearth quantize FOLDER -o small.gguf --imatrix imatrix.gguf --text book.txt"}},
      {"pack",
       {"hearth pack MODEL.gguf -o packed.gguf --text book.txt",
        "hearth pack FOLDER -o model.gguf --quant q8_0"}},
      {"plan",
       {"hearth plan packed.gguf --memory 2.5G -o PLAN", "hearth plan packed.gguf --min-speed 10"}},
      {"doctor", {"hearth doctor --dir /fast/disk"}},
      {"devices", {"hearth devices --limits"}},
      {"simulate", {"hearth simulate --device oneplus-12 --model bamboo-7b --memory 4G"}},
      {"emulate", {"hearth emulate --machine rtx-4090 --model opt-30b --active 0.03 --skew 0.26"}},
      {"help", {"hearth help run"}},
  };
  return examples;
}

// What users of other programs write, and what it is called here.
const std::map<std::string, std::string>& OtherNames() {
  static const std::map<std::string, std::string> names = {
      {"chat", "run"},
      {"generate", "run"},
      {"pull", "get"},
      {"download", "get"},
      {"ls", "list"},
      {"show", "inspect"},
      {"info", "inspect"},
      {"remove", "rm"},
      {"delete", "rm"},
      {"import", "convert"},
      {"perplexity", "eval"},
      {"server", "serve"},
      {"start", "serve"},
      {"version", "--version"},
      {"-v", "--version"},
      {"--temperature", "--temp"},
      {"-c", "--ctx"},
      {"--ctx-size", "--ctx"},
      {"--context", "--ctx"},
      {"-t", "--threads"},
      {"--n-predict", "-n"},
      {"--predict", "-n"},
      {"--max-tokens", "-n"},
      {"--num-predict", "-n"},
      {"--api-key", "--api-key-file"},
      {"--chat-template", "--chat-format"},
      {"-sys", "--system"},
      {"--system-prompt", "--system"},
      {"-s", "--seed"},
      {"--ignore-eos", "--logit-bias"},
      {"--model-name", "--name"},
      {"--alias", "--name"},
      {"--cache-type-k", "--kv"},
      {"--slots", "--parallel"},
      {"-np", "--parallel"},
      {"--repeat-penalty", "--repetition-penalty"},
  };
  return names;
}

size_t TerminalWidth() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::clamp<size_t>(size.ws_col, kLeastWidth, kMostWidth);
}

// Words of `text` in lines of at most `width` bytes, each of which begins at `column`.
std::string Wrapped(const std::string& text, size_t column, size_t width) {
  std::string out;
  size_t used = column;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t length = end - begin;
    if (used > column && used + 1 + length > width) {
      out += "\n" + std::string(column, ' ');
      used = column;
    }
    if (used > column) {
      out += ' ';
      ++used;
    }
    out.append(text, begin, length);
    used += length;
    begin = end + 1;
  }
  return out;
}

Entry EntryOf(const CLI::Option& option) {
  Entry entry = {option.get_positional() ? option.get_name(true) : option.get_name(false, true), "",
                 option.get_description()};
  if (!option.get_positional() && option.get_items_expected_max() > 0) {
    entry.value = option.get_option_text().empty() ? "VALUE" : option.get_option_text();
    if (option.get_required()) entry.value += " (required)";
  }
  return entry;
}

size_t PlaceOf(const std::string& group) {
  constexpr std::array<std::string_view, 4> kLast = {kSamplingGroup, kServerGroup, kMemoryGroup,
                                                     kExperimentGroup};
  const auto* found = std::find(kLast.begin(), kLast.end(), group);
  // A command's own options come first, then groups of its own, then those that several share.
  if (found != kLast.end()) return 2 + static_cast<size_t>(found - kLast.begin());
  return group == "Options" ? 0 : 1;
}

std::vector<Group> GroupsOf(const CLI::App& app) {
  std::vector<Group> groups;
  const auto group_of = [&](const std::string& name) -> Group& {
    for (Group& group : groups) {
      if (group.name == name) return group;
    }
    return groups.emplace_back(Group{name, {}});
  };
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || option == app.get_help_ptr()) continue;
    const std::string name = option->get_positional() ? "Arguments" : option->get_group();
    group_of(name).entries.push_back(EntryOf(*option));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    const bool first = a.name == "Arguments", second = b.name == "Arguments";
    return first != second ? first : PlaceOf(a.name) < PlaceOf(b.name);
  });
  return groups;
}

Group CommandsOf(const CLI::App& app) {
  Group commands = {"Commands", {}};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.entries.push_back({command->get_name(), "", command->get_description()});
  }
  return commands;
}

std::string Usage(const CLI::App& app) {
  if (app.get_parent() == nullptr) return "hearth COMMAND [OPTIONS]";
  std::string usage = "hearth " + app.get_name();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true);
    usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  return usage + " [OPTIONS]";
}

std::string GroupText(const Group& group, size_t width) {
  std::string text = "\n" + group.name + ":\n";
  for (const Entry& entry : group.entries) {
    std::string line(kIndent, ' ');
    line += entry.names;
    if (!entry.value.empty()) line += " " + entry.value;
    if (line.size() + 2 > kMeaningColumn) {
      line += "\n" + std::string(kMeaningColumn, ' ');
    } else {
      line.resize(kMeaningColumn, ' ');
    }
    text += line + Wrapped(entry.meaning, kMeaningColumn, width) + "\n";
  }
  return text;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    const size_t width = TerminalWidth();
    std::string text =
        Wrapped(app->get_description(), 0, width) + "\n\nUsage: " + Usage(*app) + "\n";
    const auto examples = Examples().find(app->get_name());
    if (app->get_parent() != nullptr && examples != Examples().end()) {
      text += "\nExamples:\n";
      for (const char* example : examples->second) text += fmt::format("  {}\n", example);
    }
    if (app->get_parent() == nullptr) text += GroupText(CommandsOf(*app), width);
    for (const Group& group : GroupsOf(*app)) text += GroupText(group, width);
    return text + "\n" + app->get_footer() + "\n";
  }
};

// Letters to insert, delete, replace or swap with their neighbour to make `a` of `b`.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(last, row);
  }
  return last[b.size()];
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::shared_ptr<CLI::Formatter> MakeHelpFormatter() { return std::make_shared<HelpFormatter>(); }

std::string HelpText(const CLI::App& app) {
  return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
}

std::string HelpTable(const CLI::App& app) {
  std::string table;
  const auto add = [&](const char* kind, const std::string& group, const Entry& entry) {
    table +=
        fmt::format("{}\t{}\t{}\t{}\t{}\n", kind, group, entry.names, entry.value, entry.meaning);
  };
  add("usage", "", {Usage(app), "", app.get_description()});
  if (app.get_parent() == nullptr) {
    for (const Entry& command : CommandsOf(app).entries) add("command", "Commands", command);
  }
  const auto examples = Examples().find(app.get_name());
  if (app.get_parent() != nullptr && examples != Examples().end()) {
    for (const char* example : examples->second) add("example", "", {example, "", ""});
  }
  for (const Group& group : GroupsOf(app)) {
    const char* kind = group.name == "Arguments" ? "argument" : "option";
    for (const Entry& entry : group.entries) add(kind, group.name, entry);
  }
  return table;
}

std::string Nearest(const std::string& word, const std::vector<std::string>& names) {
  const auto other = OtherNames().find(word);
  if (other != OtherNames().end() &&
      std::find(names.begin(), names.end(), other->second) != names.end()) {
    return other->second;
  }
  std::string nearest;
  // Two letters of a long word may be wrong, one of a short one.
  size_t best = word.size() > 5 ? 3 : 2;
  for (const std::string& name : names) {
    const size_t distance = Distance(word, name);
    // What was written may be the beginning of a longer name.
    const bool begins = word.size() > 4 && name.rfind(word, 0) == 0;
    if (distance >= best && !(begins && nearest.empty())) continue;
    best = std::min(best, distance);
    nearest = name;
  }
  return nearest;
}

std::string ExplainExtras(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  const std::string word = extras.empty() ? "" : extras.front();
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.back();
  const std::string help = chosen.empty() ? "hearth help" : "hearth help " + command.get_name();
  if (word.rfind('-', 0) == 0) {
    const std::string name = word.substr(0, word.find('='));
    const std::string meant = Nearest(name, OptionNames(command));
    return fmt::format("there is no option '{}' of {}{} ('{}' lists them)", name,
                       chosen.empty() ? "hearth" : "hearth " + command.get_name(),
                       meant.empty() ? "" : fmt::format("; did you mean {}?", meant), help);
  }
  if (!chosen.empty()) {
    return fmt::format("'{}' is one word too many ('{}' says what is expected)", word, help);
  }
  std::vector<std::string> names;
  for (const Entry& entry : CommandsOf(app).entries) names.push_back(entry.names);
  names.push_back("--version");
  const std::string meant = Nearest(word, names);
  return fmt::format("there is no command '{}'{} ('hearth help' lists them)", word,
                     meant.empty() ? "" : fmt::format("; did you mean 'hearth {}'?", meant));
}

}  // namespace hearth::cli
