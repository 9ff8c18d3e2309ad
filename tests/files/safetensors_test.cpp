// Round trips and damaged files of the safetensors reader and writer.
#include "weft/files/safetensors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/temporary_folder.h"

namespace weft::files {
namespace {

TEST(SafetensorsTest, RoundTripsValuesTypesAndMetadata) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "roundtrip.safetensors";
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<double> b{0.5};
  write_safetensors(file, {{"a", "F32", {2, 3}, a.data()}, {"b", "F64", {}, b.data()}, {"c", "F32", {0, 4}, nullptr}},
                    {{"key", "value"}});
  const SafetensorsFile read(file);
  EXPECT_EQ(read.tensors().size(), 3U);
  EXPECT_EQ(read.metadata().at("key"), "value");
  std::vector<float> back(6);
  read.read("a", back.data(), 24);
  EXPECT_EQ(back, a);
  EXPECT_THROW(read.read("a", back.data(), 20), SafetensorsError);
  EXPECT_THROW(read.read("z", back.data(), 24), SafetensorsError);
}

// Truncated or modified files raise an error or stay self-consistent; they never cause out-of-bounds reads.
TEST(SafetensorsTest, DetectsDamage) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "damaged.safetensors";
  const std::vector<float> a{1, 2, 3, 4};
  write_safetensors(file, {{"a", "F32", {4}, a.data()}}, {});
  std::ifstream stream(file, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(stream)), {});
  std::mt19937 random(5);
  int rejected = 0;
  for (int i = 0; i < 500; ++i) {
    std::string bad = good;
    if (i % 2 == 0) bad.resize(random() % good.size());
    if (i % 2 == 1) bad[random() % (good.size() - 16)] = static_cast<char>(random());
    std::ofstream(file, std::ios::binary) << bad;
    try {
      const SafetensorsFile damaged(file);
      for (const auto& [name, info] : damaged.tensors()) {
        std::vector<char> bytes(static_cast<std::size_t>(info.end - info.begin));
        damaged.read(name, bytes.data(), info.end - info.begin);
      }
    } catch (const SafetensorsError&) {
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 400);
}

}  // namespace
}  // namespace weft::files
