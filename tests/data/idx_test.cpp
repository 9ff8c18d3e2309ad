// IDX files of every type and shape, and damaged files.
#include "weft/data/idx.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/data/data_file_test.h"

namespace weft::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Idx : public DataFileTest {
 protected:
  at::Tensor read(const Bytes& bytes) const { return read_idx(write("array", bytes)); }
  std::string error(const Bytes& bytes) const {
    return data_error([&] { (void)read(bytes); });
  }
};

void expect_equal(const at::Tensor& got, const at::Tensor& expected) {
  EXPECT_EQ(got.scalar_type(), expected.scalar_type());
  EXPECT_EQ(got.sizes(), expected.sizes());
  EXPECT_TRUE(at::equal(got, expected)) << got;
}

TEST_F(Idx, ReadsBytes) {
  expect_equal(read(idx(0x08, {3}, {0, 7, 255})), at::tensor({0, 7, 255}, at::kByte));
  expect_equal(read(idx(0x09, {3}, {0, 127, 0xFF})), at::tensor({0, 127, -1}, at::kChar));
}

TEST_F(Idx, ReadsBigEndianIntegers) {
  expect_equal(read(idx(0x0B, {3}, {0x01, 0x02, 0xFF, 0xFE, 0x80, 0x00})), at::tensor({258, -2, -32768}, at::kShort));
  expect_equal(read(idx(0x0C, {2}, {0x01, 0x02, 0x03, 0x04, 0xFF, 0xFF, 0xFF, 0xFD})),
               at::tensor({16'909'060, -3}, at::kInt));
}

TEST_F(Idx, ReadsBigEndianFloats) {
  expect_equal(read(idx(0x0D, {2}, {0x3F, 0xC0, 0, 0, 0xC2, 0x28, 0, 0})), at::tensor({1.5, -42.0}, at::kFloat));
  expect_equal(read(idx(0x0E, {1}, {0xBF, 0xD5, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55})),
               at::tensor({-1.0 / 3}, at::kDouble));
}

