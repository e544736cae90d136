#include "import/quantized/unquantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "import/quantized/coded_formats.h"
#include "import/quantized/coded_reader.h"

namespace hearth {
namespace {

constexpr uint64_t kWordCodeBits = 32;

using Shape = std::vector<uint64_t>;

uint64_t RoundedUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
uint64_t WordsOf(uint64_t codes, int bits) {
  return RoundedUp(codes * static_cast<uint64_t>(bits), kWordCodeBits);
}
bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}
bool IsByte(const PublishedTensor& found) { return found.tensor.dtype == DType::kI8; }

class Unquantizer {
 public:
  Unquantizer(const FolderTensors& tensors, const PublishedQuantization& quantization)
      : tensors_(tensors), quantization_(quantization) {}

  UnquantizedNotices Run() {
    switch (quantization_.method) {
      case QuantMethod::kNone:
        break;
      case QuantMethod::kGptq:
        ForEach(".qweight", [this](const std::string& module) { return Gptq(module); });
        break;
      case QuantMethod::kAwq:
        ForEach(".qweight", [this](const std::string& module) { return Awq(module); });
        break;
      case QuantMethod::kCompressedTensors:
        ForEach(".weight_packed", [this](const std::string& module) { return Compressed(module); });
        ForEach(".weight", [this](const std::string& module) { return Bytes(module); });
        break;
      case QuantMethod::kFp8:
        ForEach(".weight", [this](const std::string& module) { return Bytes(module); });
        break;
    }
    LeaveOutScalesOfActivations();
    return Notices();
  }

 private:
  std::map<std::string, PublishedTensor>& left() { return *tensors_.by_name; }

  template <typename Make>
  void ForEach(std::string_view ending, const Make& make) {
    std::vector<std::string> modules;
    for (const auto& [name, found] : left()) {
      if (!name.ends_with(ending)) continue;
      if (ending == ".weight" && !IsByte(found)) continue;
      modules.push_back(name.substr(0, name.size() - ending.size()));
    }
    for (const std::string& module : modules) Put(module, make(module));
  }

  void Put(const std::string& module, std::unique_ptr<CodedMatrix> matrix) {
    const CodeShape& shape = matrix->shape();
    PublishedTensor made;
    made.source = tensors_.sources->size();
    made.tensor.name = module + ".weight";
    made.tensor.dtype = StoredAs(shape);
    made.tensor.shape = {shape.rows, shape.cols};
    ++made_[{made.tensor.dtype, shape.has_half_scales, !shape.order.empty()}];
    tensors_.sources->push_back(MakeCodedReader(std::move(matrix), decoded_));
    made.tensor.bytes = tensors_.sources->back()->size_bytes();
    std::string key = made.tensor.name;
    if (!left().emplace(std::move(key), std::move(made)).second) {
      Refuse("weights of " + module, "codes or floats", "both");
    }
  }

  [[noreturn]] void Refuse(const std::string& what, const std::string& expected,
                           const std::string& found) const {
    throw Error(ErrorCode::kCorrupt, tensors_.folder, what, expected, Printable(found));
  }

  bool Has(const std::string& name) { return left().count(name) > 0; }

  OpenTensor Take(const std::string& name) {
    const auto found = left().find(name);
    if (found == left().end()) {
      throw Error(ErrorCode::kNotFound, tensors_.folder, "tensor '" + name + "' is missing");
    }
    OpenTensor out = {(*tensors_.sources)[found->second.source].get(),
                      std::move(found->second.tensor)};
    left().erase(found);
    return out;
  }
  OpenTensor TakeWords(const std::string& name) {
    OpenTensor out = Take(name);
    if (out.tensor.dtype != DType::kI32 || out.tensor.shape.size() != 2) {
      Refuse(name, "a matrix of I32", NameOf(out.tensor.dtype));
    }
    return out;
  }
  // One number, as tensors of 8 bits may have, is a matrix of one.
  OpenTensor TakeScales(const std::string& name) {
    OpenTensor out = Take(name);
    if (!IsFloat(out.tensor.dtype)) Refuse(name, "F32, F16 or BF16", NameOf(out.tensor.dtype));
    Shape& shape = out.tensor.shape;
    while (shape.size() < 2) shape.push_back(1);
    if (shape.size() > 2) Refuse(name, "a matrix", fmt::format("{} dimensions", shape.size()));
    return out;
  }
  void ExpectShape(const OpenTensor& tensor, const Shape& expected) const {
    if (tensor.tensor.shape == expected) return;
    Refuse("shape of " + tensor.tensor.name, fmt::format("{}", expected),
           fmt::format("{}", tensor.tensor.shape));
  }

