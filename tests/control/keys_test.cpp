#include "weft/control/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace weft::control {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

const std::string kKey = "00112233445566778899aabbccddeeFF";

JobKeys parse(const std::string& text) { return JobKeys::parse(text, "keys.yaml"); }
auto refusal(const std::string& text, const auto& matcher) {
  EXPECT_THAT([&] { parse(text); }, ThrowsMessage<KeysError>(matcher)) << text;
}

TEST(JobKeys, ReadsJobs) {
  const JobKeys keys = parse("jobs:\n  resnet: {key: " + kKey + ", slots: 512, workers: 8}\n  bert-2:\n    key: '" +
                             kKey + kKey + "'\n");
  ASSERT_NE(keys.find("resnet"), nullptr);
  EXPECT_EQ(keys.find("resnet")->secret,
            std::string("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 16));
  EXPECT_EQ(keys.find("resnet")->slots, 512);
  EXPECT_EQ(keys.find("resnet")->workers, 8);
  EXPECT_EQ(keys.at("bert-2").secret.size(), 32U);
  EXPECT_EQ(keys.at("bert-2").slots, 0);
  EXPECT_EQ(keys.find("unknown"), nullptr);
}

TEST(JobKeys, DefaultQuotasLeaveRoomForOtherJobs) {
  const JobKeys keys = parse("jobs:\n  a: {key: " + kKey + ", slots: 512, sessions: 9}\n  b: {key: " + kKey + "}\n");
  const JobKeys shared = keys.with_shares({.jobs = 64, .slots = 16384, .slots_per_job = 2048});
  EXPECT_EQ(shared.at("a").slots, 512);
  EXPECT_EQ(shared.at("a").sessions, 9);
  EXPECT_EQ(shared.at("b").slots, 8192);
  EXPECT_EQ(shared.at("b").sessions, 32);
  EXPECT_EQ(shared.at("b").secret, keys.at("b").secret);
  const JobKeys narrow = keys.with_shares({.jobs = 4, .slots = 256, .slots_per_job = 200});
  EXPECT_EQ(narrow.at("b").slots, 200);
  EXPECT_EQ(narrow.at("b").sessions, 4);
}

TEST(JobKeys, ErrorsNeverContainTheKey) {
  refusal("jobs:\n  a: {key: 0011}\n",
          AllOf(HasSubstr("keys.yaml:2"), HasSubstr("openssl rand"), Not(HasSubstr("0011"))));
  refusal("jobs:\n  a: {key: " + kKey + "x}\n", AllOf(HasSubstr("hexadecimal"), Not(HasSubstr(kKey))));
  refusal("jobs:\n  a: {slots: 5}\n", HasSubstr("has no key"));
  refusal("jobs:\n  a: {kee: " + kKey + "}\n", AllOf(HasSubstr("'kee'"), HasSubstr("did you mean 'key'")));
  refusal("jobs:\n  a: {key: " + kKey + ", slots: 0}\n", HasSubstr("from 1 to 8192"));
  refusal("jobs:\n  a: {key: " + kKey + ", workers: many}\n", HasSubstr("workers must be"));
  refusal("jobs:\n  'a b': {key: " + kKey + "}\n", HasSubstr("'a b'"));
  refusal("jobs:\n  a: {key: " + kKey + "}\n  a: {key: " + kKey + "}\n", HasSubstr("twice"));
  refusal("job:\n  a: 1\n", HasSubstr("unknown key 'job'"));
  refusal("- a\n", HasSubstr("expected 'jobs:'"));
  refusal("", HasSubstr("expected 'jobs:'"));
  refusal("jobs: {}\n", HasSubstr("expected 'jobs:'"));  // would admit callers without a key
  refusal("jobs: [\n", HasSubstr("invalid YAML"));
}

// yaml-cpp would keep only one of the duplicates.
TEST(JobKeys, DuplicatesAreRejected) {
  refusal("jobs:\n  a:\n    key: " + kKey + "\n    slots: 5\n    slots: 6\n",
          AllOf(HasSubstr("keys.yaml:5: "), HasSubstr("job 'a'"), HasSubstr("'slots' is defined twice")));
  refusal("jobs:\n  a: {key: " + kKey + ", key: " + kKey + "}\n",
          AllOf(HasSubstr("keys.yaml:2: "), HasSubstr("'key' is defined twice"), Not(HasSubstr(kKey))));
  refusal("jobs:\n  a: {key: " + kKey + "}\njobs:\n  b: {key: " + kKey + "}\n",
          AllOf(HasSubstr("keys.yaml:3: "), HasSubstr("'jobs' is defined twice")));
}

// Empty values have no position in the file.
TEST(JobKeys, ErrorsNameTheLineOfTheKey) {
  for (const char* nothing : {"", "# none yet\n", "\n\n"}) refusal(nothing, HasSubstr("keys.yaml:1: expected"));
  refusal("# keys\njobs:\n", HasSubstr("keys.yaml:2: expected"));
  refusal("jobs:\n  a:\n  b: {key: " + kKey + "}\n", HasSubstr("keys.yaml:2: job 'a'"));
  refusal("jobs:\n  a:\n    key:\n    slots: 5\n", HasSubstr("keys.yaml:3: a key"));
  refusal("jobs:\n  a:\n    key: " + kKey + "\n    slots:\n    workers: 5\n", HasSubstr("keys.yaml:4: slots"));
  refusal("jobs:\n  a:\n    slots: 5\n", HasSubstr("keys.yaml:2: job 'a' has no key"));
}

TEST(JobKeys, MissingKeyErrorNamesTheKnownJobs) {
  const JobKeys keys = parse("jobs:\n  resnet: {key: " + kKey + "}\n");
  EXPECT_THAT([&] { static_cast<void>(keys.at("resnte")); },
              ThrowsMessage<KeysError>(AllOf(HasSubstr("resnte"), HasSubstr("did you mean 'resnet'"))));
}

TEST(JobKeys, FoldersAreRejected) {
  EXPECT_THAT([] { static_cast<void>(JobKeys::load(::testing::TempDir())); },
              ThrowsMessage<KeysError>(AllOf(HasSubstr("'" + ::testing::TempDir()), HasSubstr("is a folder"))));
}

TEST(JobKeys, FilesAccessibleToOthersAreRejected) {
  const std::string file = ::testing::TempDir() + "weft_keys_" + std::to_string(getpid()) + ".yaml";
  std::ofstream(file) << "jobs:\n  a: {key: " << kKey << "}\n";
  for (const mode_t mode : {0644, 0602, 0606}) {
    ASSERT_EQ(chmod(file.c_str(), mode), 0);
    EXPECT_THAT([&] { static_cast<void>(JobKeys::load(file)); },
                ThrowsMessage<KeysError>(AllOf(HasSubstr(file), HasSubstr("chmod 600"))))
        << mode;
  }
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  EXPECT_EQ(JobKeys::load(file).size(), 1U);
  std::remove(file.c_str());
  EXPECT_THAT([&] { static_cast<void>(JobKeys::load(file)); }, ThrowsMessage<KeysError>(HasSubstr("No such file")));
}

}  // namespace
}  // namespace weft::control
