// Cached parts: valid caches are used; stale, foreign, damaged and old ones are rebuilt and reported.
#include "weft/data/cache.h"

#include <ATen/ops/equal.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/data/data_file_test.h"
#include "weft/data/cache_file.h"
#include "weft/data/idx_images.h"
#include "weft/data/synthetic.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Cache : public DataFileTest {
 protected:
  Cache() { write_set(1); }

  void write_set(std::uint8_t pixel) const {
    write("images", idx(0x08, {6, 4, 4}, Bytes(96, pixel)));
    write("labels", idx(0x08, {6}, {0, 1, 2, 3, 4, 5}));
  }

  ImageOrigin origin() {
    const fs::path images = folder() / "images", labels = folder() / "labels";
    return {"set", "train", {images, labels}, [=, this] {
              ++opened_;
              return std::make_unique<IdxImages>(images, labels, 10);
            }};
  }

  ImagePart load(const PartOptions& options = {}) { return load(origin(), options); }
  ImagePart load(const ImageOrigin& from, const PartOptions& options) {
    messages_.clear();
    return load_part(from, options, {path_, [this](const std::string& text) { messages_.push_back(text); }});
  }

  std::string bytes() const {
    std::ostringstream text;
    text << std::ifstream(file_, std::ios::binary).rdbuf();
    return text.str();
  }
  void put(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }

  std::string path_ = (folder() / "cache" / "part_{rank}_of_{size}.bin").string();
  fs::path file_ = folder() / "cache" / "part_0_of_1-train.bin";
  int opened_ = 0;
  std::vector<std::string> messages_;
};

void expect_same(const ImagePart& got, const ImagePart& expected) {
  EXPECT_TRUE(at::equal(got.kept.images, expected.kept.images));
  EXPECT_TRUE(at::equal(got.kept.labels, expected.kept.labels));
  EXPECT_TRUE(at::equal(got.numbers, expected.numbers));
  EXPECT_EQ(got.whole, expected.whole);
  EXPECT_EQ(got.tile, expected.tile);
}

TEST_F(Cache, AvoidsReadingTheSourceAgain) {
  for (const Split& split : {Split(), Split::into_tiles(2, 2), Split::into_shards(3)}) {
    const PartOptions options{.split = split, .rank = split.ranks() - 1, .order = {.size = 3}};
    opened_ = 0;
    const ImagePart first = load(options);
    const ImagePart second = load(options);
    EXPECT_EQ(opened_, 1);
    EXPECT_THAT(messages_, IsEmpty());
    expect_same(second, first);
  }
}

TEST_F(Cache, StoresEmptyParts) {
  const PartOptions options{.split = Split::into_shards(9), .rank = 8, .order = {.size = 8}};
  expect_same(load(options), load(options));
  EXPECT_EQ(opened_, 1);
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(Cache, IsRebuiltIfTheSourceChanges) {
  (void)load();
  write_set(2);  // files of the same size
  EXPECT_EQ(load().kept.images[0][0][0][0].item<int>(), 2);
  EXPECT_THAT(messages_, ElementsAre(AllOf(HasSubstr("rebuilding"), HasSubstr("images' has changed"))));
  (void)load();
  EXPECT_EQ(opened_, 2);
}

TEST_F(Cache, StaysValidIfTheSourceIsTouchedOrMoved) {
  (void)load();
  write_set(1);
  (void)load();
  fs::create_directory(folder() / "moved");
  for (const char* name : {"images", "labels"}) fs::rename(folder() / name, folder() / "moved" / name);
  ImageOrigin moved = origin();
  moved.files = {folder() / "moved" / "images", folder() / "moved" / "labels"};
  (void)load(moved, {});
  EXPECT_EQ(opened_, 1);
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(Cache, IsRebuiltForAnotherSplitOrderOrSample) {
  (void)load();
  for (const PartOptions& options :
       {PartOptions{.order = {.size = 7}}, PartOptions{.order = {.seed = 7}}, PartOptions{.order = {.shuffle = false}},
        PartOptions{.sample_pct = 50}, PartOptions{.sample_seed = 1}}) {
    (void)load(options);
    EXPECT_THAT(messages_, ElementsAre(HasSubstr("expected 'set train"))) << options.describe();
  }
  // A file copied from another rank, or left over from another grid with the same number of ranks.
  const PartOptions rows{.split = Split::into_tiles(2, 1), .rank = 1};
  (void)load(rows);
  fs::copy_file(folder() / "cache" / "part_1_of_2-train.bin", folder() / "cache" / "part_0_of_2-train.bin");
  const ImagePart first = load({.split = Split::into_tiles(2, 1), .rank = 0});
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("rank 1 of 1 shard of 2 x 1 tiles")));
  EXPECT_EQ(first.tile.ranges[0].begin, 0);
  (void)load({.split = Split::into_tiles(1, 2), .rank = 1});
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("1 x 2 tiles")));
}

