// Enumerators that Python passes by name.
#pragma once

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace weft {

// Returns the enumerator that the value of `key` names. Throws ValueError for unknown names.
template <class Key, class Enum>
Enum named(const pybind11::dict& description, const char* key, std::initializer_list<std::pair<Key, Enum>> names) {
  const auto value = description[key].cast<Key>();
  for (const auto& [name, enumerator] : names) {
    if (name == value) return enumerator;
  }
  throw pybind11::value_error("weft: " + std::string(key) + ": unknown value " +
                              pybind11::repr(description[key]).cast<std::string>());
}

}  // namespace weft
