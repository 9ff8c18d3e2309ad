// The control plane over real connections: authentication, refusals and limits.
#include "weft/control/rpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>
#include <thread>

#include "switchml.grpc.pb.h"
#include "tests/control/connect.h"
#include "tests/control/interfaces.h"
#include "tests/control/no_descriptors.h"
#include "weft/aggregation/config/control_client.h"
#include "weft/aggregation/switch/aggregation_switch.h"
#include "weft/aggregation/transport/shared_memory.h"
#include "weft/control/access_control.h"
#include "weft/control/descriptor_limit.h"
#include "weft/control/log_limit.h"
#include "weft/control/request_mac.h"
#include "weft/control/rpc/daemon.h"
#include "weft/control/rpc/metadata.h"

namespace weft::control::rpc {
namespace {

using aggregation::Address;
using aggregation::ControlClient;
using aggregation::JoinRefused;
using aggregation::JoinRequest;
using aggregation::SwitchUnreachable;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using namespace std::chrono_literals;

constexpr auto kTimeout = 20s;
const std::string kKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const std::string kOtherKey = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

std::string keys_text(const std::string& key) {
  return "jobs:\n  a: {key: " + key + ", slots: 16}\n  b: {key: " + kOtherKey + "}\n";
}

// Temporary keys file that only its owner can read.
class KeysFile {
 public:
  explicit KeysFile(const std::string& key)
      : path_(::testing::TempDir() + "weft_server_keys_" + std::to_string(getpid()) + "_" + std::to_string(count_++)) {
    std::ofstream(path_) << keys_text(key);
    chmod(path_.c_str(), 0600);
  }
  ~KeysFile() { std::remove(path_.c_str()); }
  KeysFile(const KeysFile&) = delete;
  KeysFile& operator=(const KeysFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static inline int count_ = 0;
  std::string path_;
};

class Control : public ::testing::Test {
 protected:
  void start(JobKeys keys, ConnectionLimits limits = {}) {
    server_ =
        std::make_unique<Server>(ServerOptions{{kLoopback, 0}, 0, std::move(keys), false, limits}, jobs_, counters_);
  }
  // For tests that send many requests over one connection.
  [[nodiscard]] static ConnectionLimits without_rate_limit() {
    ConnectionLimits limits;
    limits.burst = limits.host_burst = 1e9;
    return limits;
  }
  void start_with_keys(ConnectionLimits limits = {}) { start(JobKeys::parse(keys_text(kKey), "keys"), limits); }

  [[nodiscard]] std::unique_ptr<ControlClient> client(const std::string& job = "", const std::string& keys = "") const {
    return std::unique_ptr<ControlClient>(weft_control_client({"127.0.0.1", server_->port(), job, keys}));
  }
  [[nodiscard]] static JoinRequest request(std::uint64_t session, std::uint32_t rank = 0, std::uint32_t workers = 2) {
    JoinRequest request;
    request.session = session;
    request.rank = rank;
    request.workers = workers;
    request.address = {kLoopback, static_cast<std::uint16_t>(4000 + rank + 16 * session)};
    return request;
  }
  // Channel of SwitchML's own client, without weft's metadata.
  [[nodiscard]] std::shared_ptr<grpc::Channel> plain_channel() const {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials());
  }

