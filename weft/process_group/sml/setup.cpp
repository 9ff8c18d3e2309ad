#include "weft/process_group/sml/setup.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <random>
#include <sstream>

#include "weft/mpi/agreement.h"
#include "weft/mpi/options.h"

namespace weft::process_group {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes as_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string as_text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

std::string abandoned_key(std::int64_t number) { return "sml/" + std::to_string(number) + "/abandoned"; }

// Returns the number of this rank's next rendezvous. A store may outlive its group, and torch gives the next group the
// same keys, so every rendezvous has its own number. No rank leaves a rendezvous before all have arrived, so the ranks
// agree on the next number. If a set-up fails on some ranks only (a timeout, a restarted rank), their numbers differ: a
// rank takes the highest number and skips abandoned rendezvous. A rank that arrived just before another one gave up
// times out, and they meet at the next attempt.
std::int64_t next_rendezvous(const Membership& members) {
  const auto count = [&](int rank, std::int64_t more) {
    return members.store->add("sml/rendezvous/" + std::to_string(rank), more);
  };
  const std::int64_t mine = count(members.rank, 1);
  std::int64_t number = mine;
  for (int rank = 0; rank < members.size; ++rank) number = std::max(number, count(rank, 0));
  while (members.store->check({abandoned_key(number)})) ++number;
  if (number > mine) count(members.rank, number - mine);
  return number;
}

// An exchange of data among all ranks of a group through the store.
struct StoreRendezvous {
  explicit StoreRendezvous(const Membership& all) : members(all), number(next_rendezvous(all)) {}
  [[nodiscard]] std::string key(const std::string& topic, const std::string& what) const {
    return "sml/" + std::to_string(number) + "/" + topic + "/" + what;
  }

  const Membership& members;
  std::int64_t number;
};

// Rank 0 often hosts the store. It waits until all ranks have read the values, so that they also receive its error.
void wait_for_readers(const StoreRendezvous& rendezvous, const std::string& topic) {
  const Membership& members = rendezvous.members;
  const std::string all_read = rendezvous.key(topic, "read");
  if (members.store->add(rendezvous.key(topic, "readers"), 1) == members.size) {
    members.store->set(all_read, as_bytes("1"));
  }
  if (members.rank == 0) members.store->wait({all_read}, members.timeout);
}

std::vector<std::string> gather_texts(const StoreRendezvous& rendezvous, const std::string& topic,
                                      const std::string& mine) {
  const Membership& members = rendezvous.members;
  members.store->set(rendezvous.key(topic, std::to_string(members.rank)), as_bytes(mine));
  std::vector<std::string> all;
  for (int rank = 0; rank < members.size; ++rank) {
    const std::string key = rendezvous.key(topic, std::to_string(rank));
    members.store->wait({key}, members.timeout);
    all.push_back(as_text(members.store->get(key)));
  }
  wait_for_readers(rendezvous, topic);
  return all;
}

// Returns the texts of all ranks, in rank order. Marks the rendezvous as abandoned on failure.
std::vector<std::string> exchange(const StoreRendezvous& rendezvous, const std::string& topic,
                                  const std::string& mine) {
  try {
    return gather_texts(rendezvous, topic, mine);
  } catch (const std::exception&) {
    try {
      rendezvous.members.store->set(abandoned_key(rendezvous.number), as_bytes("1"));
    } catch (const std::exception&) {  // the store has closed; the rendezvous ends with it
    }
    throw;
  }
}

// Runs `act` on every rank. If it fails on any rank, all ranks throw that error.
template <class Result>
Result run_on_all_ranks(const StoreRendezvous& rendezvous, const std::string& topic,
                        const std::function<Result()>& act) {
  Result result{};
  std::string failure;
  try {
    result = act();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::string description = mpi::describe_by_rank(exchange(rendezvous, topic, failure), "\nsml: ");
  TORCH_CHECK_WITH(DistBackendError, description.empty(), "sml: ", description);
  return result;
}

void require_same(const StoreRendezvous& rendezvous, const std::string& topic, const std::string& mine) {
  const auto parts = exchange(rendezvous, topic, mine);
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    TORCH_CHECK_WITH(DistBackendError, parts[rank] == parts[0],
                     "sml: the configuration differs between ranks: rank 0 has '", parts[0], "', rank ", rank, " has '",
                     parts[rank], "'; use the same switchml.cfg and WEFT_SML_* on all ranks");
  }
}

std::uint64_t random_session() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// The settings that must be identical on all ranks: they determine the path of a sum and the packet format. The
// transport (backend) may differ, except for dummy.
std::string shared_part(const aggregation::Config& config) {
  return config.general.prepostprocessor + " mode=" + config.weft.mode +
         " packet_numel=" + std::to_string(config.general.packet_numel) + " exact=" + (config.weft.exact ? "1" : "0") +
         " max_outstanding_packets=" + std::to_string(config.general.max_outstanding_packets) +
         (is_dummy(config) ? " backend=dummy" : "") + " job=" + config.weft.job +
         " switch=" + config.general.controller_ip + ":" + std::to_string(config.general.controller_port);
}

// The routes of the ranks may differ, so all use the smallest packets and window.
void agree_on_packets(const StoreRendezvous& rendezvous, aggregation::Config& config) {
  const auto mine = run_on_all_ranks<PacketPlan>(rendezvous, "route",
                                                 [&] { return packets_for_route(config, rendezvous.members.size); });
  PacketPlan least = mine;
  for (const std::string& text :
       exchange(rendezvous, "packets", std::to_string(mine.elements) + " " + std::to_string(mine.window))) {
    PacketPlan plan;
    std::istringstream(text) >> plan.elements >> plan.window;
    least = {std::min(least.elements, plan.elements), std::min(least.window, plan.window)};
  }
  config.general.packet_numel = least.elements;
  config.general.max_outstanding_packets = least.window;
}

}  // namespace

