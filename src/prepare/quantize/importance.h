// Importance matrices: how much each input of each matrix was used over a text, so that a quantizer
// knows where errors cost. Read in both forms that exist, written in the newer one.
//
//   GGUF    general.type is "imatrix"; of each matrix NAME two tensors of F32: NAME.in_sum2
//           [columns, experts], sums of squares of its inputs, and NAME.counts [1, experts],
//           tokens. imatrix.datasets, .chunk_count and .chunk_size say how it was made.
//   legacy  no magic. int32 number of entries; of each an int32 length and a name, int32 calls,
//           int32 number of values, float32 values (mean squares times calls, expert after expert).
//           What follows, the number of chunks and the text's name, is not needed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/budget.h"
#include "format/gguf.h"
#include "storage/block_reader.h"

namespace hearth {

// Of one matrix, or of a mixture's matrices in one tensor.
struct MatrixImportance {
  uint64_t columns = 0;       // inputs; 0 where the file says only how many values there are in all
  std::vector<float> values;  // mean squares, [experts][columns], finite and >= 0
};

class ImportanceMatrix {
 public:
  // Throws Error(kCorrupt) for what is neither form, or contradicts itself.
  static ImportanceMatrix Load(const std::string& path);
  static ImportanceMatrix Read(std::unique_ptr<BlockReader> reader);

  const std::string& path() const { return path_; }
  const std::map<std::string, MatrixImportance, std::less<>>& entries() const { return entries_; }
  uint64_t values_bytes() const;

  // The values of a tensor, one for each column of each expert, or null where there are none.
  // Throws Error(kCorrupt), naming both files, where their number is another.
  const float* Find(const GgufFile& model, const GgufTensor& tensor) const;

  // The names that no tensor of the model has. Throws Error(kInvalidArgument) where that is all.
  std::vector<std::string> Strangers(const GgufFile& model) const;

 private:
  void ReadGguf(std::unique_ptr<BlockReader> reader);
  void ReadLegacy(const BlockReader& reader);
  void Add(const std::string& name, MatrixImportance importance);

  std::string path_;
  std::map<std::string, MatrixImportance, std::less<>> entries_;
};

// What is counted of the inputs of one matrix, or of several that multiply the same.
struct InputSums {
  std::vector<std::string> names;  // of their tensors
  uint64_t columns = 0;
  std::vector<double> squares;   // [experts][columns]
  std::vector<uint64_t> tokens;  // of each expert
};
struct ImportanceSource {
  std::string text;
  uint64_t chunks = 0;
  uint64_t chunk_tokens = 0;
};

// In the newer form. Throws what GgufWriter throws.
void WriteImportance(const std::string& path, const std::vector<InputSums>& sums,
                     const ImportanceSource& source);

}  // namespace hearth
