#include "hub/system_libraries.h"

#include "base/error.h"
#include "base/system_library.h"

namespace hearth::hub {
namespace {

// The first that loads is taken. The GnuTLS flavour of libcurl has the same functions.
constexpr const char* kCurlNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
constexpr const char* kCryptoNames[] = {"libcrypto.so.3", "libcrypto.so.1.1"};

constexpr const char* kPurpose = "fetching models";

CurlFunctions FindCurl() {
  const SystemLibrary library(kCurlNames, kPurpose, "libcurl4");
  decltype(&::curl_global_init) global_init = nullptr;
  library.Find("curl_global_init", global_init);
  CurlFunctions curl;
  library.Find("curl_easy_init", curl.init);
  library.Find("curl_easy_setopt", curl.set_option);
  library.Find("curl_easy_perform", curl.perform);
  library.Find("curl_easy_getinfo", curl.get_info);
  library.Find("curl_easy_strerror", curl.describe);
  library.Find("curl_easy_reset", curl.reset);
  library.Find("curl_easy_cleanup", curl.cleanup);
  const CURLcode code = global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) {
    throw Error(ErrorCode::kUnsupported, "libcurl", curl.describe(code));
  }
  return curl;
}

DigestFunctions FindDigests() {
  const SystemLibrary library(kCryptoNames, kPurpose, "libssl3");
  DigestFunctions digests;
  library.Find("EVP_MD_CTX_new", digests.make);
  library.Find("EVP_MD_CTX_free", digests.free);
  library.Find("EVP_sha256", digests.sha256);
  library.Find("EVP_sha1", digests.sha1);
  library.Find("EVP_DigestInit_ex", digests.init);
  library.Find("EVP_DigestUpdate", digests.update);
  library.Find("EVP_DigestFinal_ex", digests.final);
  return digests;
}

}  // namespace

const CurlFunctions& LoadCurl() {
  static const CurlFunctions kCurl = FindCurl();
  return kCurl;
}

const DigestFunctions& LoadDigests() {
  static const DigestFunctions kDigests = FindDigests();
  return kDigests;
}

}  // namespace hearth::hub