aggregation::Config agreed_config(const Membership& members) {
  const StoreRendezvous rendezvous(members);
  auto config = run_on_all_ranks<aggregation::Config>(rendezvous, "config", [] { return aggregation::load_config(); });
  require_same(rendezvous, "shared", shared_part(config));
  if (members.size > 1 && config.general.packet_numel == 0) agree_on_packets(rendezvous, config);
  return config;
}

std::string agreed_fallback(const Membership& members, const std::string& usual) {
  const StoreRendezvous rendezvous(members);
  const auto fallback = run_on_all_ranks<std::string>(rendezvous, "fallback", [&] {
    const std::string configured = aggregation::load_config().weft.fallback;
    return configured == "auto" ? usual : configured;
  });
  require_same(rendezvous, "same_fallback", "fallback=" + fallback);
  return fallback;
}

std::shared_ptr<AggregationQueue> open_queue(const Membership& members, const aggregation::Config& config) {
  const StoreRendezvous rendezvous(members);
  const auto sessions =
      exchange(rendezvous, "session", members.rank == 0 ? std::to_string(random_session()) : std::string());
  LinkOptions options;
  options.session = std::stoull(sessions[0]);
  options.rank = members.rank;
  options.workers = members.size;
  options.timeout = members.timeout;
  const StallMonitorOptions monitor{members.rank,
                                    config.general.controller_ip + ":" + std::to_string(config.general.controller_port),
                                    mpi::options().warn_after};
  if (is_dummy(config) && members.rank == 0) {
    TORCH_WARN("sml: backend = dummy sends nothing: each rank gets its own values multiplied by the number of ranks");
  }
  return run_on_all_ranks<std::shared_ptr<AggregationQueue>>(rendezvous, "joined", [&] {
    return std::make_shared<AggregationQueue>(std::make_unique<Link>(config, options),
                                              AbortFlag(members.store, rendezvous.key("queue", "ended"), members.rank),
                                              monitor);
  });
}

}  // namespace weft::process_group
