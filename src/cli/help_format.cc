#include "cli/help_format.h"

namespace hearth::cli {
namespace {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(28); }

  std::string make_usage(const CLI::App* app, std::string) const override {
    std::string usage = "Usage: hearth";
    if (app->get_parent() == nullptr) return usage + " COMMAND [OPTIONS]\n";
    usage += " " + app->get_name();
    for (const CLI::Option* option : app->get_options()) {
      if (!option->get_positional()) continue;
      const std::string name = option->get_name(true);
      usage += option->get_required() ? " " + name : " [" + name + "]";
    }
    return usage + " [OPTIONS]\n";
  }

  // Behind an option's name: the word for its value, given as its type name.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional() || option->get_items_expected_max() == 0) return "";
    const std::string& type = option->get_option_text();
    std::string text = " " + (type.empty() ? std::string("VALUE") : type);
    return option->get_required() ? text + " (required)" : text;
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return is_positional ? option->get_name(true) : option->get_name(false, true);
  }
};

}  // namespace

std::shared_ptr<CLI::Formatter> MakeHelpFormatter() { return std::make_shared<HelpFormatter>(); }

std::string HelpText(const CLI::App& app) {
  return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
}

}  // namespace hearth::cli
