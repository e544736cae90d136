// A shared library that is loaded when a command needs it. It is not linked, because a command's
// memory limit covers the code of all libraries that the program links.
#pragma once

#include <span>
#include <string>

namespace hearth {

// Stays loaded for good: some libraries do not survive being closed. One thread at a time.
class SystemLibrary {
 public:
  // Loads the first of `file_names` that can be loaded. Throws Error(kUnsupported), naming
  // `purpose` ("planning") and the package to install, where none can.
  SystemLibrary(std::span<const char* const> file_names, const char* purpose, const char* package);

  // function = the library's function of this name. Throws as the constructor where it has none.
  template <typename Function>
  void Find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(AddressOf(name));
  }

 private:
  void* AddressOf(const char* name) const;
  [[noreturn]] void Fail(const char* what, const std::string& reason) const;

  const char* purpose_;
  const char* package_;
  void* handle_ = nullptr;
};

}  // namespace hearth
