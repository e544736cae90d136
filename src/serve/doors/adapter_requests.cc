#include "serve/doors/adapter_requests.h"

#include <fmt/format.h>

#include "serve/request_error.h"

namespace hearth::serve {
namespace {

constexpr int64_t kMostAdapters = 1024;
constexpr double kMostScale = 1000;

std::vector<api::AdapterScale> ReadScales(const Json& list, const std::string& path) {
  std::vector<api::AdapterScale> scales;
  for (const Json& entry : list) {
    Fields inner(entry, fmt::format("{}[{}]", path, scales.size()));
    const auto id = inner.TakeInteger("id", 0, kMostAdapters - 1);
    const auto scale = inner.TakeNumber("scale", -kMostScale, kMostScale);
    if (!id) inner.Fail("id", "the number of an adapter");
    if (!scale) inner.Fail("scale", "a number");
    inner.RefuseRest();
    scales.push_back({*id, static_cast<float>(*scale)});
  }
  return scales;
}

}  // namespace

std::optional<std::vector<api::AdapterScale>> TakeAdapters(Fields& fields) {
  const Json* const list = fields.Take("lora");
  if (list == nullptr) return std::nullopt;
  if (!list->is_array() || std::ssize(*list) > kMostAdapters) {
    fields.Fail("lora", R"(a list of objects like {"id": 0, "scale": 1.0})");
  }
  return ReadScales(*list, fields.PathOf("lora"));
}

std::vector<api::AdapterScale> ReadAdapters(std::string_view body) {
  const Json list = ParseBody(body);
  if (!list.is_array() || std::ssize(list) > kMostAdapters) {
    throw RequestError(Status::kBadRequest,
                       R"(the body: expected a list of objects like {"id": 0, "scale": 1.0})", "",
                       "invalid_value");
  }
  return ReadScales(list, "");
}

}  // namespace hearth::serve