  // The group of each input, where they are not the first so many, the next, and so on.
  void ReadOrder(const std::string& name, CodeShape* shape) {
    if (!Has(name)) return;
    const OpenTensor tensor = Take(name);
    if (tensor.tensor.dtype != DType::kI32) Refuse(name, "I32", NameOf(tensor.tensor.dtype));
    ExpectShape(tensor, {shape->cols});
    std::vector<uint32_t> order(shape->cols);
    ReadWords(tensor, 0, order);
    // compressed-tensors writes -1 where it does not use them.
    if (std::all_of(order.begin(), order.end(), [](uint32_t g) { return g == UINT32_MAX; })) return;
    bool is_usual = true;
    for (uint64_t c = 0; c < shape->cols; ++c) {
      if (order[c] >= shape->groups) {
        Refuse(name, fmt::format("groups below {}", shape->groups), std::to_string(order[c]));
      }
      is_usual = is_usual && order[c] == c / shape->group_size;
    }
    if (!is_usual) shape->order = std::move(order);
  }

  // GPTQ's and AWQ's scales are [groups, rows].
  void SetGroups(const std::string& module, const OpenTensor& scales, CodeShape* shape) const {
    shape->name = tensors_.folder + ": " + module;
    shape->group_size = quantization_.group_size == 0 ? shape->cols : quantization_.group_size;
    shape->groups = RoundedUp(shape->cols, shape->group_size);
    shape->has_half_scales = scales.tensor.dtype == DType::kF16;
    ExpectShape(scales, {shape->groups, shape->rows});
  }

  std::unique_ptr<CodedMatrix> Gptq(const std::string& module) {
    PackedParts parts = {.codes = TakeWords(module + ".qweight"),
                         .scales = TakeScales(module + ".scales"),
                         .zeros = TakeWords(module + ".qzeros"),
                         .bits = quantization_.bits,
                         .zeros_less = quantization_.zeros_less};
    const Shape& words = parts.codes.tensor.shape;
    CodeShape shape;
    shape.rows = words[1];
    shape.cols = words[0] * kWordCodeBits / static_cast<uint64_t>(parts.bits);
    SetGroups(module, parts.scales, &shape);
    ExpectShape(parts.codes, {WordsOf(shape.cols, parts.bits), shape.rows});
    ExpectShape(*parts.zeros, {shape.groups, WordsOf(shape.rows, parts.bits)});
    ReadOrder(module + ".g_idx", &shape);
    const int codes = 1 << parts.bits;
    shape.least = quantization_.is_symmetric ? -codes / 2 : 1 - codes - parts.zeros_less;
    shape.most = quantization_.is_symmetric ? codes / 2 - 1 : codes - 1 - parts.zeros_less;
    return MakeGptqMatrix(std::move(shape), std::move(parts));
  }

  std::unique_ptr<CodedMatrix> Awq(const std::string& module) {
    PackedParts parts = {.codes = TakeWords(module + ".qweight"),
                         .scales = TakeScales(module + ".scales"),
                         .zeros = TakeWords(module + ".qzeros"),
                         .bits = quantization_.bits};
    const Shape& words = parts.codes.tensor.shape;
    CodeShape shape;
    shape.rows = words[1] * (kWordCodeBits / static_cast<uint64_t>(parts.bits));
    shape.cols = words[0];
    SetGroups(module, parts.scales, &shape);
    ExpectShape(*parts.zeros, {shape.groups, words[1]});
    shape.least = 1 - (1 << parts.bits);
    shape.most = (1 << parts.bits) - 1;
    return MakeAwqMatrix(std::move(shape), std::move(parts));
  }

  // [rows, cols]; two numbers, I64 or I32.
  Shape ReadWeightShape(const std::string& name) {
    const OpenTensor tensor = Take(name);
    const bool is_long = tensor.tensor.dtype == DType::kI64;
    ExpectShape(tensor, {2});
    if (!is_long && tensor.tensor.dtype != DType::kI32) {
      Refuse(name, "I64 or I32", NameOf(tensor.tensor.dtype));
    }
    uint32_t words[4] = {};
    ReadWords(tensor, 0, std::span(words).first(is_long ? 4 : 2));
    Shape shape = {words[0], words[is_long ? 2 : 1]};
    if (is_long && (words[1] != 0 || words[3] != 0)) Refuse(name, "numbers below 2^32", "others");
    if (shape[0] == 0 || shape[1] == 0) Refuse(name, "numbers of 1 or more", "0");
    return shape;
  }

