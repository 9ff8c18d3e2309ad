// Atomic replacement of files, checksums, and change detection.
#include "weft/files/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "tests/temporary_folder.h"
#include "weft/files/checksum.h"
#include "weft/files/error.h"
#include "weft/files/fingerprint.h"

namespace weft::files {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] static std::string content(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  [[nodiscard]] std::int64_t entries() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Files, AppearsOnlyAtCommit) {
  put(path("a"), "old");
  AtomicFile file(path("a"));
  file.write("new and ");
  file.write("longer");
  EXPECT_EQ(content(path("a")), "old");
  file.write_at(0, "NEW", 3);
  file.commit();
  EXPECT_EQ(content(path("a")), "NEW and longer");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, RemovesTheTemporaryFileWithoutCommit) {
  {
    AtomicFile(path("a")).write("half");
  }
  EXPECT_EQ(entries(), 0);
}

TEST_F(Files, CreatesTheFolder) {
  write_atomically(path("deep/er/a"), "text");
  EXPECT_EQ(content(path("deep/er/a")), "text");
  write_atomically(path("empty"), "");
  EXPECT_EQ(fs::file_size(path("empty")), 0);
}

TEST_F(Files, ThrowsIfTheFolderIsAFile) {
  put(path("a"), "text");
  try {
    write_atomically(path("a/b"), "x");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("a/b"), HasSubstr("Not a directory")));
  }
}

// RLIMIT_FSIZE makes write() fail like a full disk.
TEST_F(Files, FailedWriteKeepsTheOldContent) {
  put(path("a"), "old");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_atomically(path("a"), std::string(5000, 'x'));
    } catch (const FileError&) {
      _exit(7);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, KilledWritersLeaveOneCompleteVersion) {
  const auto version = [](int i) { return std::string(200'000 + i, static_cast<char>('a' + i % 26)); };
  write_atomically(path("a"), version(0));
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0;; ++i) write_atomically(path("a"), version(i % 50));
    }
    usleep(1000 + 731 * round);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::string found = content(path("a"));
    ASSERT_EQ(found, version(static_cast<int>(found.size()) - 200'000));
  }
}

std::uint64_t checksum(const std::string& text, std::size_t cut) {
  Checksum sum;
  for (std::size_t i = 0; i < text.size(); i += cut) sum.add(text.data() + i, std::min(cut, text.size() - i));
  return sum.value();
}

TEST(Checksums, DoNotDependOnTheDivisionIntoCalls) {
  std::string text;
  for (int i = 0; i < 100; ++i) text.push_back(static_cast<char>(i * 37));
  for (std::size_t cut = 1; cut < 20; ++cut) EXPECT_EQ(checksum(text, cut), checksum(text, 1000)) << cut;
}

// Values of the XXH3 reference implementation (xxhsum -H3).
TEST(Checksums, AreXxh3) {
  EXPECT_EQ(checksum("", 8), 0x2D06800538D394C2U);
  EXPECT_EQ(checksum("abc", 1), 0x78AF5F94892F3950U);
}

TEST(Checksums, DependOnEveryByteAndTheLength) {
  std::set<std::uint64_t> seen{checksum("", 8)};
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text.push_back('\0');
    seen.insert(checksum(text, 8));
    for (char& byte : text) {
      byte ^= 1;
      seen.insert(checksum(text, 8));
      byte ^= 1;
    }
  }
  EXPECT_EQ(seen.size(), 1U + 40 + 40 * 41 / 2);
}

// Marks fingerprints as settled, so that the test does not wait for the file times to settle.
class Fingerprints : public Files {
 protected:
  static Fingerprint settled(const fs::path& path) {
    Fingerprint result = Fingerprint::of(path);
    result.settled = 1;
    return result;
  }
  static void keep_times(const fs::path& path, const std::string& text) {
    struct stat before{};
    stat(path.c_str(), &before);
    put(path, text);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    utimensat(AT_FDCWD, path.c_str(), times, 0);
  }
};

TEST_F(Fingerprints, DetectChanges) {
  put(path("a"), "content");
  const Fingerprint then = settled(path("a"));
  EXPECT_EQ(change_since(then, path("a")), Change::kNone);
  usleep(20'000);                    // the file system's clock advances
  keep_times(path("a"), "c0ntent");  // same size and modification time; only ctime differs
  EXPECT_EQ(change_since(then, path("a")), Change::kContent);
  put(path("a"), "content");
  EXPECT_EQ(change_since(then, path("a")), Change::kTouched);
  put(path("a"), "content and more");
  EXPECT_EQ(change_since(then, path("a")), Change::kContent);
  fs::remove(path("a"));
  EXPECT_EQ(change_since(then, path("a")), Change::kGone);
}

TEST_F(Fingerprints, RecentFilesAreReadAgain) {
  put(path("a"), "content");
  const Fingerprint then = Fingerprint::of(path("a"));
  EXPECT_EQ(then.settled, 0);
  EXPECT_EQ(change_since(then, path("a")), Change::kTouched);
  EXPECT_THROW((void)Fingerprint::of(path("absent")), FileError);
}

}  // namespace
}  // namespace weft::files
