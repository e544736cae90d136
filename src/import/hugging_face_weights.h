// The tensors of a published model folder, by name. Internal to import/.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/safetensors.h"
#include "import/quantized/quantization_config.h"
#include "storage/block_reader.h"

namespace hearth {

// A tensor and where it lies. Its type is F32, F16, BF16 or an integer's (F64 is read as F32), or
// one of blocks, a row being whole blocks, where the folder has quantized matrices.
struct PublishedTensor {
  size_t source = 0;
  SafetensorsTensor tensor;  // with the name that the folder has
};

// Opened weights, all of which must be taken: what is left at the end would be missing in the
// model.
class PublishedWeights {
 public:
  // Opens model.safetensors, or the files that its index names. Throws Error: kNotFound where there
  // are no weights or a file is missing, kCorrupt, kUnsupported, kIo.
  // `embedding` is what the name of the token embedding ends with ("embed_tokens.weight").
  PublishedWeights(std::string folder, std::string embedding,
                   const PublishedQuantization& quantization);

  // Names are "lm_head.weight" and, for all else, "model." and what the folder has in place of it:
  // what comes before the token embedding, which may be nothing.
  bool Has(const std::string& name) const { return left_.count(name) > 0; }
  // Removes a tensor from those that are left. Throws Error(kNotFound) where it is missing.
  PublishedTensor Take(const std::string& name);
  const std::map<std::string, PublishedTensor>& left() const { return left_; }

  // What became of quantized matrices, a sentence each; none where there are none.
  const std::vector<std::string>& notices() const { return notices_; }

  // What PublishedTensor::source counts; afterwards nothing can be opened.
  std::vector<std::unique_ptr<BlockReader>> TakeSources() { return std::move(sources_); }

 private:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Open();
  [[noreturn]] void RefuseWithoutWeights() const;
  std::vector<std::string> FilesOfIndex(const std::string& index) const;
  void OpenFile(const std::string& name);
  void UseUsualNames();
  void RefuseFloat8() const;

  std::string folder_;
  std::string embedding_;
  std::vector<std::unique_ptr<BlockReader>> sources_;
  std::map<std::string, PublishedTensor> left_;
  std::vector<std::string> notices_;
};

}  // namespace hearth
