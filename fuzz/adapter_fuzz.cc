// Any bytes as a low-rank adapter: a GGUF file, or PEFT's two files, which the first zero byte
// parts. Whatever is wrong must come out as hearth::Error, and all rows of what is accepted must be
// readable.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "import/adapter_file.h"
#include "model/model_spec.h"

namespace {

// The folder that holds the adapter, while the program runs.
class AdapterFolder {
 public:
  AdapterFolder() { std::filesystem::create_directories(path_); }
  ~AdapterFolder() { std::filesystem::remove_all(path_); }
  AdapterFolder(const AdapterFolder&) = delete;
  AdapterFolder& operator=(const AdapterFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_ =
      std::filesystem::temp_directory_path() / ("hearth_adapter_fuzz." + std::to_string(getpid()));
};

const std::string& Folder() {
  static const AdapterFolder folder;
  return folder.path();
}

void Write(const std::string& name, std::string_view bytes) {
  std::ofstream(Folder() + "/" + name, std::ios::binary) << bytes;
}

// What opening an adapter asks of its base.
hearth::ModelSpec Base() {
  hearth::ModelSpec spec;
  spec.architecture = "llama";
  spec.num_layers = 3;
  spec.layers.resize(3);
  for (hearth::LayerSpec& layer : spec.layers) layer.attention.head_dim = 16;
  return spec;
}

void ReadRows(const hearth::AdapterFile& adapter, const hearth::GgufTensor& tensor) {
  uint64_t next = 0;
  const uint64_t rows = tensor.num_weights() / tensor.ne[0];
  using hearth::DType;
  for (const DType integer : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    if (tensor.dtype == integer) return;  // ReadAdapterRows takes no integers
  }
  try {
    hearth::ReadAdapterRows(adapter.file, tensor, {0, rows},
                            [&](uint64_t row, std::span<const float> numbers) {
                              if (row != next++ || numbers.size() != tensor.ne[0]) std::abort();
                            });
  } catch (const hearth::Error&) {  // numbers that are not finite
    return;
  }
  if (next != rows) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  static const hearth::ModelSpec base = Base();
  std::string path = Folder();
  if (input.starts_with("GGUF")) {
    path += "/adapter.gguf";
    Write("adapter.gguf", input);
  } else {
    const size_t config = std::min(input.find('\0'), size);
    Write("adapter_config.json", input.substr(0, config));
    Write("adapter_model.safetensors", input.substr(std::min(config + 1, size)));
  }
  try {
    const hearth::AdapterFile adapter = hearth::OpenAdapter(path, base);
    for (const hearth::GgufTensor& tensor : adapter.file.tensors()) ReadRows(adapter, tensor);
  } catch (const hearth::Error&) {  // refusing is fine
  }
  return 0;
}
