// The tensors of a published folder as those of a GGUF file: named, put together and put in order
// as GGUF's readers expect them. Bytes are read where they lie. Internal to import/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/gguf_view.h"
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"
#include "import/hugging_face_weights.h"

namespace hearth {

// What PublishedTensors leaves alone or changes of a folder's weights, a sentence each, for a user.
std::vector<std::string> NoticesOfWeights(const std::string& folder, const PublishedConfig& config);

// Every function throws Error(kNotFound) for a tensor that is missing, and Error(kCorrupt) for one
// that is not shaped as the config says.
class PublishedTensors {
 public:
  // Opens the folder's weights. `config` must outlive this.
  PublishedTensors(const std::string& folder, const PublishedConfig& config);

  bool Has(const std::string& published) const { return weights_.Has(published); }

  // One tensor under its name in GGUF.
  void Take(const std::string& published, const std::string& gguf,
            PublishedChange change = PublishedChange::kNone);
  // A module: `from` and `to` come before its two names.
  void TakeModule(const PublishedModule& module, const std::string& from, const std::string& to);
  // All of a layer, from 0.
  void TakeLayer(int64_t layer);
  // Two tensors of one: the first and the second half of the rows of every expert.
  void TakeHalves(const std::string& published, const std::string& first,
                  const std::string& second);
  // Two of one whose last dimension alternates between them. Matrices have their inputs first.
  void TakeAlternating(const std::string& published, const std::string& first,
                       const std::string& second);
  // A tensor that is in no file; nothing where `values` is empty.
  void AddFloats(const std::string& gguf, const std::vector<float>& values);

  // Throws Error(kUnsupported) for a tensor that was not taken: it would be left out of the
  // computation silently.
  void RefuseLeftOvers() const;

  // The file that has all tensors that were taken. Nothing can be taken afterwards.
  GgufFile MakeFile(const GgufMetadata& metadata);

 private:
  void TakeExperts(const std::string& from, const std::string& to);
  void TakeExpertPart(const std::string& experts, const std::string& part, const std::string& gguf);
  PublishedTensor TakeShaped(const std::string& published, size_t max_dims);
  void Add(const std::string& gguf, const SafetensorsTensor& like, std::vector<Region> regions);
  void AddMade(const std::string& gguf, DType dtype, std::vector<uint64_t> ne,
               std::unique_ptr<BlockReader> source);
  void RefuseBlocks(const SafetensorsTensor& tensor) const;
  void AddTransposed(const std::string& gguf, const PublishedTensor& found);
  Region Interleaved(const std::string& published, const PublishedTensor& found,
                     int64_t heads) const;
  std::vector<Region> QkvByKind(const std::string& published, const PublishedTensor& found) const;
  [[noreturn]] void RefuseRows(const std::string& published, const std::string& expected,
                               uint64_t rows) const;

  std::string folder_;
  const PublishedConfig& config_;
  PublishedWeights weights_;
  std::vector<std::unique_ptr<BlockReader>> sources_;
  std::vector<GgufViewTensor> tensors_;
};

}  // namespace hearth
