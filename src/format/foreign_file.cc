#include "format/foreign_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <regex>
#include <span>
#include <system_error>
#include <vector>

namespace hearth {
namespace {

namespace fs = std::filesystem;

// Entries of a folder that are looked at.
constexpr int kMostEntries = 4096;
// Parts whose names a message lists.
constexpr int kMostNamedParts = 4;

struct Signature {
  std::string_view bytes;
  const char* description;
};

constexpr char kHtml[] = "an HTML page: the download failed, get the file again";
constexpr char kOldGguf[] = "a GGML file from before GGUF (ggml, ggmf or ggjt): get a GGUF file";

constexpr std::array kSignatures = {
    Signature{"version https://git-lfs",
              "a Git LFS pointer: fetch the file that it stands for with 'git lfs pull'"},
    Signature{"GGUF", "a GGUF file"},
    Signature{std::string_view("PK\x03\x04", 4),
              "a zip archive (PyTorch checkpoints are such): get the model as safetensors or GGUF"},
    Signature{"\x80\x02",
              "a Python pickle (an old PyTorch checkpoint): get the model as "
              "safetensors or GGUF"},
    Signature{"tjgg", kOldGguf},
    Signature{"fmgg", kOldGguf},
    Signature{"lmgg", kOldGguf},
    Signature{"FUGG", "a big-endian GGUF file: get a little-endian one"},
    Signature{"\x1f\x8b", "a gzip archive: unpack it first"},
    Signature{"\x28\xb5\x2f\xfd", "a Zstandard archive: unpack it first"},
    Signature{"\xfd"
              "7zXZ",
              "an xz archive: unpack it first"},
    Signature{"7z\xbc\xaf", "a 7-Zip archive: unpack it first"},
    Signature{"\x7f"
              "ELF",
              "a program (ELF)"},
    Signature{"\x89HDF", "an HDF5 file"},
};

// The safetensors format opens with the length of its JSON header and the header itself.
bool LooksLikeSafetensors(std::string_view head, uint64_t file_bytes) {
  uint64_t json_bytes = 0;
  if (head.size() < 10) return false;
  std::memcpy(&json_bytes, head.data(), sizeof(json_bytes));
  return json_bytes < file_bytes && head[8] == '{' && (head[9] == '"' || head[9] == '}');
}

// Pages may begin with a byte order mark and white space.
bool LooksLikeHtml(std::string_view head) {
  if (head.substr(0, 3) == "\xef\xbb\xbf") head.remove_prefix(3);
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  std::string lower(head.substr(0, 5));
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower.substr(0, 2) == "<!" || lower == "<html" || lower == "<head" || lower == "<?xml";
}

bool LooksLikeText(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7f : byte == '\n' || byte == '\r' || byte == '\t';
  });
}

// The first file of a folder, in order of names, that ends so; empty where there is none.
std::string FirstFile(const std::string& folder, std::string_view ending) {
  std::string first;
  std::error_code failed;
  int seen = 0;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end && seen < kMostEntries;
       it.increment(failed), ++seen) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(ending) && (first.empty() || name < first)) first = name;
  }
  return first;
}

std::string Join(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : " ") + name;
  return out;
}

// "m.gguf.part2of3": all names, or the first and last of many.
std::string PartsOf(const std::string& whole, int count) {
  std::vector<std::string> names;
  for (int i = 1; i <= count; ++i) {
    if (count > kMostNamedParts && i == 2) {
      names.emplace_back("...");
      i = count;
    }
    names.push_back(fmt::format("{}.part{}of{}", whole, i, count));
  }
  return Join(names);
}

}  // namespace

std::string ReadHead(const BlockReader& file) {
  std::string head(static_cast<size_t>(std::min<uint64_t>(kForeignHeadBytes, file.size_bytes())),
                   '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(head)));
  return head;
}

std::optional<ForeignFile> RecognizeSignature(std::string_view head, uint64_t file_bytes) {
  if (LooksLikeSafetensors(head, file_bytes)) {
    return ForeignFile{ErrorCode::kUnsupported,
                       "a safetensors file: convert the folder that it is in, with 'hearth convert "
                       "FOLDER -o FILE.gguf'"};
  }
  for (const Signature& signature : kSignatures) {
    if (head.substr(0, signature.bytes.size()) == signature.bytes) {
      return ForeignFile{ErrorCode::kUnsupported, signature.description};
    }
  }
  if (LooksLikeHtml(head)) return ForeignFile{ErrorCode::kUnsupported, kHtml};
  return std::nullopt;
}

std::optional<ForeignFile> RecognizeForeignFile(std::string_view head, uint64_t file_bytes) {
  if (head.empty()) return ForeignFile{ErrorCode::kCorrupt, "an empty file"};
  if (auto known = RecognizeSignature(head, file_bytes)) return known;
  if (LooksLikeText(head)) {
    return ForeignFile{ErrorCode::kUnsupported,
                       fmt::format("a text file ('{}'; a failed download?)", Printable(head, 24))};
  }
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) {
    return ForeignFile{ErrorCode::kCorrupt, "zero bytes (an unfinished download?)"};
  }
  return std::nullopt;
}

void RefuseModelFolder(const std::string& path) {
  std::error_code missing;
  if (!fs::is_directory(path, missing)) return;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kUnsupported, path, what);
  };
  if (fs::exists(path + "/config.json", missing)) {
    refuse(
        fmt::format("is a folder as published on Hugging Face: convert it first, with "
                    "'hearth convert {} -o FILE.gguf'",
                    Printable(path)));
  }
  if (const std::string name = FirstFile(path, ".gguf"); !name.empty()) {
    refuse(fmt::format("is a directory: name a model file in it, such as {}", Printable(name)));
  }
}

std::optional<std::string> HowToJoin(const std::string& path) {
  static const std::regex numbered("(.+)\\.part([0-9]{1,4})of([0-9]{1,4})");
  static const std::regex lettered("(.+?)([.-](?:split-|part-?))(?:[a-z]{1,3}|[0-9]{1,4})");
  static const std::regex plain("(.+\\.gguf)(\\.)(?:[0-9]{1,4}|a[a-z])");
  constexpr size_t kMostNameBytes = 4096;  // std::regex is recursive
  const std::string name = fs::path(path).filename().string();
  if (name.size() > kMostNameBytes) return std::nullopt;
  std::smatch match;
  std::string whole;
  std::string parts;
  if (std::regex_match(name, match, numbered)) {
    whole = match[1];
    parts = PartsOf(whole, std::stoi(match[3]));
  } else if (std::regex_match(name, match, lettered) || std::regex_match(name, match, plain)) {
    whole = match[1];
    parts = whole + match[2].str() + "*";
  } else {
    return std::nullopt;
  }
  return fmt::format(
      "is one part of a file that was cut for its upload: join all parts, in order, "
      "with 'cat {} > {}'",
      Printable(parts, 400), Printable(whole, 200));
}

}  // namespace hearth
