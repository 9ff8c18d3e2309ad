// Tests that unusable data files are rejected before training, with their names.
#include "weft/experiment/training/dataset.h"

#include <gmock/gmock.h>

#include <fstream>

#include "weft/data/file.h"
#include "weft/experiment/file/description.h"
#include "weft/experiment/file/load.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

struct Pictures {
  std::uint8_t count = 4;
  std::uint8_t size = 28;  // rows and columns
};

void write_idx(const fs::path& file, const std::vector<std::uint8_t>& shape) {
  std::string bytes{0, 0, 8, static_cast<char>(shape.size())};
  std::size_t cells = 1;
  for (const std::uint8_t size : shape) {
    bytes += {0, 0, 0, static_cast<char>(size)};
    cells *= size;
  }
  std::ofstream(file, std::ios::binary) << bytes << std::string(cells, 1);
}

// Returns the error for a data set with such files.
std::string error_of(const Pictures& train, const Pictures& test, const std::string& more = "") {
  const fs::path folder = fs::path(testing::TempDir()) / "weft-dataset-test";
  fs::create_directories(folder);
  for (const auto& [name, pictures] : {std::pair{"train", train}, {"t10k", test}}) {
    write_idx(folder / (std::string(name) + "-images-idx3-ubyte"), {pictures.count, pictures.size, pictures.size});
    write_idx(folder / (std::string(name) + "-labels-idx1-ubyte"), {pictures.count});
  }
  const Experiment experiment = parse_experiment("data: {set: mnist, folder: " + folder.string() + more +
                                                     "}\nmodel:\n  batch_size: 2\n  layers:\n    - linear: 10\n",
                                                 "f.yaml");
  std::string text;
  try {
    static_cast<void>(open_dataset(experiment, {}, 0, [](const std::string&) {}));
  } catch (const data::DataError& error) {
    text = error.what();
  }
  fs::remove_all(folder);
  return text;
}

TEST(DatasetTest, RejectsImagesOfAnotherSize) {
  EXPECT_EQ(error_of({}, {}), "");
  EXPECT_THAT(error_of({.size = 16}, {}), AllOf(HasSubstr("expected 1 map of 28 x 28"),
                                                HasSubstr("train-images-idx3-ubyte"), HasSubstr("1 map of 16 x 16")));
  EXPECT_THAT(error_of({}, {.size = 30}), AllOf(HasSubstr("t10k-images-idx3-ubyte"), HasSubstr("1 map of 30 x 30")));
}

TEST(DatasetTest, RejectsEmptySets) {
  EXPECT_THAT(error_of({.count = 0}, {}),
              AllOf(HasSubstr("contains no images to train with"), HasSubstr("train-images-idx3-ubyte")));
  EXPECT_THAT(error_of({}, {.count = 0}),
              AllOf(HasSubstr("contains no images to test with"), HasSubstr("t10k-images-idx3-ubyte")));
}

}  // namespace
}  // namespace weft::experiment
