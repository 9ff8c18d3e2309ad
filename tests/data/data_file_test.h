// Fixture for tests that read data files: writes files to a temporary folder and checks errors about them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "weft/data/file.h"

namespace weft::data {

using Bytes = std::vector<std::uint8_t>;

class DataFileTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const Bytes& bytes) const {
    const auto path = folder() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return path;
  }

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  weft::TemporaryFolder folder_;
};

// Returns the message of the DataError that `function` throws.
template <typename Function>
std::string data_error(Function function) {
  try {
    function();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no DataError";
}

// Returns an IDX file: the header for a type and sizes, followed by `data`.
inline Bytes idx(std::uint8_t type, const std::vector<std::uint32_t>& shape, const Bytes& data) {
  Bytes bytes{0, 0, type, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t size : shape) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(size >> shift));
  }
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

}  // namespace weft::data
