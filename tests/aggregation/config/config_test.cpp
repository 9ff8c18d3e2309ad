#include "weft/aggregation/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "weft/aggregation/config/config_keys.h"

namespace weft::aggregation {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

// Temporary folder of a test.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("weft_config_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  [[nodiscard]] std::string missing() const { return (path_ / "missing.cfg").string(); }

 private:
  std::filesystem::path path_;
};

Config parse(const std::string& text) { return parse_config(text, "file.cfg"); }

auto refuses(const auto& matcher) { return ThrowsMessage<ConfigError>(matcher); }

TEST(Config, DefaultsMatchSwitchML) {
  const Config config = parse("");
  EXPECT_EQ(config.general.num_worker_threads, 4);
  EXPECT_EQ(config.general.max_outstanding_packets, 256);
  EXPECT_EQ(config.general.packet_numel, 0);  // chosen by the route
  EXPECT_EQ(config.general.prepostprocessor, "cpu_exponent_quantizer");
  EXPECT_EQ(config.general.controller_ip, "127.0.0.1");
  EXPECT_EQ(config.general.controller_port, 50099);
  EXPECT_EQ(config.general.timeout, 10);
  EXPECT_EQ(config.general.timeout_threshold, 100);
  EXPECT_EQ(config.dummy.bandwidth, 1000);
  EXPECT_TRUE(config.dummy.process_packets);
  EXPECT_EQ(config.weft.mode, "extended");  // ours
  EXPECT_EQ(config.dpdk.worker_port, 4000);
  EXPECT_EQ(config.dpdk.cores, "0-3");
  EXPECT_EQ(config.dpdk.burst_rx, 64);
}

TEST(Config, ReadsAFileOfSwitchML) {
  const Config config = parse(
      "# a worker\r\n[general]\r\nrank = 3\nnum_workers=8\n  backend = dpdk ; the fast one\ncontroller_ip=10.0.0.1\n"
      "timeout = 2.5\ninstant_job_completion = true\n\n[backend.dpdk]\nworker_ip = 10.0.0.4\ncores = 10-13\n"
      "[backend.rdma]\nmsg_numel = 1024\ndevice_name = mlx5_0\n[backend.dummy]\nprocess_packets = false\n");
  EXPECT_EQ(config.general.rank, 3);
  EXPECT_EQ(config.general.num_workers, 8);
  EXPECT_EQ(config.general.backend, "dpdk");
  EXPECT_EQ(config.general.controller_ip, "10.0.0.1");
  EXPECT_EQ(config.general.timeout, 2.5);
  EXPECT_TRUE(config.general.instant_job_completion);
  EXPECT_EQ(config.dpdk.worker_ip, "10.0.0.4");
  EXPECT_EQ(config.dpdk.cores, "10-13");
  EXPECT_FALSE(config.dummy.process_packets);
  EXPECT_EQ(config.source, "file.cfg");
}

TEST(Config, UnknownKeyErrorNamesFileLineAndSuggestion) {
  EXPECT_THAT(
      [] { parse("[general]\nrank = 0\npacket_numels = 64\n"); },
      refuses(AllOf(HasSubstr("file.cfg:3"), HasSubstr("packet_numels"), HasSubstr("did you mean 'packet_numel'"))));
  EXPECT_THAT([] { parse("[general]\nxyzzy = 64\n"); }, refuses(AllOf(HasSubstr("xyzzy"), Not(HasSubstr("did you")))));
  EXPECT_THAT([] { parse("[generel]\n"); },
              refuses(AllOf(HasSubstr("file.cfg:1"), HasSubstr("did you mean 'general'"))));
  // The key belongs to another section.
  EXPECT_THAT([] { parse("[general]\ncores = 0-3\n"); }, refuses(HasSubstr("no key 'cores'")));
}

TEST(Config, InvalidValueErrorNamesAllowedValues) {
  EXPECT_THAT([] { parse("[general]\npacket_numel = 100\n"); },
              refuses(AllOf(HasSubstr("file.cfg:2"), HasSubstr("64 or 256"), HasSubstr("'100'"))));
  EXPECT_THAT([] { parse("[general]\nbackend = infiniband\n"); }, refuses(HasSubstr("dummy | dpdk | udp")));
  EXPECT_THAT([] { parse("[general]\nbackend = rdma\n"); }, refuses(HasSubstr("not supported")));
  EXPECT_THAT([] { parse("[general]\nnum_workers = 0\n"); }, refuses(HasSubstr("from 1 to 65535")));
  EXPECT_THAT([] { parse("[general]\nnum_workers = 2x\n"); }, refuses(HasSubstr("'2x'")));
  EXPECT_THAT([] { parse("[general]\ncontroller_port = 70000\n"); }, refuses(HasSubstr("65535")));
  EXPECT_THAT([] { parse("[general]\ntimeout = nan\n"); }, refuses(HasSubstr("above 0")));
  EXPECT_THAT([] { parse("[general]\ntimeout = -1\n"); }, refuses(HasSubstr("above 0")));
  EXPECT_THAT([] { parse("[general]\ninstant_job_completion = maybe\n"); }, refuses(HasSubstr("true or false")));
  EXPECT_THAT(
      [] {
        parse(
            "[weft]\njob = j\xc3\xb6"
            "b\n");
      },
      refuses(HasSubstr("up to 64 letters")));
  EXPECT_THAT([] { parse("[weft]\njob = a b\n"); }, refuses(HasSubstr("up to 64 letters")));
}