  aggregation::Jobs jobs_{{}, 42};
  EventCounters counters_;
  std::unique_ptr<Server> server_;
};

TEST_F(Control, WorkersOnThisMachineJoinAndLeaveWithoutKeys) {
  start({});
  const auto zero = client()->join(request(7, 0), kTimeout);
  const auto one = client()->join(request(7, 1), kTimeout);
  EXPECT_EQ(zero.admission.epoch, 42U);
  EXPECT_EQ(zero.admission.job, one.admission.job);
  EXPECT_EQ(zero.switch_address.ipv4, kLoopback);
  EXPECT_EQ(zero.switch_address.port, jobs_.limits().port);
  EXPECT_EQ(jobs_.snapshot(aggregation::steady_now()).jobs.at(0).workers_placed, 2);
  client()->leave(7, 0, kTimeout);
  EXPECT_EQ(jobs_.snapshot(aggregation::steady_now()).jobs.size(), 1U);
  client()->leave(7, 1, kTimeout);
  EXPECT_EQ(jobs_.snapshot(aggregation::steady_now()).jobs.size(), 0U);
}

TEST_F(Control, RejoiningReturnsTheSameAdmission) {
  start({});
  const auto first = client()->join(request(7), kTimeout);
  const auto again = client()->join(request(7), kTimeout);
  EXPECT_EQ(first.admission.job, again.admission.job);
  EXPECT_EQ(jobs_.snapshot(aggregation::steady_now()).jobs.size(), 1U);
  EXPECT_EQ(counters_.of(Event::kAdmitted), 1U);  // waiting workers ask twice a second
  jobs_.end(7);                                   // like a restart or an eviction
  EXPECT_NO_THROW(static_cast<void>(client()->join(request(7), kTimeout)));
  EXPECT_EQ(jobs_.snapshot(aggregation::steady_now()).jobs.size(), 1U);
}

TEST_F(Control, SharesTheMemoryOfWorkersOnThisMachine) {
  start({});
  JoinRequest sharing = request(7);
  sharing.mode = aggregation::Mode::kExtended;
  sharing.slots = 8;
  EXPECT_FALSE(client()->join(sharing, kTimeout).admission.shared);
  const auto memory = aggregation::SharedMemory::create(sharing.slots, sharing.packet_elements);
  ASSERT_NE(memory, nullptr);
  sharing.memory = memory->name();
  sharing.memory.cookie[0] ^= 1U;
  EXPECT_FALSE(client()->join(sharing, kTimeout).admission.shared);
  sharing.memory = memory->name();
  EXPECT_TRUE(client()->join(sharing, kTimeout).admission.shared);
  EXPECT_TRUE(client()->join(sharing, kTimeout).admission.shared) << "the worker polls";
  JoinRequest other = request(7, 1);
  other.mode = sharing.mode;
  EXPECT_FALSE(client()->join(other, kTimeout).admission.shared);
}

// Otherwise a restarted switch would accept packets of earlier operations.
TEST_F(Control, ARejoiningWorkerSendsItsOperationNumber) {
  start({});
  JoinRequest back = request(7);
  back.first_operation = 250;
  EXPECT_EQ(client()->join(back, kTimeout).admission.first_operation, 250);
  EXPECT_EQ(client()->join(request(7, 1), kTimeout).admission.first_operation, 250);
}

TEST_F(Control, DifferentConfigurationsAreRefused) {
  start({});
  static_cast<void>(client()->join(request(7, 0, 2), kTimeout));
  EXPECT_THAT([&] { static_cast<void>(client()->join(request(7, 1, 3), kTimeout)); },
              ThrowsMessage<JoinRefused>(HasSubstr("same configuration")));
  auto small = request(7, 1, 2);
  small.packet_elements = 64;
  EXPECT_THROW(static_cast<void>(client()->join(small, kTimeout)), JoinRefused);
  EXPECT_THROW(static_cast<void>(client()->join(request(8, 5, 2), kTimeout)), JoinRefused);
  EXPECT_EQ(counters_.of(Event::kRefusedBadRequest), 3U);
  EXPECT_EQ(counters_.of(Event::kRefusedNoRoom), 0U);
}

TEST_F(Control, SwitchMLsClientCanJoin) {
  start({});
  const auto channel = plain_channel();
  const auto session = switchml_proto::Session::NewStub(channel);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    switchml_proto::UdpSessionRequest request;
    request.set_session_id(99);
    request.set_rank(rank);
    request.set_num_workers(2);
    request.set_mac(0x0200C0FFEE00 + rank);
    request.set_ipv4(kLoopback + rank);
    request.set_packet_size(switchml_proto::MTU_1024);
    switchml_proto::UdpSessionResponse response;
    grpc::ClientContext context;
    const grpc::Status status = session->UdpSession(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.session_id(), 99U);
    EXPECT_EQ(response.ipv4(), kLoopback);
  }
  const auto status = jobs_.snapshot(aggregation::steady_now()).jobs.at(0);
  EXPECT_EQ(status.mode, aggregation::Mode::kSwitchMl);
  EXPECT_EQ(status.packet_elements, 256);
  EXPECT_EQ(status.workers_placed, 2);
  static_cast<void>(client()->join(request(7, 0), kTimeout));
  jobs_.with_switch([](const aggregation::AggregationSwitch& jobs) {
    EXPECT_TRUE(jobs.find(99)->spec().tsi_is_little_endian) << "SwitchML's own client";
    EXPECT_FALSE(jobs.find(7)->spec().tsi_is_little_endian) << "weft's client";
  });
}

// Written by hand from the fields and types of SwitchML's definition.
TEST(SwitchMLMessages, MatchGoldenBytes) {
  switchml_proto::UdpSessionRequest request;
  request.set_session_id(1);
  request.set_rank(2);
  request.set_num_workers(3);
  request.set_mac(4);
  request.set_ipv4(5);
  request.set_packet_size(switchml_proto::MTU_1024);
  EXPECT_EQ(request.SerializeAsString(), std::string("\x08\x01\x10\x02\x18\x03\x20\x04\x28\x05\x38\x03", 12));
  switchml_proto::BroadcastRequest broadcast;
  broadcast.set_value(300);
  broadcast.set_rank(1);
  broadcast.set_num_workers(2);
  broadcast.set_root(1);
  EXPECT_EQ(broadcast.SerializeAsString(), std::string("\x08\xAC\x02\x10\x01\x18\x02\x20\x01", 9));
}

TEST_F(Control, BarrierAndBroadcastWork) {
  start({});
  std::atomic<int> right{0};
  std::vector<std::thread> workers;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    workers.emplace_back([&, rank] {
      const auto mine = client();
      if (mine->broadcast(rank == 1 ? 1234 : 0, rank, 3, 1, kTimeout) == 1234) ++right;
      mine->barrier(3, kTimeout);
    });
  }
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(right, 3);
}

