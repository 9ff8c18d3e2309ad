// Collects the mistakes of an experiment file, to report all of them at once.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/experiment/file/document.h"

namespace weft::experiment {

// An error that the user fixes by changing the experiment file, the options or the run folder.
class ExperimentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Problems {
 public:
  // `overrides`: the assignments that negative lines refer to; see apply_override().
  explicit Problems(std::string file, std::vector<std::string> overrides = {})
      : file_(std::move(file)), overrides_(std::move(overrides)) {}

  // Adds a mistake. Duplicates are ignored.
  void add(const Place& place, const std::string& text);
  // Adds a note for the user: the file is valid, but a part of it has another effect than the user may expect.
  void note(const Place& place, const std::string& text);
  // Returns the notes as lines "file:line:column: note: text".
  [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return notes_; }
  [[nodiscard]] bool empty() const noexcept { return lines_.empty(); }
  // Returns whether further mistakes would not be shown.
  [[nodiscard]] bool full() const noexcept;
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  // Throws ExperimentError with one line "file:line:column: text" per mistake, in file order, if there are any.
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
  std::vector<std::string> notes_;
};

// Returns "file:3:14: text", or "file: text" for an unknown location.
[[nodiscard]] std::string located(const std::string& file, const Place& place, const std::string& text);

}  // namespace weft::experiment