TEST(Config, ClassicModeRequiresSwitchMLsPacketSizes) {
  EXPECT_EQ(load_config({}, {"WEFT_SML_PACKET_NUMEL=320"}).general.packet_numel, 320);
  EXPECT_EQ(load_config({}, {"WEFT_SML_PACKET_NUMEL=64", "WEFT_SML_MODE=classic"}).general.packet_numel, 64);
  EXPECT_THAT([] { static_cast<void>(load_config({}, {"WEFT_SML_PACKET_NUMEL=320", "WEFT_SML_MODE=classic"})); },
              refuses(AllOf(HasSubstr("64 or 256"), HasSubstr("320"))));
}

TEST(Config, RejectsMalformedLines) {
  EXPECT_THAT([] { parse("[general]\nrank\n"); }, refuses(HasSubstr("key = value")));
  EXPECT_THAT([] { parse("rank = 1\n"); }, refuses(HasSubstr("precedes the first section")));
  EXPECT_THAT([] { parse("[general\n"); }, refuses(HasSubstr("has no ']'")));
  EXPECT_THAT([] { parse("[general]\nrank = 1\nrank = 2\n"); },
              refuses(AllOf(HasSubstr(":3"), HasSubstr("duplicate key"))));
}

TEST(Config, FirstExistingFileWins) {
  const Folder folder;
  const std::string second = folder.write("b.cfg", "[general]\nrank = 2\n");
  const std::string third = folder.write("c.cfg", "[general]\nrank = 3\n");
  const Config config = load_config({folder.missing(), second, third}, {});
  EXPECT_EQ(config.general.rank, 2);
  EXPECT_EQ(config.source, second);
}

TEST(Config, EnvironmentOverridesTheFile) {
  const Folder folder;
  const std::string found = folder.write("a.cfg", "[general]\nrank = 2\ncontroller_port = 1\n");
  const std::string named = folder.write("b.cfg", "[general]\nrank = 3\n");
  const Config config = load_config({found}, {"PATH=/bin", "WEFT_SML_CONFIG=" + named, "WEFT_SML_CONTROLLER_PORT=77",
                                              "WEFT_SML_UDP_WORKER_IP=10.1.1.1", "WEFT_SML_EXACT=1"});
  EXPECT_EQ(config.general.rank, 3);
  EXPECT_EQ(config.general.controller_port, 77);
  EXPECT_EQ(config.udp.worker_ip, "10.1.1.1");
  EXPECT_TRUE(config.weft.exact);
}

TEST(Config, MissingConfigurationErrorNamesTheRemedy) {
  const Folder folder;
  const std::string missing = folder.missing();
  EXPECT_THAT([&] { static_cast<void>(load_config({missing}, {"PATH=/bin"})); },
              refuses(AllOf(HasSubstr(missing), HasSubstr("WEFT_SML_CONTROLLER_IP"))));
  EXPECT_THAT([&] { static_cast<void>(load_config({}, {"WEFT_SML_CONFIG=" + missing})); },
              refuses(AllOf(HasSubstr(missing), HasSubstr("No such file"))));
  EXPECT_EQ(load_config({missing}, {"WEFT_SML_CONTROLLER_IP=10.0.0.9"}).general.controller_ip, "10.0.0.9");
}

TEST(Config, RejectsUnknownVariables) {
  EXPECT_THAT([] { static_cast<void>(load_config({}, {"WEFT_SML_CONTROLER_IP=x"})); },
              refuses(HasSubstr("did you mean 'WEFT_SML_CONTROLLER_IP'")));
  EXPECT_THAT([] { static_cast<void>(load_config({}, {"WEFT_SML_PACKET_NUMEL=65"})); },
              refuses(AllOf(HasSubstr("WEFT_SML_PACKET_NUMEL"), HasSubstr("64 or 256"))));
}

TEST(Config, ErrorsNameTheValueAndTheAllowedValues) {
  const Folder folder;
  EXPECT_THAT(
      [] { static_cast<void>(load_config({}, {"WEFT_SML_QQQQQQQQQQQQ=x"})); },
      refuses(AllOf(HasSubstr("QQQQQQQQQQQQ"), HasSubstr("WEFT_SML_CONTROLLER_IP"), HasSubstr("WEFT_SML_JOB"))));
  const std::string classic = folder.write("classic.cfg", "[general]\npacket_numel = 512\n[weft]\nmode = classic\n");
  EXPECT_THAT([&] { static_cast<void>(load_config({classic}, {})); },
              refuses(AllOf(HasSubstr(classic), HasSubstr("512"), HasSubstr("64 or 256"))));
  const std::string place = std::filesystem::path(classic).parent_path();
  EXPECT_THAT([&] { static_cast<void>(load_config({place}, {})); },
              refuses(AllOf(HasSubstr("'" + place + "'"), HasSubstr("is a folder"), HasSubstr("search order"))));
  EXPECT_THAT(
      [&] { static_cast<void>(load_config({}, {"WEFT_SML_CONFIG=" + place})); },
      refuses(AllOf(HasSubstr("'" + place + "'"), HasSubstr("is a folder"), HasSubstr("correct WEFT_SML_CONFIG"))));
}

TEST(Config, EveryKeyHasItsOwnVariable) {
  std::vector<std::string> variables;
  for (const ConfigKey& key : config_keys()) {
    variables.push_back(key.variable());
    EXPECT_FALSE(key.allowed.empty()) << key.name;
  }
  std::sort(variables.begin(), variables.end());
  EXPECT_EQ(std::adjacent_find(variables.begin(), variables.end()), variables.end());
}

TEST(Config, SearchOrderMatchesSwitchML) {
  const auto places = config_search_order();
  ASSERT_EQ(places.size(), 3U);
  EXPECT_EQ(places[0], "/etc/switchml.cfg");
  EXPECT_EQ(places[1], "switchml.cfg");
  EXPECT_TRUE(places[2].starts_with("switchml-") && places[2].ends_with(".cfg"));
}

}  // namespace
}  // namespace weft::aggregation