TEST_F(Control, ADisconnectedWorkerDoesNotCountInABarrier) {
  start({});
  const auto stub = switchml_proto::Sync::NewStub(plain_channel());
  grpc::ClientContext context;
  std::thread dying([&] {
    switchml_proto::BarrierRequest request;
    request.set_num_workers(2);
    switchml_proto::BarrierResponse response;
    EXPECT_FALSE(stub->Barrier(&context, request, &response).ok());
  });
  while (server_->waiting() == 0) std::this_thread::sleep_for(1ms);
  context.TryCancel();
  dying.join();
  while (server_->waiting() > 0) std::this_thread::sleep_for(1ms);  // gRPC reports the cancellation asynchronously
  std::thread other([&] { client()->barrier(2, kTimeout); });
  client()->barrier(2, kTimeout);
  other.join();
}

TEST_F(Control, WaitingTimesOut) {
  start({});
  EXPECT_THROW(client()->barrier(2, 300ms), SwitchUnreachable);
}

// If an answer and a cancellation coincide, only one of them may touch the call.
TEST_F(Control, SimultaneousAnswerAndCancellationAreSafe) {
  start({}, without_rate_limit());
  std::atomic<int> wrong{0};
  std::vector<std::thread> workers;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      const auto stub = switchml_proto::Sync::NewStub(plain_channel());
      for (int i = 0; i < 300; ++i) {
        switchml_proto::BroadcastRequest request;
        request.set_value(77);
        request.set_rank(rank);
        request.set_num_workers(2);
        switchml_proto::BroadcastResponse response;
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(300 + 40 * (i % 50)));
        if (stub->Broadcast(&context, request, &response).ok() && response.value() != 77) ++wrong;
      }
    });
  }
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(wrong, 0);
  std::thread other([&] { EXPECT_NO_THROW(client()->barrier(2, kTimeout)); });
  EXPECT_NO_THROW(client()->barrier(2, kTimeout));
  other.join();
}

TEST_F(Control, AdmitsByKey) {
  start_with_keys();
  const KeysFile keys(kKey);
  auto wish = request(7);
  wish.mode = aggregation::Mode::kExtended;
  wish.packet_elements = 320;
  const auto joined = client("a", keys.path())->join(wish, kTimeout);
  EXPECT_EQ(joined.admission.slots, 16);  // the key's quota
  EXPECT_NE(joined.key, aggregation::SessionKey{});
  EXPECT_EQ(counters_.of(Event::kAdmitted), 1U);
  EXPECT_THAT([&] { static_cast<void>(client("a", keys.path())->join(request(8), kTimeout)); },
              ThrowsMessage<JoinRefused>(HasSubstr("16 slots")));
}

TEST_F(Control, RefusesAWrongKey) {
  start_with_keys();
  const KeysFile right(kKey);
  const KeysFile wrong(kOtherKey);
  const auto joined = client("a", right.path())->join(request(7, 0), kTimeout);
  EXPECT_THAT([&] { static_cast<void>(client("a", wrong.path())->join(request(7, 1), kTimeout)); },
              ThrowsMessage<JoinRefused>(HasSubstr("wrong key")));
  EXPECT_THAT([&] { static_cast<void>(client("a")->join(request(7, 1), kTimeout)); },
              ThrowsMessage<JoinRefused>(HasSubstr("WEFT_SML_KEYS")));
  EXPECT_THROW(static_cast<void>(client()->join(request(7, 1), kTimeout)), JoinRefused);
  EXPECT_EQ(counters_.of(Event::kRefusedWrongKey), 1U);
  EXPECT_EQ(counters_.of(Event::kRefusedNoKey), 1U);
  EXPECT_EQ(client("a", right.path())->join(request(7, 1), kTimeout).admission.job, joined.admission.job);
}

