#include "weft/process_group/sml_setup.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <random>

#include "weft/mpi/options.h"

namespace weft::process_group {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes as_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string as_text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

std::string given_up(std::int64_t number) { return "sml/" + std::to_string(number) + "/given_up"; }

// The number of the meeting that this rank comes to. A store may outlive its group, and torch gives the next group the
// same keys: every meeting has its own. Nobody leaves one before all have come, so a rank's next meeting is the others'
// next. After a set-up that broke off on some ranks only (a timeout, a rank that was started again) their numbers
// differ: who comes takes the highest, and passes by a meeting that somebody gave up. A rank that came just before
// another gave up waits in vain: it reaches its timeout, never another session, and they meet at the next attempt.
std::int64_t next_meeting(const Membership& members) {
  const auto count = [&](int rank, std::int64_t more) {
    return members.store->add("sml/meetings/" + std::to_string(rank), more);
  };
  const std::int64_t mine = count(members.rank, 1);
  std::int64_t number = mine;
  for (int rank = 0; rank < members.size; ++rank) number = std::max(number, count(rank, 0));
  while (members.store->check({given_up(number)})) ++number;
  if (number > mine) count(members.rank, number - mine);
  return number;
}

// All ranks of a group, talking about one thing.
struct Meeting {
  explicit Meeting(const Membership& all) : members(all), number(next_meeting(all)) {}
  [[nodiscard]] std::string key(const std::string& topic, const std::string& what) const {
    return "sml/" + std::to_string(number) + "/" + topic + "/" + what;
  }

  const Membership& members;
  std::int64_t number;
};

// Rank 0 often holds the store: if it left at once with an error, others could not hear of it any more.
void let_all_read(const Meeting& meeting, const std::string& topic) {
  const Membership& members = meeting.members;
  const std::string everybody = meeting.key(topic, "heard");
  if (members.store->add(meeting.key(topic, "readers"), 1) == members.size) {
    members.store->set(everybody, as_bytes("1"));
  }
  if (members.rank == 0) members.store->wait({everybody}, members.timeout);
}

std::vector<std::string> tell_and_hear(const Meeting& meeting, const std::string& topic, const std::string& mine) {
  const Membership& members = meeting.members;
  members.store->set(meeting.key(topic, std::to_string(members.rank)), as_bytes(mine));
  std::vector<std::string> all;
  for (int rank = 0; rank < members.size; ++rank) {
    const std::string key = meeting.key(topic, std::to_string(rank));
    members.store->wait({key}, members.timeout);
    all.push_back(as_text(members.store->get(key)));
  }
  let_all_read(meeting, topic);
  return all;
}

// Tells all ranks what this one has to say, and hears all.
std::vector<std::string> exchange(const Meeting& meeting, const std::string& topic, const std::string& mine) {
  try {
    return tell_and_hear(meeting, topic, mine);
  } catch (const std::exception&) {
    try {
      meeting.members.store->set(given_up(meeting.number), as_bytes("1"));
    } catch (const std::exception&) {  // the store has gone: nobody meets there again
    }
    throw;
  }
}

// Does something that may fail here, and throws on every rank what failed on any.
template <class Result>
Result together(const Meeting& meeting, const std::string& topic, const std::function<Result()>& act) {
  Result result{};
  std::string failure;
  try {
    result = act();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const auto failures = exchange(meeting, topic, failure);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    TORCH_CHECK_WITH(DistBackendError, failures[rank].empty(), "sml: rank ", rank, ": ", failures[rank]);
  }
  return result;
}

void require_same(const Meeting& meeting, const std::string& topic, const std::string& mine) {
  const auto parts = exchange(meeting, topic, mine);
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    TORCH_CHECK_WITH(DistBackendError, parts[rank] == parts[0],
                     "sml: the ranks are configured differently: rank 0 has '", parts[0], "', rank ", rank, " has '",
                     parts[rank], "'; give all the same switchml.cfg and WEFT_SML_*");
  }
}

std::uint64_t picked_session() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// What must be the same everywhere: it decides which way a sum goes, and what packets look like. How a worker sends
// them (backend) is its own affair, as long as it sends any.
std::string shared_part(const aggregation::Config& config) {
  return config.general.prepostprocessor + " mode=" + config.weft.mode +
         " packet_numel=" + std::to_string(config.general.packet_numel) + " exact=" + (config.weft.exact ? "1" : "0") +
         " max_outstanding_packets=" + std::to_string(config.general.max_outstanding_packets) +
         (sends_nothing(config) ? " backend=dummy" : "") + " job=" + config.weft.job +
         " switch=" + config.general.controller_ip + ":" + std::to_string(config.general.controller_port);
}

}  // namespace

aggregation::Config agreed_config(const Membership& members) {
  const Meeting meeting(members);
  const auto config = together<aggregation::Config>(meeting, "config", [] { return aggregation::load_config(); });
  require_same(meeting, "shared", shared_part(config));
  return config;
}

std::string agreed_fallback(const Membership& members, const std::string& usual) {
  const Meeting meeting(members);
  const auto fallback = together<std::string>(meeting, "fallback", [&] {
    const std::string configured = aggregation::load_config().weft.fallback;
    return configured == "auto" ? usual : configured;
  });
  require_same(meeting, "same_fallback", "fallback=" + fallback);
  return fallback;
}

std::shared_ptr<Lane> open_lane(const Membership& members, const aggregation::Config& config) {
  const Meeting meeting(members);
  const auto sessions =
      exchange(meeting, "session", members.rank == 0 ? std::to_string(picked_session()) : std::string());
  LinkOptions options;
  options.session = std::stoull(sessions[0]);
  options.rank = members.rank;
  options.workers = members.size;
  options.timeout = members.timeout;
  const WatchOptions watch{members.rank,
                           config.general.controller_ip + ":" + std::to_string(config.general.controller_port),
                           mpi::options().warn_after};
  if (sends_nothing(config) && members.rank == 0) {
    TORCH_WARN("sml: backend = dummy sends nothing: sums are each rank's own values, times the number of ranks");
  }
  return together<std::shared_ptr<Lane>>(meeting, "joined", [&] {
    return std::make_shared<Lane>(std::make_unique<Link>(config, options),
                                  Notice(members.store, meeting.key("lane", "ended"), members.rank), watch);
  });
}

}  // namespace weft::process_group
