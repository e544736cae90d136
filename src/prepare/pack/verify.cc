#include "prepare/pack/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/worker_team.h"
#include "format/bundle_layout.h"
#include "format/packed_file.h"
#include "model/registry.h"
#include "prepare/pack/ordered_work.h"

namespace hearth {
namespace {

constexpr uint64_t kReadBytes = uint64_t{1} << 20;

bool AllZeros(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// A run of bundles, another tensor as a whole, or bytes after a tensor.
struct VerifiedRange {
  size_t tensor;
  uint64_t begin;  // of bundles: the first of them; else bytes in the file
  uint64_t end;
  enum { kBundles, kTensor, kPadding } kind;
};

class Verifier {
 public:
  Verifier(const GgufFile& file, int threads, const VerifyProgressFn& progress)
      : file_(file),
        team_(threads),
        progress_(progress),
        buffers_(static_cast<size_t>(team_.size())),
        flaws_(buffers_.size()) {}

  VerifyResult Verify() {
    CheckPackedFile(file_);
    const ModelSpec spec = ReadModelSpec(file_);
    PlanPieces(spec.hidden_size);
    // In the order of the file, so that the flaw reported does not depend on threads.
    RunPiecesInOrder(
        team_, pieces_.size(),
        [&](int worker, size_t i) {
          flaws_[static_cast<size_t>(worker)] =
              FlawOf(pieces_[i], buffers_[static_cast<size_t>(worker)]);
          if (worker == 0 && progress_) progress_(done_bytes_, file_.file_bytes());
        },
        [&](int worker, size_t) {
          const std::string& flaw = flaws_[static_cast<size_t>(worker)];
          if (!flaw.empty()) throw Error(ErrorCode::kCorrupt, file_.path(), flaw);
        });
    result_.bytes = file_.file_bytes();
    return result_;
  }

 private:
  void PlanPieces(int64_t hidden) {
    std::vector<size_t> by_offset(file_.tensors().size());
    for (size_t i = 0; i < by_offset.size(); ++i) by_offset[i] = i;
    std::sort(by_offset.begin(), by_offset.end(), [&](size_t a, size_t b) {
      return file_.tensors()[a].offset < file_.tensors()[b].offset;
    });
    layouts_.resize(by_offset.size());
    for (size_t at = 0; at < by_offset.size(); ++at) {
      const size_t i = by_offset[at];
      const GgufTensor& tensor = file_.tensors()[i];
      const uint64_t end = tensor.offset + tensor.bytes;
      if (LayerOfBundle(tensor.name)) {
        PlanBundles(i, hidden);
      } else {
        pieces_.push_back({i, tensor.offset, end, VerifiedRange::kTensor});
        ++result_.tensors;
      }
      const uint64_t next = at + 1 < by_offset.size() ? file_.tensors()[by_offset[at + 1]].offset
                                                      : file_.file_bytes();
      for (uint64_t begin = end; begin < next; begin += kReadBytes) {
        pieces_.push_back({i, begin, std::min(begin + kReadBytes, next), VerifiedRange::kPadding});
      }
    }
  }

  void PlanBundles(size_t index, int64_t hidden) {
    const GgufTensor& tensor = file_.tensors()[index];
    file_.GetTensor(BundleOrderName(*LayerOfBundle(tensor.name)));  // throws where it is missing
    layouts_[index] = ReadBundleLayout(file_.metadata(), hidden, tensor.ne[0]);
    const uint64_t count = tensor.ne[1] * tensor.ne[2];
    const uint64_t run = std::max<uint64_t>(1, kReadBytes / tensor.ne[0]);
    for (uint64_t begin = 0; begin < count; begin += run) {
      pieces_.push_back({index, begin, std::min(begin + run, count), VerifiedRange::kBundles});
    }
    result_.bundles += count;
  }

  // One sentence about what is wrong with a piece, or nothing.
  std::string FlawOf(const VerifiedRange& piece, std::vector<std::byte>& buffer) {
    switch (piece.kind) {
      case VerifiedRange::kBundles:
        return FlawOfBundles(piece, buffer);
      case VerifiedRange::kTensor:
        return FlawOfTensor(piece, buffer);
      case VerifiedRange::kPadding:
        break;
    }
    buffer.resize(static_cast<size_t>(piece.end - piece.begin));
    file_.part(0).ReadAt(piece.begin, buffer);
    done_bytes_ += buffer.size();
    if (AllZeros(buffer)) return "";
    return fmt::format("bytes after tensor '{}' were altered after they were written",
                       Printable(file_.tensors()[piece.tensor].name));
  }

  std::string FlawOfTensor(const VerifiedRange& piece, std::vector<std::byte>& buffer) {
    const GgufTensor& tensor = file_.tensors()[piece.tensor];
    ChecksumStream hash;
    for (uint64_t at = 0; at < tensor.bytes; at += buffer.size()) {
      buffer.resize(static_cast<size_t>(std::min(kReadBytes, tensor.bytes - at)));
      file_.ReadTensor(tensor, at, buffer);
      hash.Update(buffer);
      done_bytes_ += buffer.size();
    }
    const uint64_t stated = *StatedTensorHash(file_, piece.tensor);
    if (hash.Digest() == stated) return "";
    return fmt::format(
        "tensor '{}' was altered after it was written: its hash is {:016x}, and the header says "
        "{:016x}",
        Printable(tensor.name), hash.Digest(), stated);
  }

  std::string FlawOfBundles(const VerifiedRange& piece, std::vector<std::byte>& buffer) {
    const GgufTensor& tensor = file_.tensors()[piece.tensor];
    const uint64_t stride = tensor.ne[0];
    buffer.resize(static_cast<size_t>((piece.end - piece.begin) * stride));
    file_.ReadTensor(tensor, piece.begin * stride, buffer);
    done_bytes_ += buffer.size();
    for (uint64_t i = piece.begin; i < piece.end; ++i) {
      const auto bundle = std::span(buffer).subspan((i - piece.begin) * stride, stride);
      const char* const flaw = FlawOfBundle(layouts_[piece.tensor], bundle);
      if (flaw == nullptr) continue;
      const std::string expert =
          tensor.num_dims > 2 ? fmt::format("expert {}, ", i / tensor.ne[1]) : "";
      return fmt::format(
          "the bundle of layer {}, {}neuron {} was altered after it was written ({})",
          *LayerOfBundle(tensor.name), expert, i % tensor.ne[1], flaw);
    }
    return "";
  }

  // Which part is not as it was written, or null. A check that was altered blames its part.
  static const char* FlawOfBundle(const BundleLayout& layout, std::span<std::byte> bundle) {
    const BundleChecks checks = StoredChecks(layout, bundle);
    const bool is_gated = layout.kind().is_gated;
    if (checks.gate != GateCheckOf(layout, bundle)) {
      return is_gated ? "its gate or the check of it" : "its fc1, its bias or the check of them";
    }
    if (checks.rest != RestCheckOf(layout, bundle.subspan(layout.split))) {
      return is_gated ? "its up, its down or the check of them" : "its fc2 or the check of it";
    }
    uint64_t at = 0;
    for (const BundlePart& part : layout.parts) {
      if (!AllZeros(bundle.subspan(at, part.offset - at))) return "bytes between its parts";
      at = part.offset + part.bytes;
    }
    return AllZeros(bundle.subspan(at)) ? nullptr : "bytes between its parts";
  }

  const GgufFile& file_;
  WorkerTeam team_;
  const VerifyProgressFn& progress_;
  std::vector<std::vector<std::byte>> buffers_;  // per thread
  std::vector<std::string> flaws_;               // per thread, of the piece at hand
  std::vector<BundleLayout> layouts_;            // per tensor; empty but for bundles
  std::vector<VerifiedRange> pieces_;
  std::atomic<uint64_t> done_bytes_{0};
  VerifyResult result_;
};

}  // namespace

VerifyResult VerifyPackedFile(const GgufFile& file, int threads, const VerifyProgressFn& progress) {
  return Verifier(file, threads, progress).Verify();
}

}  // namespace hearth
