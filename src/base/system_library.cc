#include "base/system_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace hearth {

SystemLibrary::SystemLibrary(std::span<const char* const> file_names, const char* purpose,
                             const char* package)
    : purpose_(purpose), package_(package) {
  std::string reason;
  for (const char* name : file_names) {
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    const char* const said = dlerror();
    if (reason.empty() && said != nullptr) reason = said;
  }
  Fail(file_names.front(), reason);
}

void* SystemLibrary::AddressOf(const char* name) const {
  void* const address = dlsym(handle_, name);
  if (address == nullptr) Fail(name, "the library does not have it");
  return address;
}

void SystemLibrary::Fail(const char* what, const std::string& reason) const {
  throw Error(
      ErrorCode::kUnsupported, what,
      fmt::format("cannot be loaded ({}): {} needs the package {}", reason, purpose_, package_));
}

}  // namespace hearth
