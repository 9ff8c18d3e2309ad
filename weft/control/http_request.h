// Answers HTTP requests: GET and HEAD of existing pages.
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

// Returns the complete response to any request. `request` must contain the empty line after the header.
[[nodiscard]] std::string answer_request(const Pages& pages, const std::string& request);
// Returns a response with only an error status such as "431 Request Header Fields Too Large".
[[nodiscard]] std::string refuse_request(const char* status);

}  // namespace weft::control