TEST_F(Idx, KeepsNonFiniteNumbers) {
  const at::Tensor x = read(idx(0x0D, {3}, {0x7F, 0xC0, 0, 1, 0x7F, 0x80, 0, 0, 0xFF, 0x80, 0, 0}));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(x.const_data_ptr<float>()[0]), 0x7FC00001U);
  EXPECT_EQ(x.const_data_ptr<float>()[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(x.const_data_ptr<float>()[2], -std::numeric_limits<float>::infinity());
}

TEST_F(Idx, ReadsShapesInRowMajorOrder) {
  expect_equal(read(idx(0x08, {2, 3}, {1, 2, 3, 4, 5, 6})), at::tensor({1, 2, 3, 4, 5, 6}, at::kByte).view({2, 3}));
  expect_equal(read(idx(0x08, {1, 2, 1, 3, 1}, {1, 2, 3, 4, 5, 6})),
               at::tensor({1, 2, 3, 4, 5, 6}, at::kByte).view({1, 2, 1, 3, 1}));
  expect_equal(read(idx(0x08, {}, {9})), at::tensor({9}, at::kByte).squeeze());  // no dimensions: a scalar
}

TEST_F(Idx, ReadsSizesAboveOneByte) {
  const at::Tensor x = read(idx(0x08, {300, 70'000 / 300}, Bytes(300 * 233, 5)));
  EXPECT_EQ(x.sizes(), (std::vector<std::int64_t>{300, 233}));
  EXPECT_EQ(x.sum().item<std::int64_t>(), 5 * 300 * 233);
}

TEST_F(Idx, ReadsEmptyArrays) {
  EXPECT_EQ(read(idx(0x0E, {0}, {})).sizes(), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(read(idx(0x08, {0, 28, 28}, {})).sizes(), (std::vector<std::int64_t>{0, 28, 28}));
}

TEST_F(Idx, RejectsMissingFiles) {
  EXPECT_THAT(data_error([&] { (void)read_idx(folder() / "absent"); }),
              AllOf(HasSubstr("absent"), HasSubstr("exists")));
  EXPECT_THAT(data_error([&] { (void)read_idx(folder()); }), HasSubstr("not a regular file"));
  EXPECT_THAT(data_error([&] { (void)read_idx(""); }), HasSubstr("neither"));
}

// `printf '\0\0\x08\1\0\0\0\3\1\2\3' | gzip -n`
const Bytes kGzipped{0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x63, 0x60, 0xe0, 0x60, 0x64, 0x60,
                     0x60, 0x60, 0x66, 0x64, 0x62, 0x06, 0x00, 0x8b, 0xe5, 0xbd, 0xa4, 0x0b, 0x00, 0x00, 0x00};

TEST_F(Idx, ReadsGzippedFiles) {
  expect_equal(read(kGzipped), at::tensor({1, 2, 3}, at::kByte));
  write("packed.gz", kGzipped);  // also found without the suffix
  expect_equal(read_idx(folder() / "packed"), at::tensor({1, 2, 3}, at::kByte));
  write("packed", idx(0x08, {1}, {9}));  // the plain file takes precedence
  expect_equal(read_idx(folder() / "packed"), at::tensor({9}, at::kByte));
}

TEST_F(Idx, RejectsDamagedGzipFiles) {
  for (std::size_t length = 3; length < kGzipped.size(); ++length) {
    EXPECT_THAT(error(Bytes(kGzipped.begin(), kGzipped.begin() + static_cast<std::ptrdiff_t>(length))),
                HasSubstr("cannot decompress"))
        << length;
  }
  Bytes flipped = kGzipped;
  flipped[flipped.size() - 6] ^= 1;  // flips a bit of the checksum
  EXPECT_THAT(error(flipped), HasSubstr("cannot decompress"));
}

TEST_F(Idx, RejectsWrongMagicNumbers) {
  EXPECT_THAT(error({0, 1, 8, 1, 0, 0, 0, 1, 7}), AllOf(HasSubstr("an IDX file"), HasSubstr("the bytes 0 1 8 1")));
  EXPECT_THAT(error({1, 0, 8, 1, 0, 0, 0, 1, 7}), HasSubstr("an IDX file"));
  for (const std::uint8_t type : {0x00, 0x07, 0x0A, 0x0F, 0xFF}) {
    EXPECT_THAT(error(idx(type, {1}, {7})), HasSubstr("a type code of 8, 9, 11, 12, 13 or 14")) << int{type};
  }
}

TEST_F(Idx, RejectsTruncatedFiles) {
  EXPECT_THAT(error({}), HasSubstr("4 bytes missing"));
  EXPECT_THAT(error({0, 0, 8}), HasSubstr("1 bytes missing"));
  EXPECT_THAT(error({0, 0, 8, 2, 0, 0, 0, 1, 0}), HasSubstr("3 bytes missing"));
  EXPECT_THAT(error(idx(0x08, {2, 3}, {1, 2, 3, 4, 5})),
              AllOf(HasSubstr("truncated"), HasSubstr("2 x 3 items"), HasSubstr("5 bytes of data")));
  EXPECT_THAT(error(idx(0x0D, {2}, {0, 0, 0, 0, 0, 0, 0})), HasSubstr("truncated"));
}

TEST_F(Idx, RejectsFilesThatAreTooLong) {
  EXPECT_THAT(error(idx(0x08, {2}, {1, 2, 3})), AllOf(HasSubstr("too long"), HasSubstr("3 bytes of data")));
  EXPECT_THAT(error(idx(0x0D, {1}, {0, 0, 0, 0, 0})), HasSubstr("too long"));
  EXPECT_THAT(error(idx(0x08, {0}, {1})), HasSubstr("too long"));
}

// The reader checks the size of the file before it allocates memory.
TEST_F(Idx, RejectsHugeSizes) {
  EXPECT_THAT(error(idx(0x0E, {4'294'967'295U, 4'294'967'295U, 4'294'967'295U}, {1, 2})), HasSubstr("truncated"));
  EXPECT_THAT(error(idx(0x0E, std::vector<std::uint32_t>(255, 4'000'000'000U), {})), HasSubstr("truncated"));
  EXPECT_THAT(error(idx(0x08, {4'294'967'295U}, {})), HasSubstr("4294967295 items"));
}

}  // namespace
}  // namespace weft::data