// Captures the log during its lifetime.
class Log {
 public:
  Log() {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~Log() { spdlog::set_default_logger(usual_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  [[nodiscard]] long lines_with(const std::string& words) const {
    std::istringstream lines(text_.str());
    long count = 0;
    for (std::string line; std::getline(lines, line);) count += line.find(words) != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> usual_ = spdlog::default_logger();
};

// Refusals by the authenticator and by the sessions.
TEST_F(Control, RefusalsDoNotFillTheLog) {
  for (const bool with_keys : {true, false}) {
    const Log log;
    with_keys ? start_with_keys(without_rate_limit()) : start({}, without_rate_limit());
    const auto begin = std::chrono::steady_clock::now();
    const auto stranger = client();
    for (int i = 0; i < 300; ++i) {
      EXPECT_THROW(static_cast<void>(stranger->join(request(7, 5, 2), kTimeout)), JoinRefused);
    }
    const auto seconds = (std::chrono::steady_clock::now() - begin) / 1s + 1;
    server_.reset();  // stops writing to the log
    EXPECT_GE(log.lines_with("refused request"), LogLimit::kLinesPerSecond);
    EXPECT_LE(log.lines_with("refused request"), seconds * LogLimit::kLinesPerSecond);
  }
}

// A worker that joins and leaves in a loop, with another port each time.
TEST_F(Control, AdmissionsDoNotFillTheLog) {
  const Log log;
  start({}, without_rate_limit());
  const auto begin = std::chrono::steady_clock::now();
  const auto worker = client();
  for (int i = 0; i < 100; ++i) {
    auto moving = request(7, 0, 1);
    moving.address.port = static_cast<std::uint16_t>(10'000 + i);
    static_cast<void>(worker->join(moving, kTimeout));
    ++moving.address.port;
    static_cast<void>(worker->join(moving, kTimeout));
    worker->leave(7, 0, kTimeout);
  }
  const auto seconds = (std::chrono::steady_clock::now() - begin) / 1s + 1;
  server_.reset();  // stops writing to the log
  EXPECT_GE(log.lines_with("admitted job"), LogLimit::kLinesPerSecond);
  EXPECT_LE(log.lines_with("admitted job"), seconds * LogLimit::kLinesPerSecond);
  EXPECT_LE(log.lines_with("ended job"), seconds * LogLimit::kLinesPerSecond);
}

TEST_F(Control, NewKeysReplaceTheOldOnes) {
  start_with_keys();
  const KeysFile old(kKey);
  static_cast<void>(client("a", old.path())->join(request(7, 0), kTimeout));
  server_->set_keys(JobKeys::parse(keys_text(kOtherKey), "keys"));
  EXPECT_THAT([&] { static_cast<void>(client("a", old.path())->join(request(7, 1), kTimeout)); },
              ThrowsMessage<JoinRefused>(HasSubstr("wrong key")));
  EXPECT_TRUE(jobs_.end(7));  // it continued until now and used the job's quota
  EXPECT_NO_THROW(static_cast<void>(client("a", KeysFile(kOtherKey).path())->join(request(8), kTimeout)));
}

TEST_F(Control, AJobCannotJoinOrEndAnotherJobsSession) {
  start_with_keys();
  const KeysFile keys(kKey);
  static_cast<void>(client("a", keys.path())->join(request(7, 0, 1), kTimeout));
  EXPECT_THAT([&] { static_cast<void>(client("b", keys.path())->join(request(7, 0, 1), kTimeout)); },
              ThrowsMessage<JoinRefused>(HasSubstr("another job")));
  client("b", keys.path())->leave(7, 0, kTimeout);
  EXPECT_EQ(jobs_.snapshot(aggregation::steady_now()).jobs.size(), 1U);
}

// An eavesdropper repeats the bytes of an admitted request.
TEST_F(Control, ReplayedRequestsAreNotAdmitted) {
  start_with_keys();
  const auto stub = switchml_proto::Session::NewStub(plain_channel());
  switchml_proto::UdpSessionRequest request;
  request.set_session_id(7);
  request.set_num_workers(1);
  request.set_ipv4(kLoopback);
  request.set_packet_size(switchml_proto::MTU_1024);
  switchml_proto::UdpSessionResponse response;
  const auto send = [&](const std::string& nonce, grpc::ClientContext& context) {
    context.AddMetadata(kJob, "a");
    if (!nonce.empty()) {
      std::string secret;
      for (int i = 0; i < 32; ++i) secret.push_back(static_cast<char>(i));
      context.AddMetadata(kNonce, nonce);
      context.AddMetadata(kRequestMac,
                          request_mac(secret, nonce, {"UdpSession", "a", "", request.SerializeAsString()}));
    }
    return stub->UdpSession(&context, request, &response);
  };
  grpc::ClientContext asking, proving, replaying;
  ASSERT_EQ(send("", asking).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const auto found = asking.GetServerTrailingMetadata().find(kNonce);
  const std::string nonce(found->second.data(), found->second.size());
  ASSERT_TRUE(send(nonce, proving).ok());
  EXPECT_EQ(send(nonce, replaying).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(counters_.of(Event::kRefusedReplay), 1U);
  EXPECT_EQ(counters_.of(Event::kAdmitted), 1U);
}

// A switch that restarts after each of its first answers and so loses its nonces.
class RestartedSwitch final : public switchml_proto::Session::Service {
 public:
  explicit RestartedSwitch(int restarts) : restarts_(restarts) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  grpc::Status UdpSession(grpc::ServerContext* context, const switchml_proto::UdpSessionRequest* request,
                          switchml_proto::UdpSessionResponse* /*response*/) override {
    const auto given = [&](const char* name) {
      const auto found = context->client_metadata().find(name);
      return found == context->client_metadata().end() ? "" : std::string(found->second.data(), found->second.size());
    };
    const Claim claim{"UdpSession", given(kJob), given(kTerms), request->SerializeAsString()};
    const Decision decision = access_->decide({false, given(kNonce), given(kRequestMac)}, claim, Nonces::Clock::now());
    if (calls_++ < restarts_) access_ = fresh();
    context->AddTrailingMetadata(kNonce, decision.nonce);
    context->AddTrailingMetadata(kAdmission, write_admission({42, 1, 16, 48864, 0}));
    if (decision.kind == Decision::Kind::kChallenge) return {grpc::StatusCode::UNAUTHENTICATED, decision.reason};
    if (decision.kind == Decision::Kind::kRefuse) return {grpc::StatusCode::PERMISSION_DENIED, decision.reason};
    return grpc::Status::OK;
  }

  [[nodiscard]] std::unique_ptr<ControlClient> client(const KeysFile& keys) const {
    return std::unique_ptr<ControlClient>(
        weft_control_client({"127.0.0.1", static_cast<std::uint16_t>(port_), "a", keys.path()}));
  }
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] const EventCounters& counters() const { return counters_; }

 private:
  [[nodiscard]] std::unique_ptr<AccessControl> fresh() {
    return std::make_unique<AccessControl>(JobKeys::parse(keys_text(kKey), "keys"), false, counters_);
  }

  EventCounters counters_;
  std::unique_ptr<AccessControl> access_ = fresh();
  int restarts_;
  std::atomic<int> calls_{0};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;  // destroyed first
};

JoinRequest lone_request() {
  JoinRequest request;
  request.workers = 1;
  request.address = {kLoopback, 4000};
  return request;
}

TEST(Client, RetriesIfTheSwitchRestartsAfterTheChallenge) {
  RestartedSwitch restarted(1);
  EXPECT_EQ(restarted.client(KeysFile(kKey))->join(lone_request(), kTimeout).admission.epoch, 42U);
  EXPECT_EQ(restarted.calls(), 3);
  EXPECT_EQ(restarted.counters().of(Event::kRefusedReplay), 1U);
}

TEST(Client, ReportsAWrongKeyAfterARestart) {
  RestartedSwitch restarted(1);
  EXPECT_THAT([&] { static_cast<void>(restarted.client(KeysFile(kOtherKey))->join(lone_request(), kTimeout)); },
              ThrowsMessage<JoinRefused>(HasSubstr("wrong key")));
  EXPECT_EQ(restarted.calls(), 3);
}

TEST(Client, LimitsTheNumberOfChallenges) {
  RestartedSwitch restarted(1'000'000);
  EXPECT_THAT([&] { static_cast<void>(restarted.client(KeysFile(kKey))->join(lone_request(), kTimeout)); },
              ThrowsMessage<SwitchUnreachable>(HasSubstr("challenges in a row")));
  EXPECT_LT(restarted.calls(), 20);
}

TEST_F(Control, RefusesOversizedAndInvalidRequests) {
  ConnectionLimits limits;
  limits.first_request = 1h;  // refused requests do not extend it, and sanitizers are slow
  start({}, limits);
  const auto stub = switchml_proto::Session::NewStub(plain_channel());
  for (const std::size_t padding :
       {std::size_t{8} << 10, std::size_t{65} << 10}) {  // refused by the authenticator; by gRPC
    switchml_proto::UdpSessionRequest request;
    request.set_num_workers(1);
    request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(1000, std::string(padding, 'x'));
    switchml_proto::UdpSessionResponse response;
    grpc::ClientContext context;
    EXPECT_FALSE(stub->UdpSession(&context, request, &response).ok());
  }
  for (const std::string terms :
       {"mode=classic", "mode=other elements=1 port=1 slots=1 first=-1",
        "mode=classic elements=1 port=70000 slots=1 first=-1", "mode=classic elements=1 port=1 slots=1 first=256",
        "mode=classic elements=1 port=1 slots=1 first=-1 more"}) {
    switchml_proto::UdpSessionRequest request;
    request.set_num_workers(1);
    switchml_proto::UdpSessionResponse response;
    grpc::ClientContext context;
    context.AddMetadata(kTerms, terms);
    EXPECT_EQ(stub->UdpSession(&context, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << terms;
  }
  switchml_proto::RdmaSessionRequest rdma;
  switchml_proto::RdmaSessionResponse answer;
  grpc::ClientContext context;
  EXPECT_EQ(stub->RdmaSession(&context, rdma, &answer).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(counters_.of(Event::kRefusedBadRequest), 6U);
  EXPECT_NO_THROW(static_cast<void>(client()->join(request(7), kTimeout)));
}

// Some connections send nothing, others only start HTTP/2. A worker can join meanwhile.
TEST_F(Control, ClosesSilentConnections) {
  ConnectionLimits limits;
  limits.first_request = 700ms;
  limits.connections_per_host = 64;
  start({}, limits);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  std::vector<int> loris;
  for (int i = 0; i < 40; ++i) {
    loris.push_back(connect_to(server_->port()));
    if (i % 2 == 1) {
      ASSERT_GT(send(loris.back(), preface.data(), preface.size() - static_cast<std::size_t>(i % 3), 0), 0);
    }
  }
  EXPECT_NO_THROW(static_cast<void>(client()->join(request(7), kTimeout)));
  for (const int fd : loris) {  // the switch closes each, eventually
    char byte = 0;
    while (recv(fd, &byte, 1, 0) > 0) {
    }
    close(fd);
  }
  // May be more on a busy machine, if the worker's own connection times out and reconnects.
  EXPECT_GE(counters_.of(Event::kDroppedSlow), 40U);
  EXPECT_EQ(counters_.of(Event::kDroppedTooMany), 0U);
  EXPECT_EQ(counters_.of(Event::kAdmitted), 1U);
  EXPECT_NO_THROW(static_cast<void>(client()->join(request(7, 1), kTimeout)));
}

// Refused requests do not keep a connection open.
TEST_F(Control, ClosesUnauthenticatedConnections) {
  ConnectionLimits limits;
  limits.first_request = 300ms;
  limits.idle = 1h;
  start_with_keys(limits);
  const auto channel = plain_channel();
  const auto stub = switchml_proto::Session::NewStub(channel);
  while (counters_.of(Event::kDroppedSlow) == 0) {
    switchml_proto::UdpSessionRequest request;
    switchml_proto::UdpSessionResponse response;
    grpc::ClientContext context;
    EXPECT_FALSE(stub->UdpSession(&context, request, &response).ok());
    if (counters_.of(Event::kRefusedNoKey) > 2000) break;  // for more than 20 s
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_GT(counters_.of(Event::kDroppedSlow), 0U);
  const KeysFile keys(kKey);
  const auto admitted = client("a", keys.path());
  static_cast<void>(admitted->join(request(7), kTimeout));
  const auto dropped = counters_.of(Event::kDroppedSlow);
  std::this_thread::sleep_for(2 * limits.first_request);
  EXPECT_NO_THROW(static_cast<void>(admitted->join(request(7), kTimeout)));
  EXPECT_LE(counters_.of(Event::kDroppedSlow), dropped + 1);  // the other connection, if it reconnected
}

// Otherwise a stranger could direct results to any host.
TEST_F(Control, AnotherPacketAddressRequiresAKey) {
  start({});
  JoinRequest elsewhere = request(7);
  elsewhere.address.ipv4 = 0xC6336401;  // 198.51.100.1, reserved for documentation
  EXPECT_THAT([&] { static_cast<void>(client()->join(elsewhere, kTimeout)); },
              ThrowsMessage<JoinRefused>(AllOf(HasSubstr("198.51.100.1"), HasSubstr("--multihomed"))));
  EXPECT_EQ(counters_.of(Event::kRefusedBadRequest), 1U);
  EXPECT_EQ(jobs_.snapshot(aggregation::steady_now()).jobs.size(), 0U);
  start_with_keys();
  const KeysFile keys(kKey);
  EXPECT_NO_THROW(static_cast<void>(client("a", keys.path())->join(elsewhere, kTimeout)));
  server_ = std::make_unique<Server>(ServerOptions{{kLoopback, 0}, 0, {}, false, {}, true}, jobs_, counters_);
  elsewhere.session = 8;
  ++elsewhere.address.port;
  EXPECT_NO_THROW(static_cast<void>(client()->join(elsewhere, kTimeout)));
}

// SwitchML's DPDK clients send frames to it.
TEST_F(Control, ReturnsTheHardwareAddress) {
  const auto interface = tests::any_interface();
  if (!interface) GTEST_SKIP() << "this machine has no interface with IPv4 and a MAC address";
  for (const auto& [ipv4, mac] : {std::pair{interface->ipv4, interface->mac}, {kLoopback, std::uint64_t{0}}}) {
    server_ = std::make_unique<Server>(ServerOptions{{kLoopback, 0}, ipv4, {}, false, {}}, jobs_, counters_);
    const auto stub = switchml_proto::Session::NewStub(plain_channel());
    switchml_proto::UdpSessionRequest request;
    request.set_session_id(ipv4);
    request.set_num_workers(1);
    request.set_ipv4(mac == 0 ? kLoopback : kLoopback + 1);
    request.set_packet_size(switchml_proto::MTU_256);
    switchml_proto::UdpSessionResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(stub->UdpSession(&context, request, &response).ok());
    EXPECT_EQ(response.ipv4(), ipv4);
    EXPECT_EQ(response.mac(), mac);
  }
}

TEST_F(Control, LimitsConnectionsPerHost) {
  ConnectionLimits limits;
  limits.connections_per_host = 4;
  start({}, limits);
  std::vector<int> many;
  for (int i = 0; i < 12; ++i) many.push_back(connect_to(server_->port()));
  int closed = 0;
  for (int i = 4; i < 12; ++i) {  // the first four stay open
    char byte = 0;
    closed += recv(many[static_cast<std::size_t>(i)], &byte, 1, 0) <= 0 ? 1 : 0;
  }
  EXPECT_EQ(closed, 8);
  EXPECT_EQ(counters_.of(Event::kDroppedTooMany), 8U);
  for (const int fd : many) close(fd);
  EXPECT_NO_THROW(static_cast<void>(client()->join(request(7), kTimeout)));  // those connections are free again
}

// The listener stays readable then, so a loop without a pause would use a whole core.
TEST_F(Control, WaitsForFreeDescriptorsAndThenAccepts) {
  start({});
  std::vector<files::FileDescriptor> visitors;
  for (int i = 0; i < 20; ++i) visitors.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
  {
    NoDescriptors all_taken;
    // Some may use descriptors that connections of an earlier test have just closed.
    for (std::size_t next = 0; counters_.of(Event::kNoDescriptors) == 0;) {
      all_taken.take_all();
      if (next < visitors.size()) connect_to(visitors[next++].get(), server_->port());
      std::this_thread::sleep_for(20ms);
    }
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(1s);
    const auto looks = counters_.of(Event::kNoDescriptors);
    EXPECT_LE(looks, 2 + (std::chrono::steady_clock::now() - begin) / Listener::kPause);
  }
  while (server_->connections() == 0) std::this_thread::sleep_for(1ms);
  EXPECT_NO_THROW(static_cast<void>(client()->join(request(7), kTimeout)));
}

TEST(DescriptorLimit, IsRaisedUpToTheHardLimit) {
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  ASSERT_GE(usual.rlim_max, 300U);
  const rlimit few{200, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(raise_descriptor_limit(100), 200U);
  EXPECT_EQ(raise_descriptor_limit(300), 300U);
  rlimit now{};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, 300U);
  EXPECT_EQ(raise_descriptor_limit(std::numeric_limits<std::uint64_t>::max()), usual.rlim_max);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

// After the last port, numbers would wrap to 0, which means any port.
TEST(Daemon, RefusesDataPortsAbove65535) {
  DaemonOptions options;
  options.listen = {kLoopback, 65521};
  options.control = {kLoopback, 0};
  options.with_http = false;
  options.limits.ports = 16;
  EXPECT_THAT([&] { const Daemon daemon(options); },
              ThrowsMessage<std::system_error>(AllOf(HasSubstr("127.0.0.1:65521"), HasSubstr("65535"))));
  options.listen.port = 65520;
  try {
    EXPECT_EQ(Daemon(options).data_address().port, 65520);
  } catch (const std::system_error& error) {  // another process uses one of the ports
    EXPECT_EQ(error.code(), std::errc::address_in_use);
  }
}

TEST(Metadata, RoundTripsAndRejectsOtherText) {
  const aggregation::Admission admission{std::numeric_limits<std::uint64_t>::max(), 7, 16, 65535, 255};
  aggregation::Admission again{};
  EXPECT_TRUE(read_admission(write_admission(admission), again));
  EXPECT_EQ(again, admission);
  aggregation::Admission sharing = admission;
  sharing.shared = true;
  EXPECT_TRUE(read_admission(write_admission(sharing), again));
  EXPECT_EQ(again, sharing);
  for (const char* text :
       {"", "epoch=1 job=1 slots=1 port=1", "epoch=1 job=1 slots=1 port=1 first=1 share",
        "epoch=1 job=1 slots=1 port=1 first=1 shared ", "epoch=18446744073709551617 job=1 slots=1 port=1 first=1",
        "epoch=1 job=4294967297 slots=1 port=1 first=1", "epoch=1 job=1 slots=4294967297 port=1 first=1",
        "epoch=1 job=1 slots=1 port=4294967297 first=1", "epoch=1 job=1 slots=1 port=65536 first=1",
        "epoch=1 job=1 slots=1 port=1 first=256", "epoch=1 job=1 slots=0 port=1 first=1",
        "epoch=-1 job=1 slots=1 port=1 first=1", "epoch=1 job=1 slots=1 port=1 first=1 ",
        "epoch=1job=1slots=1port=1first=1", "epoch= 1 job=1 slots=1 port=1 first=1"}) {
    EXPECT_FALSE(read_admission(text, again)) << text;
  }
  const Terms terms{aggregation::Mode::kExtended, 320, 65535, 0, -1};
  Terms same;
  EXPECT_TRUE(same.read(terms.write()));
  EXPECT_EQ(same.write(), terms.write());
  Terms offering = terms;
  offering.memory = {17, 5, {1, 2, 255}};
  EXPECT_TRUE(same.read(offering.write()));
  EXPECT_EQ(same.memory, offering.memory);
  EXPECT_FALSE(same.read(terms.write() + " process=0 descriptor=5 cookie=" + std::string(32, '0')));
  EXPECT_FALSE(same.read(terms.write() + " process=1 descriptor=-1 cookie=" + std::string(32, '0')));
  EXPECT_FALSE(same.read(terms.write() + " process=1 descriptor=1"));
  for (const char* text : {"mode=classic elements=4294967297 port=1 slots=1 first=-1",
                           "mode=classic elements=1 port=4294967297 slots=1 first=-1",
                           "mode=classic elements=1 port=1 slots=4294967297 first=-1",
                           "mode=classic elements=1 port=1 slots=1 first=4294967297",
                           "mode=classic elements=1 port=1 slots=1 first=99999999999999999999"}) {
    EXPECT_FALSE(same.read(text)) << text;
  }
}

TEST_F(Control, AnUnreachableSwitchIsNamedInTheError) {
  start({});
  const auto port = server_->port();
  const auto mine = client();
  server_.reset();
  EXPECT_THAT([&] { static_cast<void>(mine->join(request(7), 300ms)); },
              ThrowsMessage<SwitchUnreachable>(AllOf(HasSubstr(":" + std::to_string(port)), HasSubstr("weft-switch"))));
}

TEST_F(Control, StoppingFailsWaitingCalls) {
  start({});
  std::thread waiter([&] { EXPECT_THROW(client()->barrier(2, kTimeout), std::runtime_error); });
  while (server_->waiting() == 0) std::this_thread::sleep_for(1ms);
  server_->stop();
  waiter.join();
}

}  // namespace
}  // namespace weft::control::rpc