TEST_F(Cache, IsRebuiltForAnotherSet) {
  (void)load();
  const ImagePart toys = load(synthetic_origin({.count = 2}, "train"), {});
  EXPECT_EQ(toys.whole.count, 2);
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("it contains 'set train")));
  ImageOrigin renamed = origin();
  (void)load(renamed, {});
  fs::copy_file(folder() / "images", folder() / "other");
  renamed.files[0] = folder() / "other";
  (void)load(renamed, {});
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("not from")));
}

// Truncates the file at every length and flips every byte.
TEST_F(Cache, DetectsDamage) {
  (void)load();
  const std::string whole = bytes();
  const auto read = [&] { return read_cache(file_, [](const CacheSource&) {}); };
  EXPECT_NO_THROW(read());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(whole.substr(0, length));
    ASSERT_THROW(read(), StaleCache) << "truncated at " << length;
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x80);
    put(damaged);
    ASSERT_THROW(read(), StaleCache) << "byte " << i;
  }
}

TEST_F(Cache, IsRebuiltIfDamaged) {
  const ImagePart right = load();
  const std::string whole = bytes();
  for (const std::string& damaged :
       {std::string(), whole.substr(0, 20), whole.substr(0, whole.size() - 1), whole + "x"}) {
    put(damaged);
    expect_same(load(), right);
    EXPECT_EQ(messages_.size(), 1U);
    EXPECT_EQ(bytes(), whole);
  }
}

TEST_F(Cache, IsRebuiltIfItHasAnOlderFormat) {
  (void)load();
  std::string old = bytes();
  old[7] = '1';
  put(old);
  (void)load();
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("another format version")));
}

TEST_F(Cache, IsOptionalIfItCannotBeWritten) {
  write("file", {1});
  path_ = (folder() / "file" / "part_{rank}.bin").string();
  EXPECT_EQ(load().kept.size(), 6);
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("continuing without a cache")));
}

TEST_F(Cache, RequiresTheSource) {
  (void)load();
  fs::remove(folder() / "labels");
  EXPECT_THAT(data_error([&] { (void)load(); }), AllOf(HasSubstr("labels"), HasSubstr("does not exist")));
}

TEST_F(Cache, ExpandsPathPatterns) {
  EXPECT_EQ(cache_path("d/m_{rank}_{size}.dat", "test", 3, 16), "d/m_3_16-test.dat");
  EXPECT_EQ(cache_path("m{rank}", "", 0, 1), "m0");
  EXPECT_EQ(cache_path("m", "train", 0, 1), "m-train");
  EXPECT_THROW((void)cache_path("m", "train", 0, 2), std::invalid_argument);
  EXPECT_THAT([] { (void)cache_path("m{rnak}", "", 0, 2); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("unknown placeholder {rnak}")));
  EXPECT_EQ(cache_path("open{rank}{", "", 0, 1), "open0{");
}

}  // namespace
}  // namespace weft::data
