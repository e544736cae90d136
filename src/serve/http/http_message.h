// The heads of HTTP/1.1 messages (RFC 9110, RFC 9112): what the server needs of a request's, and
// the text of a response's.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <string>
#include <string_view>

#include "serve/reply.h"

namespace hearth::serve {

// The head of a request.
struct RequestHead {
  std::string method;
  std::string target;  // path and query
  std::string authorization;
  std::string api_key;  // the same key, as other clients send it
  std::string host;
  std::string origin;  // of a page that asks
  // Of a browser that asks before a page's request: its method and the fields of its head.
  std::string asked_method, asked_fields;

  // Of a request of HEAD, which is answered like GET, but without the body.
  bool is_head() const { return method == "HEAD"; }
  // The method that it is answered like.
  std::string answered_method() const { return is_head() ? "GET" : method; }
  // Whether a browser only asks whether a page may send a request (the Fetch standard's preflight).
  bool is_preflight() const {
    return method == "OPTIONS" && !origin.empty() && !asked_method.empty();
  }
};

using HttpRequestHead = boost::beast::http::request_header<boost::beast::http::fields>;

// A target that names the host ("http://host/path") is taken apart.
RequestHead ReadRequestHead(const HttpRequestHead& message);

// Throws RequestError where it says more than one thing, or what is not spoken here: 400 where the
// host is not named once, 501 for transfer codings but chunked, 415 for encoded bodies, 417 for
// what it expects but "100-continue". What follows such a head is no request.
void CheckRequestHead(const HttpRequestHead& message);

// Whether it waits to be told to send its body.
bool ExpectsContinue(const HttpRequestHead& message);

// The path of a target, without its query, "%20" and the like decoded (RFC 3986 section 2.1).
std::string PathOfTarget(const std::string& target);
// A value of its query, decoded likewise: "b" of "a" in "/path?a=b&c=d"; empty where there is none.
std::string QueryOfTarget(const std::string& target, std::string_view name);
// Whether a Host, with or without a port, is this machine for sure: "localhost" or an address of
// it; a name that only looks like an address may be anybody's.
bool IsThisMachine(const std::string& host);

// With the empty line.
std::string ResponseHead(const Response& response, bool keep_alive);
// The head of a stream of server-sent events; `headers` are added to it.
std::string StreamHead(bool is_chunked, bool keep_alive, const HeaderFields& headers);

}  // namespace hearth::serve
