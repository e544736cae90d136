#include "cli/models/find_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "cli/models/cache_folder.h"
#include "cli/options/text_input.h"
#include "cli/screen/output.h"
#include "cli/version.h"
#include "hub/remote_header.h"

namespace hearth::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNamed = 12;  // in a message

// A path that cannot be looked at is a file, so that opening it says why.
bool IsPath(const std::string& name) {
  std::error_code failure;
  return fs::status(name, failure).type() != fs::file_type::not_found;
}

// An address of the hub is another way to say the name.
std::string PlainName(const std::string& name) {
  const auto parsed = hub::ParseModelName(name);
  return parsed ? parsed->Text() : name;
}

[[noreturn]] void ThrowMissing(const std::string& name) {
  const auto parsed = hub::ParseModelName(name);
  throw Error(
      ErrorCode::kNotFound, "",
      fmt::format("there is no file or model '{}'; 'hearth get {}' fetches {}, 'hearth list' "
                  "shows yours",
                  name, parsed ? parsed->Text() : "OWNER/REPO", parsed ? "it" : "one"));
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where Hugging Face's tools keep the token after a login.
std::string TokenPath() {
  if (const std::string path = Variable("HF_TOKEN_PATH"); !path.empty()) return path;
  if (const std::string home = Variable("HF_HOME"); !home.empty()) return home + "/token";
  if (const std::string cache = Variable("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/huggingface/token";
  }
  const std::string home = Variable("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface/token";
}

std::string TokenOfEnvironment() {
  std::string token = Variable("HF_TOKEN");
  const std::string path = TokenPath();
  std::error_code missing;
  if (token.empty() && !path.empty() && fs::exists(path, missing)) token = ReadTextFile(path);
  constexpr const char* kBlank = " \t\r\n";
  token.erase(token.find_last_not_of(kBlank) + 1);
  return token.substr(std::min(token.find_first_not_of(kBlank), token.size()));
}

// Says what it does where a user may wonder why it takes a moment.
hub::Repository ListForHeader(hub::Hub& hub, const hub::ModelName& name) {
  if (isatty(STDERR_FILENO) == 1) {
    PrintNotice(
        fmt::format("{} is not here: reading its header from {}\n", name.Text(), hub.endpoint()));
  }
  try {
    return hub.List(name.repository);
  } catch (const Error& error) {
    throw Error(error.code(), "",
                fmt::format("there is no file or model '{}' here, nor on the hub: {}", name.Text(),
                            Sentence(error)));
  }
}

}  // namespace

std::string RequireModelsFolder() {
  std::string folder = ModelsFolder();
  if (!folder.empty()) return folder;
  throw Error(ErrorCode::kNotFound, "the folder of models",
              "none of HEARTH_MODELS, XDG_DATA_HOME and HOME says where it is");
}

const hub::LocalModel& FindOne(const std::vector<hub::LocalModel>& models, const std::string& name,
                               bool prefers) {
  const auto found = hub::FindModels(models, PlainName(name), prefers);
  if (found.empty()) ThrowMissing(name);
  if (found.size() == 1) return *found.front();
  std::string names;
  for (size_t i = 0; i < std::min(found.size(), kMostNamed); ++i) {
    names += (i == 0 ? "" : ", ") + found[i]->Name();
  }
  throw Error(ErrorCode::kInvalidArgument, name,
              fmt::format("it may be one of {}{}: say which", names,
                          found.size() > kMostNamed ? ", ..." : ""));
}

std::string FindModel(const std::string& name) {
  if (IsPath(name)) return name;
  const std::string folder = ModelsFolder();
  if (folder.empty()) ThrowMissing(name);
  const std::vector<hub::LocalModel> models = hub::ListModels(folder);
  const hub::LocalModel& model = FindOne(models, name, true);
  if (model.is_whole()) return model.paths.front();
  throw Error(
      ErrorCode::kNotFound, model.Name(),
      fmt::format("only a part of it is here: 'hearth get {}' fetches the rest", model.Name()));
}

std::optional<hub::ModelName> FindRemoteName(const std::string& name) {
  if (IsPath(name)) return std::nullopt;
  const std::string folder = ModelsFolder();
  if (!folder.empty()) {
    const auto models = hub::ListModels(folder);
    const auto found = hub::FindModels(models, PlainName(name), true);
    const bool is_part = found.size() == 1 && !found.front()->is_whole();
    if (!found.empty() && !is_part) return std::nullopt;
  }
  return hub::ParseModelName(name);
}

hub::HubSettings HubOfEnvironment(const std::atomic<bool>* cancel) {
  hub::HubSettings settings;
  const std::string endpoint = Variable("HF_ENDPOINT");
  if (!endpoint.empty()) settings.endpoint = endpoint;
  settings.http.token = TokenOfEnvironment();
  settings.http.ca_file = Variable("CURL_CA_BUNDLE");
  if (settings.http.ca_file.empty()) settings.http.ca_file = Variable("SSL_CERT_FILE");
  settings.http.user_agent = VersionLine();
  std::replace(settings.http.user_agent.begin(), settings.http.user_agent.end(), ' ', '/');
  settings.http.cancel = cancel;
  return settings;
}

RemoteModel::RemoteModel(const hub::ModelName& name, ForeignTensors foreign)
    : hub_(HubOfEnvironment(nullptr)),
      repository_(ListForHeader(hub_, name)),
      files_(hub::ChooseModel(repository_.Models(), name)),
      name_(name.repository + ":" + files_.label),
      file_(hub::OpenRemoteHeader(hub_, repository_, files_, foreign)) {}

std::string RemoteModel::Save(const std::string& folder) const {
  return hub::SaveHeaders(*file_, repository_, files_, folder);
}

}  // namespace hearth::cli
