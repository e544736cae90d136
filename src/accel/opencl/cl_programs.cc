#include "accel/opencl/cl_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "accel/kernel_sources.h"
#include "base/error.h"

namespace hearth::accel {
namespace {

std::string OptionsOf(const ProgramName& name) {
  std::string options = "-cl-std=CL1.2";
  if (!name.type.empty()) options += fmt::format(" -DWEIGHT_{}", name.type);
  return options;
}

// All that a binary depends on.
std::string KeyOf(const ProgramName& name, const std::string& options, const DeviceInfo& info) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", info.name, info.platform, info.driver, options,
                     KernelSource("common"), KernelSource(name.file));
}

}  // namespace

cl_program ClPrograms::Get(const ProgramName& name) {
  const std::lock_guard lock(mutex_);
  Program& program = programs_[fmt::format("{} {}", name.file, name.type)];
  if (program.get() == nullptr) program = Make(name);
  return program.get();
}

ClPrograms::Program ClPrograms::Make(const ProgramName& name) const {
  const std::string options = OptionsOf(name);
  const std::string key = KeyOf(name, options, info_);
  Program program = FromBinary(key, options);
  if (program.get() != nullptr) return program;
  program = Build(name, options);
  Keep(key, program.get());
  return program;
}

// Returns an empty handle where there is no binary, or where the driver no longer takes it.
ClPrograms::Program ClPrograms::FromBinary(const std::string& key,
                                           const std::string& options) const {
  const std::optional<std::vector<std::byte>> binary = cache_.Find(key);
  if (!binary) return {};
  const auto* data = reinterpret_cast<const unsigned char*>(binary->data());
  const size_t bytes = binary->size();
  cl_int accepted = CL_SUCCESS;
  cl_int code = CL_SUCCESS;
  Program program(
      cl_.create_program_of_binary(context_, 1, &device_, &bytes, &data, &accepted, &code),
      cl_.release_program);
  if (code != CL_SUCCESS || accepted != CL_SUCCESS) return {};
  code = cl_.build_program(program.get(), 1, &device_, options.c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS) return {};
  return program;
}

ClPrograms::Program ClPrograms::Build(const ProgramName& name, const std::string& options) const {
  const std::string_view sources[] = {KernelSource("common"), KernelSource(name.file)};
  const char* texts[] = {sources[0].data(), sources[1].data()};
  const size_t lengths[] = {sources[0].size(), sources[1].size()};
  cl_int code = CL_SUCCESS;
  Program program(cl_.create_program(context_, 2, texts, lengths, &code), cl_.release_program);
  CheckCl(code, info_.name, fmt::format("making the program {}", name.file));
  code = cl_.build_program(program.get(), 1, &device_, options.c_str(), nullptr, nullptr);
  if (code == CL_SUCCESS) return program;
  throw Error(ErrorCode::kUnsupported, info_.name,
              fmt::format("its driver cannot build the program {} {}({}): {}", name.file,
                          name.type.empty() ? "" : fmt::format("for {} ", name.type),
                          ClErrorName(code), FirstLogLine(program.get())));
}

void ClPrograms::Keep(const std::string& key, cl_program program) const {
  size_t bytes = 0;
  cl_int code =
      cl_.get_program_info(program, CL_PROGRAM_BINARY_SIZES, sizeof(bytes), &bytes, nullptr);
  if (code != CL_SUCCESS || bytes == 0) return;  // a driver without binaries
  std::vector<std::byte> binary(bytes);
  std::byte* data = binary.data();
  code = cl_.get_program_info(program, CL_PROGRAM_BINARIES, sizeof(data), &data, nullptr);
  if (code == CL_SUCCESS) cache_.Keep(key, binary);
}

std::string ClPrograms::FirstLogLine(cl_program program) const {
  size_t bytes = 0;
  cl_.get_build_info(program, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
  std::string log(bytes, '\0');
  cl_.get_build_info(program, device_, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
  log.resize(std::min(log.size(), log.find('\0')));
  log.erase(0, log.find_first_not_of("\n\r "));
  log = Printable(std::string_view(log).substr(0, log.find_first_of("\n\r")), 200);
  return log.empty() ? "it says nothing of why" : log;
}

}  // namespace hearth::accel
