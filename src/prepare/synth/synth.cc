#include "prepare/synth/synth.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/worker_team.h"
#include "format/gguf_serialize.h"
#include "format/gguf_writer.h"
#include "format/packed_file.h"
#include "prepare/pack/ordered_work.h"
#include "prepare/synth/planted_ffn.h"
#include "prepare/synth/synth_plan.h"
#include "prepare/synth/synth_tensor_maker.h"
#include "storage/disk_space.h"
#include "storage/file_writer.h"

namespace hearth {
namespace {

// Bytes made and written at a time; part of what a seed means, as every piece of a random tensor
// has numbers of its own. Small enough to be written out of the second-level cache, large enough
// that system calls and waiting for turns do not show: of 0.5, 1, 2 and 4 MiB the fastest.
constexpr uint64_t kSynthPieceBytes = uint64_t{1} << 20;

// A run of units of one tensor.
struct SynthPiece {
  const SynthTensor* tensor;
  uint64_t index;  // in its tensor
  uint64_t first_unit;
  size_t bytes;
};

uint64_t WeightsOf(const SynthTensor& tensor) {
  uint64_t weights = 1;
  for (const uint64_t n : tensor.decl.ne) weights *= n;
  return weights;
}

std::vector<SynthPiece> SplitSynthTensors(const std::vector<SynthTensor>& tensors) {
  std::vector<SynthPiece> pieces;
  for (const SynthTensor& tensor : tensors) {
    const DTypeInfo& info = InfoOf(tensor.decl.dtype);
    const uint64_t unit = SynthTensorMaker::UnitBytes(tensor);
    const uint64_t whole_units = std::max<uint64_t>(kSynthPieceBytes / unit, 1);
    uint64_t left = WeightsOf(tensor) / info.block_size * info.block_bytes;
    for (uint64_t index = 0; left > 0; ++index) {
      const uint64_t bytes = std::min(left, whole_units * unit);
      pieces.push_back({&tensor, index, index * whole_units, static_cast<size_t>(bytes)});
      left -= bytes;
    }
  }
  return pieces;
}

// Makes and writes all pieces. Every worker makes its in a buffer of its own and writes it when it
// is its turn.
template <typename Writer>
void WritePieces(const std::vector<SynthPiece>& pieces, const SynthTensorMaker& maker,
                 WorkerTeam& team, Writer& writer, const SynthProgressFn& progress) {
  std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(team.size()));
  const auto bytes_of = [&](int worker, size_t i) {
    std::vector<std::byte>& buffer = buffers[static_cast<size_t>(worker)];
    if (buffer.size() < pieces[i].bytes) {
      buffer.resize(std::max(static_cast<size_t>(kSynthPieceBytes), pieces[i].bytes));
    }
    return std::span(buffer).first(pieces[i].bytes);
  };
  RunPiecesInOrder(
      team, pieces.size(),
      [&](int worker, size_t i) {
        maker.Make(*pieces[i].tensor, pieces[i].index, pieces[i].first_unit, bytes_of(worker, i));
      },
      [&](int worker, size_t i) {
        writer.Append(bytes_of(worker, i));
        if (worker == 0 && progress) progress(writer.written_bytes(), writer.total_bytes());
      });
  // Before the file gets its name: who cancels here still finds nothing.
  if (progress) progress(writer.total_bytes(), writer.total_bytes());
  writer.Finish();
}

}  // namespace

SynthResult SynthesizeModel(const ModelShape& shape, const SynthOptions& options,
                            const std::string& path, const SynthProgressFn& progress) {
  if (path.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "-o", "the name of the file to write is missing");
  }
  ValidateShape(shape, shape.name.empty() ? "shape" : shape.name);
  std::unique_ptr<PlantedModel> planted;
  if (CanPlant(shape) || options.planted) {
    planted = std::make_unique<PlantedModel>(shape, options.planted.value_or(PlantedOptions()),
                                             options.quant, options.seed, options.packed);
  }
  SynthPlan plan = PlanSynth(shape, options.quant, options.seed, planted.get());
  if (options.packed) PackSynthPlan(shape, options.quant, planted.get(), &plan);
  SynthResult result;
  std::vector<GgufTensorDecl> decls;
  for (const SynthTensor& tensor : plan.tensors) decls.push_back(tensor.decl);
  result.num_tensors = decls.size();
  WorkerTeam team(options.threads);
  const auto write = [&](auto& writer) {
    result.file_bytes = writer.total_bytes();
    CheckDiskSpace(path, result.file_bytes);
    plan.metadata = {};  // the vocabulary is written and may be large
    if (planted) {
      planted->Calibrate(team, [&] {
        if (progress) progress(0, result.file_bytes);
      });
    }
    const SynthTensorMaker maker(shape, options.seed, planted.get());
    WritePieces(SplitSynthTensors(plan.tensors), maker, team, writer, progress);
  };
  if (options.packed) {
    PackedWriter writer(path, plan.metadata, std::move(decls));
    write(writer);
  } else {
    GgufWriter writer(path, plan.metadata, std::move(decls));
    write(writer);
  }
  return result;
}

uint64_t WriteShapeFile(const ModelShape& shape, DType quant, const std::string& path) {
  const SynthPlan plan = PlanSynth(shape, quant, 0, nullptr);
  std::vector<GgufTensorDecl> decls;
  for (const SynthTensor& tensor : plan.tensors) decls.push_back(tensor.decl);
  const GgufLayout layout = PlanGguf(path, plan.metadata, decls);
  FileWriter file(path);
  file.Write(layout.header);
  file.Close();
  std::error_code error;
  std::filesystem::resize_file(path, layout.total_bytes, error);
  if (error) throw Error(ErrorCode::kIo, path, "cannot be extended: " + error.message());
  return layout.total_bytes;
}

}  // namespace hearth
