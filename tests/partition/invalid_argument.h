// Returns the message of the std::invalid_argument that a call throws.
#pragma once

#include <stdexcept>
#include <string>

namespace weft::partition {

template <typename Function>
std::string invalid_argument_text(Function function) {
  try {
    function();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no std::invalid_argument";
}

}  // namespace weft::partition