  std::unique_ptr<CodedMatrix> Compressed(const std::string& module) {
    PackedParts parts = {.codes = TakeWords(module + ".weight_packed"),
                         .scales = TakeScales(module + ".weight_scale")};
    if (Has(module + ".weight_zero_point")) parts.zeros = TakeWords(module + ".weight_zero_point");
    const Shape whole = ReadWeightShape(module + ".weight_shape");
    CodeShape shape;
    shape.name = tensors_.folder + ": " + module;
    shape.rows = whole[0];
    shape.cols = whole[1];
    parts.bits = parts.codes.tensor.shape[1] == WordsOf(shape.cols, 4) ? 4 : 8;
    ExpectShape(parts.codes, {shape.rows, WordsOf(shape.cols, parts.bits)});
    shape.groups = parts.scales.tensor.shape[1];
    ExpectShape(parts.scales, {shape.rows, shape.groups});
    if (shape.cols % shape.groups != 0) {
      Refuse("groups of " + module, fmt::format("a divisor of {}", shape.cols),
             std::to_string(shape.groups));
    }
    shape.group_size = shape.cols / shape.groups;
    if (parts.zeros) ExpectShape(*parts.zeros, {WordsOf(shape.rows, parts.bits), shape.groups});
    shape.has_half_scales = parts.scales.tensor.dtype == DType::kF16;
    ReadOrder(module + ".weight_g_idx", &shape);
    const int codes = 1 << parts.bits;
    shape.least = parts.zeros ? 1 - codes : -codes / 2;
    shape.most = parts.zeros ? codes - 1 : codes / 2 - 1;
    return MakeCompressedMatrix(std::move(shape), std::move(parts));
  }

  // A scale for each row, for each block or for all.
  std::unique_ptr<CodedMatrix> Bytes(const std::string& module) {
    const std::string inverse = module + ".weight_scale_inv";
    ByteParts parts;
    parts.codes = Take(module + ".weight");
    parts.scales = TakeScales(Has(inverse) ? inverse : module + ".weight_scale");
    if (Has(module + ".weight_zero_point")) {
      throw Error(ErrorCode::kUnsupported, tensors_.folder, "zeros of " + module,
                  "none, as 8-bit weights usually have",
                  "some; the folder with float weights can be read");
    }
    const Shape& whole = parts.codes.tensor.shape;
    if (whole.size() != 2) Refuse("dimensions of " + module, "2", std::to_string(whole.size()));
    CodeShape shape;
    shape.name = tensors_.folder + ": " + module;
    shape.rows = whole[0];
    shape.cols = whole[1];
    const Shape& scales = parts.scales.tensor.shape;
    const bool is_blocks = quantization_.block_rows > 0;
    parts.block_rows = is_blocks ? quantization_.block_rows : scales[0] == 1 ? shape.rows : 1;
    shape.group_size = is_blocks ? quantization_.block_cols : RoundedUp(shape.cols, scales[1]);
    shape.groups = RoundedUp(shape.cols, shape.group_size);
    ExpectShape(parts.scales, {RoundedUp(shape.rows, parts.block_rows), shape.groups});
    shape.has_half_scales = parts.scales.tensor.dtype == DType::kF16;
    if (!parts.codes.tensor.is_float8) {
      shape.least = -128;
      shape.most = 127;
    }
    return MakeByteMatrix(std::move(shape), std::move(parts));
  }

  // Hearth measures activations itself.
  void LeaveOutScalesOfActivations() {
    if (quantization_.method == QuantMethod::kNone) return;
    constexpr std::string_view kEndings[] = {".input_scale", ".output_scale", ".k_scale",
                                             ".v_scale"};
    std::erase_if(left(), [&](const auto& found) {
      return std::any_of(std::begin(kEndings), std::end(kEndings),
                         [&](std::string_view ending) { return found.first.ends_with(ending); });
    });
  }

  UnquantizedNotices Notices() const {
    UnquantizedNotices out;
    for (const auto& [how, count] : made_) {
      const auto& [dtype, has_half_scales, is_ordered] = how;
      std::string text = fmt::format("{} matri{} of {} {} {} ({} bits a weight): ", count,
                                     count == 1 ? "x" : "ces", quantization_.name,
                                     count == 1 ? "is" : "are", NameOf(dtype), BitsOf(dtype));
      if (dtype == DType::kF16) {
        text += is_ordered ? "groups are not contiguous (act-order), and each weight is rounded by "
                             "at most 0.05% of it"
                           : "each weight is rounded by at most 0.05% of it, or 3e-8";
      } else {
        text += has_half_scales ? "weights are exactly as published"
                                : "scales become F16, which changes weights by at most 0.05%";
      }
      out.push_back(std::move(text));
    }
    return out;
  }
  static double BitsOf(DType dtype) {
    const DTypeInfo& info = InfoOf(dtype);
    return 8.0 * static_cast<double>(info.block_bytes) / static_cast<double>(info.block_size);
  }

  const FolderTensors tensors_;
  const PublishedQuantization& quantization_;
  const std::shared_ptr<DecodedRows> decoded_ = MakeDecodedRows();
  std::map<std::tuple<DType, bool, bool>, uint64_t> made_;  // has half scales, is ordered
};

}  // namespace

UnquantizedNotices Unquantize(const FolderTensors& tensors,
                              const PublishedQuantization& quantization) {
  return Unquantizer(tensors, quantization).Run();
}

}  // namespace hearth
