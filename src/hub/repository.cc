#include "hub/repository.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "plan/json_object.h"
#include "plan/json_reader.h"

namespace hearth::hub {
namespace {

// The largest repositories have some thousand files of 300 bytes each.
constexpr size_t kMostAnswerBytes = size_t{16} << 20;
constexpr size_t kMostFiles = 50'000;
// So that sums over all files of a set stay far below 2^64.
constexpr uint64_t kMostFileBytes = uint64_t{1} << 44;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string HexOf(JsonObject& object, const std::string& key, size_t digits) {
  std::string text = object.Text(key);
  if (text.size() != digits || !IsHex(text)) {
    object.Fail(key, fmt::format("{} hexadecimal digits", digits));
  }
  return text;
}

// A large file has its own hash and size; a small one those of git.
RepositoryFile ParseFile(JsonObject& entry, const std::string& path) {
  RepositoryFile file{.path = path};
  if (!IsSafePath(path)) entry.Fail("rfilename", "a path inside the repository");
  if (entry.Has("lfs") && !entry.IsNull("lfs")) {
    JsonObject lfs = entry.Object("lfs");
    file.digest = HexOf(lfs, "sha256", DigestDigits(DigestKind::kSha256));
    file.bytes = lfs.Count("size", 0, kMostFileBytes);
    return file;
  }
  file.digest_kind = DigestKind::kGitSha1;
  file.digest = HexOf(entry, "blobId", DigestDigits(DigestKind::kGitSha1));
  file.bytes = entry.Count("size", 0, kMostFileBytes);
  return file;
}

std::string Encoded(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') ||
                          std::string_view("-._~/").find(c) != std::string_view::npos;
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

nlohmann::json ParseAnswer(const std::string& json, const std::string& where) {
  nlohmann::json answer = ReadJsonDocument(json, where, ErrorCode::kCorrupt);
  if (answer.is_discarded()) {
    throw Error(ErrorCode::kCorrupt, where, "the hub's answer is not JSON");
  }
  return answer;
}

HubSettings Checked(HubSettings settings) {
  std::string& endpoint = settings.endpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool is_web = endpoint.starts_with("http://") || endpoint.starts_with("https://");
  const auto is_visible = [](char c) { return c > 0x20 && c < 0x7f; };
  if (!is_web || !std::all_of(endpoint.begin(), endpoint.end(), is_visible)) {
    throw Error(ErrorCode::kInvalidArgument, "HF_ENDPOINT", "address of the hub",
                "one that begins with https:// or http://", "'" + Printable(endpoint) + "'");
  }
  const std::string& token = settings.http.token;
  if (!std::all_of(token.begin(), token.end(), is_visible)) {
    throw Error(ErrorCode::kInvalidArgument, "HF_TOKEN", "the token holds blanks or control bytes");
  }
  return settings;
}

}  // namespace

std::vector<ModelFiles> Repository::Models() const {
  std::vector<std::string> paths;
  for (const RepositoryFile& file : files) paths.push_back(file.path);
  return GroupModelFiles(std::move(paths));
}

const RepositoryFile& Repository::File(const std::string& path) const {
  for (const RepositoryFile& file : files) {
    if (file.path == path) return file;
  }
  throw Error(ErrorCode::kNotFound, name, fmt::format("there is no '{}' in it", Printable(path)));
}

std::vector<RepositoryFile> Repository::FilesOf(const ModelFiles& model) const {
  std::vector<RepositoryFile> found;
  for (const std::string& path : model.paths) found.push_back(File(path));
  if (found.size() == model.num_parts) return found;
  throw Error(ErrorCode::kCorrupt, name + ":" + model.label,
              fmt::format("the hub has {} of its {} parts", found.size(), model.num_parts));
}

Repository ParseRepository(const std::string& json, const std::string& name) {
  const nlohmann::json document = ParseAnswer(json, name);
  JsonObject object(document, name, ErrorCode::kCorrupt);
  Repository repository{.name = name};
  repository.commit = HexOf(object, "sha", DigestDigits(DigestKind::kGitSha1));
  // false, or how requests for access are answered: "auto" or "manual".
  repository.is_gated = object.Has("gated") && object.Get("gated").is_string();
  for (const nlohmann::json& value : object.List("siblings", kMostFiles)) {
    JsonObject entry(value, name, ErrorCode::kCorrupt,
                     fmt::format("siblings[{}]", repository.files.size()));
    const std::string path = entry.Text("rfilename");
    if (path.ends_with(".gguf")) repository.files.push_back(ParseFile(entry, path));
  }
  return repository;
}

Hub::Hub(HubSettings settings) : settings_(Checked(std::move(settings))), http_(settings_.http) {}

Repository Hub::List(const std::string& repository) {
  const std::string url =
      fmt::format("{}/api/models/{}?blobs=true", settings_.endpoint, Encoded(repository));
  std::string body;
  const HttpAnswer answer =
      http_.Get({.url = url}, [&](const HttpAnswer&, std::span<const std::byte> piece) {
        if (piece.size() > kMostAnswerBytes - body.size()) {
          throw Error(ErrorCode::kCorrupt, repository, "the hub's answer is too long");
        }
        body.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      });
  if (answer.is_done()) return ParseRepository(body, repository);
  throw RefusalOf({.name = repository}, "", answer);
}

HttpAnswer Hub::Read(const Repository& repository, const RepositoryFile& file,
                     HttpRequest::Range range, const HttpSink& sink) {
  const std::string url =
      fmt::format("{}/{}/resolve/{}/{}", settings_.endpoint, Encoded(repository.name),
                  repository.commit, Encoded(file.path));
  return http_.Get({.url = url, .range = range}, sink);
}

bool Hub::MayRetry(const HttpAnswer& answer) {
  if (!answer.failure.empty()) return answer.is_transient;
  constexpr int kTooMany = 429;
  constexpr int kTimeout = 408;
  const bool is_busy =
      answer.status >= 500 || answer.status == kTooMany || answer.status == kTimeout;
  // What the hub redirects to is an address for some minutes; the hub gives another one.
  const bool has_expired = answer.was_redirected && answer.status >= 400;
  return is_busy || has_expired;
}

Error Hub::RefusalOf(const Repository& repository, const std::string& file,
                     const HttpAnswer& answer) const {
  const std::string where = file.empty() ? repository.name : repository.name + "/" + file;
  const std::string& hub = settings_.endpoint;
  const bool has_token = !settings_.http.token.empty();
  const std::string said =
      answer.error_message.empty() ? "" : fmt::format(" ({})", answer.error_message);
  const auto io = [&](const std::string& what) { return Error(ErrorCode::kIo, where, what); };
  if (!answer.failure.empty()) {
    return io(fmt::format("cannot be read from {}: {}", hub, answer.failure));
  }
  const bool is_refused = answer.status == 401 || answer.status == 403;
  if (is_refused && (answer.error_code == "GatedRepo" || repository.is_gated)) {
    const std::string page = hub + "/" + repository.name;
    return io(has_token
                  ? fmt::format("it is gated and your token may not read it: accept its terms "
                                "at {} with the account that the token belongs to",
                                page)
                  : fmt::format("it is gated: accept its terms at {}, make a token at "
                                "{}/settings/tokens and set HF_TOKEN to it",
                                page, hub));
  }
  const bool is_missing = answer.status == 404 || answer.error_code == "RepoNotFound";
  if (is_missing && file.empty()) {
    return Error(ErrorCode::kNotFound, where,
                 has_token ? fmt::format("{} has no such repository that your token may read", hub)
                           : fmt::format("{} has no such public repository; a private one needs "
                                         "HF_TOKEN",
                                         hub));
  }
  if (is_refused && has_token) return io(fmt::format("{} does not accept your token{}", hub, said));
  if (is_refused) return io(fmt::format("{} wants a token{}: set HF_TOKEN", hub, said));
  if (answer.status == 429) return io(fmt::format("{} asks for fewer requests{}", hub, said));
  return io(fmt::format("{} answers with status {}{}", hub, answer.status, said));
}

}  // namespace hearth::hub
