// The only request that the status page answers: GET or HEAD of a page that there is.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace weft::control {

struct Page {
  std::string type;  // Content-Type
  std::function<std::string()> content;
};
using Pages = std::map<std::string, Page>;  // by path

// The whole response to a request, whatever that holds; `request` reaches at least to the empty line after its head.
[[nodiscard]] std::string answer_request(const Pages& pages, const std::string& request);
// A response that only says why there is none: "431 Request Header Fields Too Large".
[[nodiscard]] std::string refuse_request(const char* status);

}  // namespace weft::control
