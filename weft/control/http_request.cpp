#include "weft/control/http_request.h"

namespace weft::control {
namespace {

std::string response(const char* status, const std::string& type, const std::string& content, bool with_body) {
  std::string text = std::string("HTTP/1.1 ") + status + "\r\nContent-Type: " + type +
                     "\r\nContent-Length: " + std::to_string(content.size()) +
                     "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                     "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\r\n";
  return with_body ? text + content : text;
}

}  // namespace

std::string refuse_request(const char* status) {
  return response(status, "text/plain", std::string(status) + "\n", true);
}

std::string answer_request(const Pages& pages, const std::string& request) {
  const std::string line = request.substr(0, request.find("\r\n"));
  const auto first = line.find(' ');
  const auto second = line.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos || line.compare(second + 1, 5, "HTTP/") != 0) {
    return refuse_request("400 Bad Request");
  }
  const std::string method = line.substr(0, first);
  if (method != "GET" && method != "HEAD") return refuse_request("405 Method Not Allowed");
  const std::string target = line.substr(first + 1, second - first - 1);
  const auto found = pages.find(target.substr(0, target.find('?')));
  if (found == pages.end()) return refuse_request("404 Not Found");
  return response("200 OK", found->second.type, found->second.content(), method == "GET");
}

}  // namespace weft::control
