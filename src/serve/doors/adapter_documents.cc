#include "serve/doors/adapter_documents.h"

#include "serve/doors/adapter_requests.h"
#include "serve/json_fields.h"

namespace hearth::serve {

std::string AdaptersDocument(api::Model& model, std::string_view /*body*/) {
  Json list = Json::array();
  for (const api::AdapterInfo& adapter : model.adapters()) {
    list.push_back({{"id", list.size()}, {"path", adapter.path}, {"scale", adapter.scale}});
  }
  return JsonText(list);
}

std::string SetAdaptersDocument(api::Model& model, std::string_view body) {
  model.SetAdapterScales(ReadAdapters(body));
  return JsonText({{"success", true}});
}

}  // namespace hearth::serve
