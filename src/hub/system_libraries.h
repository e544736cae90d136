// libcurl and libcrypto, loaded when a model is fetched. They are not linked, because a command's
// memory limit covers all libraries that the program links.
#pragma once

#include <curl/curl.h>
#include <openssl/evp.h>

namespace hearth::hub {

struct CurlFunctions {
  decltype(&::curl_easy_init) init = nullptr;
  decltype(&::curl_easy_setopt) set_option = nullptr;
  decltype(&::curl_easy_perform) perform = nullptr;
  decltype(&::curl_easy_getinfo) get_info = nullptr;
  decltype(&::curl_easy_strerror) describe = nullptr;
  decltype(&::curl_easy_reset) reset = nullptr;
  decltype(&::curl_easy_cleanup) cleanup = nullptr;
};

struct DigestFunctions {
  decltype(&::EVP_MD_CTX_new) make = nullptr;
  decltype(&::EVP_MD_CTX_free) free = nullptr;
  decltype(&::EVP_sha256) sha256 = nullptr;
  decltype(&::EVP_sha1) sha1 = nullptr;
  decltype(&::EVP_DigestInit_ex) init = nullptr;
  decltype(&::EVP_DigestUpdate) update = nullptr;
  decltype(&::EVP_DigestFinal_ex) final = nullptr;
};

// Return the functions of the library, which stays loaded. Throw Error(kUnsupported), naming the
// package to install, where it cannot be loaded. Thread-safe.
const CurlFunctions& LoadCurl();
const DigestFunctions& LoadDigests();

}  // namespace hearth::hub
