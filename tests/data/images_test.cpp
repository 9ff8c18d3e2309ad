// CIFAR-10 records, MNIST's folder, and operations on labelled images.
#include "weft/data/images.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <optional>

#include "tests/data/data_file_test.h"
#include "weft/data/cifar.h"
#include "weft/data/idx_images.h"
#include "weft/data/known_sets.h"
#include "weft/data/mnist.h"
#include "weft/data/part.h"

namespace weft::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kPlane = 32 * 32;

Bytes cifar_record(std::uint8_t label, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  Bytes record{label};
  for (const std::uint8_t value : {red, green, blue}) record.insert(record.end(), kPlane, value);
  return record;
}

// Sets WEFT_DATA and restores it afterwards.
class ScopedData {
 public:
  explicit ScopedData(const char* value) {
    if (const char* old = std::getenv("WEFT_DATA")) before_ = old;
    set(value);
  }
  ~ScopedData() { set(before_ ? before_->c_str() : nullptr); }
  ScopedData(const ScopedData&) = delete;
  ScopedData& operator=(const ScopedData&) = delete;

 private:
  static void set(const char* value) { value == nullptr ? unsetenv("WEFT_DATA") : setenv("WEFT_DATA", value, 1); }
  std::optional<std::string> before_;
};

using Cifar = DataFileTest;

TEST_F(Cifar, ReadsLabelsAndPlanes) {
  Bytes bytes = cifar_record(3, 10, 20, 30);
  Bytes second = cifar_record(9, 40, 50, 60);
  second[1 + 2 * kPlane + 5 * 32 + 7] = 61;  // blue, row 5, column 7
  bytes.insert(bytes.end(), second.begin(), second.end());
  const LabelledImages data = read_cifar10(write("batch.bin", bytes));
  EXPECT_EQ(data.size(), 2);
  EXPECT_EQ(data.images.sizes(), (std::vector<std::int64_t>{2, 3, 32, 32}));
  EXPECT_EQ(data.images.scalar_type(), at::kByte);
  EXPECT_TRUE(at::equal(data.labels, at::tensor({3, 9}, at::kLong)));
  for (int channel = 0; channel < 3; ++channel) {
    EXPECT_TRUE(data.images[0][channel].eq(10 * (channel + 1)).all().item<bool>());
  }
  EXPECT_EQ(data.images[1][2][5][7].item<int>(), 61);
  EXPECT_EQ(data.images[1].to(at::kLong).sum().item<std::int64_t>(), 1024 * 150 + 1);
}

TEST_F(Cifar, RejectsInvalidRecords) {
  const auto error = [&](const Bytes& bytes) { return data_error([&] { (void)read_cifar10(write("b", bytes)); }); };
  EXPECT_THAT(error({}), HasSubstr("at least one"));
  Bytes cut = cifar_record(1, 2, 3, 4);
  cut.pop_back();
  EXPECT_THAT(error(cut), AllOf(HasSubstr("record of 3073 bytes"), HasSubstr("0 records and 3072 extra bytes")));
  EXPECT_THAT(error(cifar_record(10, 0, 0, 0)), AllOf(HasSubstr("labels from 0 to 9"), HasSubstr("got 10")));
  EXPECT_THAT(data_error([&] { (void)read_cifar10(folder() / "absent.bin"); }), HasSubstr("absent.bin"));
}

class MnistFolder : public DataFileTest {
 protected:
  // Writes `train` training images and one test image of 2 x 2 pixels.
  void write_files(const std::string& sub, std::uint32_t train) const {
    write(sub + "train-images-idx3-ubyte", idx(0x08, {train, 2, 2}, Bytes(4 * train, 8)));
    write(sub + "train-labels-idx1-ubyte", idx(0x08, {train}, Bytes(train, 1)));
    write(sub + "t10k-images-idx3-ubyte", idx(0x08, {1, 2, 2}, {1, 2, 3, 4}));
    write(sub + "t10k-labels-idx1-ubyte", idx(0x08, {1}, {7}));
  }
};

