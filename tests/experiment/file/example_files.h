// Helpers for tests that modify the files of examples/experiments and check the error messages.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "weft/experiment/file/load.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {

inline const std::filesystem::path kExamples = WEFT_EXAMPLE_EXPERIMENTS;

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(kExamples / file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

inline std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_experiment(text, "file.yaml"));
  } catch (const ExperimentError& error) {
    return error.what();
  }
  return "";
}

}  // namespace weft::experiment
