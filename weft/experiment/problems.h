// What is wrong with an experiment's file: every mistake with its place, all of them at once.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/experiment/document.h"

namespace weft::experiment {

// A file, or a value in it, that describes no experiment. Not the program's mistake: the file has to change.
class ExperimentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Problems {
 public:
  // `overrides`: what places of a line below 0 mean; see apply_override().
  explicit Problems(std::string file, std::vector<std::string> overrides = {})
      : file_(std::move(file)), overrides_(std::move(overrides)) {}

  // "expected ..., got ...".
  void add(const Place& place, const std::string& text);
  [[nodiscard]] bool empty() const noexcept { return lines_.empty(); }
  // Nobody will be told of more; who reads on only takes time.
  [[nodiscard]] bool full() const noexcept;
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  // "file:line:column: text" for each, in the order of the file. Throws ExperimentError if there are any.
  void throw_if_any() const;

 private:
  struct Line {
    Place place;
    std::string text;
  };
  [[nodiscard]] std::string shown(const Line& line) const;

  std::string file_;
  std::vector<std::string> overrides_;
  std::vector<Line> lines_;
};

// "file:3:14: text", without the place where there is none.
[[nodiscard]] std::string located(const std::string& file, const Place& place, const std::string& text);

}  // namespace weft::experiment