TEST_F(MnistFolder, ReadsFourFiles) {
  write_files("", 3);
  const Mnist data = mnist(folder());
  EXPECT_EQ(data.train.images.sizes(), (std::vector<std::int64_t>{3, 1, 2, 2}));
  EXPECT_TRUE(at::equal(data.train.labels, at::tensor({1, 1, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(data.test.images, at::tensor({1, 2, 3, 4}, at::kByte).view({1, 1, 2, 2})));
  EXPECT_TRUE(at::equal(data.test.labels, at::tensor({7}, at::kLong)));
}

TEST_F(MnistFolder, RejectsLabelsThatDoNotMatch) {
  write_files("", 3);
  const auto error = [&] { return data_error([&] { (void)mnist(folder()); }); };
  write("train-labels-idx1-ubyte", idx(0x08, {2}, {1, 1}));
  EXPECT_THAT(error(), AllOf(HasSubstr("train-labels"), HasSubstr("3 images and 2 labels")));
  write("train-labels-idx1-ubyte", idx(0x08, {3}, {1, 10, 1}));
  EXPECT_THAT(error(), AllOf(HasSubstr("labels from 0 to 9"), HasSubstr("got 10")));
  write("train-labels-idx1-ubyte", idx(0x08, {3, 2, 2}, Bytes(12, 1)));  // images instead of labels
  EXPECT_THAT(error(), AllOf(HasSubstr("array of bytes with 1 dimension"), HasSubstr("[3, 2, 2]")));
  write_files("", 3);
  write("train-images-idx3-ubyte", idx(0x0C, {3}, Bytes(12, 1)));
  EXPECT_THAT(error(), AllOf(HasSubstr("array of bytes"), HasSubstr("Int of shape [3]")));
  std::filesystem::remove(folder() / "train-images-idx3-ubyte");
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte"));
}

TEST_F(MnistFolder, FindsCommonSubfolders) {
  for (const std::string sub : {"", "MNIST/", "mnist/"}) {
    write_files("case" + sub + "/" + sub, 1);
    const ScopedData data((folder() / ("case" + sub)).c_str());
    EXPECT_TRUE(std::filesystem::equivalent(mnist_folder(), folder() / ("case" + sub) / sub)) << sub;
    EXPECT_EQ(mnist().train.size(), 1);
  }
}

TEST_F(MnistFolder, DoesNotFallBackIfTheFolderIsGiven) {
  const ScopedData data(folder().c_str());
  EXPECT_THAT(data_error([] { (void)mnist_folder(); }), AllOf(HasSubstr("WEFT_DATA"), HasSubstr(folder().string())));
}

TEST_F(MnistFolder, ReportsMissingFilesFoldersAndAdvice) {
  write_files("MNIST/", 1);
  std::filesystem::remove(folder() / "MNIST" / "t10k-labels-idx1-ubyte");
  const auto error = data_error([&] { (void)mnist_set(folder()); });
  EXPECT_THAT(error, HasSubstr("'" + folder().string() + "/MNIST': missing t10k-labels-idx1-ubyte\n"));
  EXPECT_THAT(error, HasSubstr("'" + folder().string() + "/mnist': no such folder"));
  EXPECT_THAT(error, AllOf(HasSubstr("the given folder"), HasSubstr("curl")));
  EXPECT_THAT(data_error([&] { (void)cifar10_set(folder()); }),
              AllOf(HasSubstr("missing data_batch_1.bin test_batch.bin"), HasSubstr("cifar-10-binary.tar.gz")));
  const ScopedData nothing(nullptr);
  EXPECT_THAT(data_error([&] { (void)cifar10_set(); }),
              AllOf(HasSubstr("data_batch_1.bin"), HasSubstr("WEFT_DATA is not set")));
}

TEST_F(Cifar, ReadsSeveralFiles) {
  write("CIFAR10/data_batch_1.bin", cifar_record(1, 0, 0, 0));
  write("CIFAR10/data_batch_3.bin", cifar_record(3, 0, 0, 0));
  write("CIFAR10/test_batch.bin", cifar_record(7, 0, 0, 0));
  const KnownSet set = cifar10_set(folder());
  EXPECT_TRUE(at::equal(read_all(*set.train.open()).labels, at::tensor({1, 3}, at::kLong)));
  EXPECT_TRUE(at::equal(read_all(*set.test.open()).labels, at::tensor({7}, at::kLong)));
  EXPECT_THAT(set.notes, testing::ElementsAre(HasSubstr("data_batch_2.bin"), HasSubstr("data_batch_4.bin"),
                                              HasSubstr("data_batch_5.bin")));
}

// The sample contains every fifth of 500 images per digit. The sums were computed from the CSV source with awk.
TEST(Sample, IsFoundByTheLibrary) {
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    const ScopedData data(nothing);
    const Mnist sample = mnist();
    EXPECT_EQ(sample.train.images.sizes(), (std::vector<std::int64_t>{4000, 1, 28, 28}));
    EXPECT_EQ(sample.test.images.sizes(), (std::vector<std::int64_t>{1000, 1, 28, 28}));
    for (int digit = 0; digit < 10; ++digit) {
      EXPECT_EQ(sample.train.labels.eq(digit).sum().item<int>(), 400);
      EXPECT_EQ(sample.test.labels.eq(digit).sum().item<int>(), 100);
    }
    EXPECT_EQ(sample.train.images.to(at::kLong).sum().item<std::int64_t>(), 104'848'804);
    EXPECT_EQ(sample.test.images.to(at::kLong).sum().item<std::int64_t>(), 26'418'298);
  }
}

TEST(Images, SelectKeepsImagesAndLabelsTogether) {
  const LabelledImages all{at::arange(24, at::kByte).view({6, 1, 2, 2}), at::arange(6)};
  const LabelledImages some = all.select(at::tensor({4, 0, 4}, at::kLong));
  EXPECT_TRUE(at::equal(some.labels, at::tensor({4, 0, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(some.images.select(2, 0).select(2, 0).flatten(), at::tensor({16, 0, 16}, at::kByte)));
  EXPECT_EQ(all.select(at::zeros({0}, at::kLong)).size(), 0);
}

TEST_F(MnistFolder, ReadsEmptySets) {
  write("images", idx(0x08, {0, 4, 4, 4}, {}));
  write("labels", idx(0x08, {0}, {}));
  IdxImages source(folder() / "images", folder() / "labels", 10);
  const LabelledImages none = read_all(source);
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(unit_floats(none.images).sizes(), (std::vector<std::int64_t>{0, 4, 4, 4}));
}

TEST(Images, ConvertsToUnitFloats) {
  const at::Tensor bytes = at::tensor({0, 51, 255}, at::kByte);
  const at::Tensor floats = unit_floats(bytes);
  EXPECT_EQ(floats.scalar_type(), at::kFloat);
  EXPECT_TRUE(floats.allclose(at::tensor({0.0, 0.2, 1.0}, at::kFloat)));
  EXPECT_TRUE(at::equal(bytes, at::tensor({0, 51, 255}, at::kByte)));
}

TEST(Shard, ReturnsViewsThatCoverTheWhole) {
  const at::Tensor whole = at::arange(14).view({7, 2});
  EXPECT_TRUE(at::equal(shard(whole, 3, 0), at::arange(6).view({3, 2})));
  EXPECT_TRUE(at::equal(shard(whole, 3, 1), at::arange(6, 10).view({2, 2})));
  EXPECT_TRUE(at::equal(shard(whole, 3, 2), at::arange(10, 14).view({2, 2})));
  EXPECT_TRUE(at::equal(shard(whole, 2, 1, 1), whole.select(1, 1).unsqueeze(1)));
  EXPECT_EQ(shard(whole, 9, 8).sizes(), (std::vector<std::int64_t>{0, 2}));
  EXPECT_TRUE(shard(whole, 3, 1).is_alias_of(whole));
  EXPECT_THROW((void)shard(whole, 3, 3), std::invalid_argument);
}

TEST(Shard, KeepsImagesAndLabelsTogether) {
  const LabelledImages all{at::arange(20, at::kByte).view({5, 1, 2, 2}), at::arange(5)};
  const LabelledImages second = shard(all, 2, 1);
  EXPECT_TRUE(at::equal(second.labels, at::tensor({3, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(second.images.flatten(), at::arange(12, 20, at::kByte)));
}

}  // namespace
}  // namespace weft::data
