// weft-switch: sums the packets of data-parallel workers, so that each sends its gradients once.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <ctime>
#include <iostream>

#include "apps/command_line.h"
#include "apps/weft-switch/embedded.h"
#include "weft/control/descriptors.h"
#include "weft/control/rpc/daemon.h"

namespace {

using weft::kWrongInput;
using weft::aggregation::Address;
using weft::control::rpc::Daemon;
using weft::control::rpc::DaemonOptions;

struct CommandLine {
  std::string listen = "0.0.0.0:48864";
  std::string control = "0.0.0.0:50099";
  std::string http = "127.0.0.1:9099";
  std::string jobs;
  std::string log_level = "info";
  bool open = false;
  bool multihomed = false;
  int idle = 600;
  int sessions = 64;
  int slots = 16384;
  int session_slots = 2048;
  int memory = 1024;  // MiB
  int ports = 16;
  int embedded = 0;
  std::vector<std::string> command;
};

// "50099", "10.0.0.1:50099" or "10.0.0.1"; `usual` gives what is left out.
Address address_of(const std::string& text, Address usual) {
  if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) {
    const long port = text.size() > 5 ? 65536 : std::stol(text);
    if (port <= 65535) return {usual.ipv4, static_cast<std::uint16_t>(port)};
  }
  const auto parsed = Address::parse(text);
  if (!parsed) throw CLI::ValidationError("'" + text + "' is neither a port nor an IPv4 address with or without one");
  return text.find(':') == std::string::npos ? Address{parsed->ipv4, usual.port} : *parsed;
}

void declare(CLI::App& app, CommandLine& line) {
  app.add_option("--listen", line.listen, "where workers' UDP packets come in: address:port, or either")
      ->capture_default_str();
  app.add_option("--control", line.control, "where workers set themselves up (gRPC): address:port, or either")
      ->capture_default_str();
  app.add_option("--http", line.http, "status page and /metrics: address:port, or 'off'")->capture_default_str();
  app.add_option("--jobs", line.jobs, "YAML file of job keys; without it workers of this machine are admitted only");
  app.add_flag("--open", line.open, "without --jobs: admit workers of any machine");
  app.add_flag(
      "--multihomed", line.multihomed,
      "without --jobs: workers may send packets from another address than the one they set themselves up from");
  app.add_option("--idle", line.idle, "seconds without packets after which a job's slots are given back")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--sessions", line.sessions, "sessions at a time: each process group of each job is one")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--slots", line.slots, "slots of all sessions together")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--session-slots", line.session_slots, "slots of one session at most")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  app.add_option("--memory", line.memory, "MiB for the slots of all sessions together: packets may be large")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--ports", line.ports,
                 "UDP ports from --listen on: jobs in extended mode are spread over them, so that a flood of one job "
                 "stays on its port")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--log-level", line.log_level, "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  app.add_option("--embedded", line.embedded,
                 "start a switch on this machine's loopback and run the command after -- on so many workers")
      ->check(CLI::Range(1, 1024));
  app.add_option("command", line.command, "for --embedded, after --: the program and its arguments");
}

// Why a command line is refused that would be obeyed in part only: who wrote the rest meant something. Empty if all of
// it counts.
std::string objection(const CLI::App& app, const CommandLine& line) {
  const bool embedded = line.embedded > 0;
  if (embedded && line.command.empty()) {
    return "--embedded needs a command: weft-switch --embedded 2 -- python train.py";
  }
  if (!embedded && !line.command.empty()) {
    return "'" + line.command.front() + "' is no option; to run a command: weft-switch --embedded 2 -- python train.py";
  }
  if (app.count("--jobs") > 0 && line.jobs.empty()) return "--jobs needs a file; without keys, leave it out";
  for (const std::string name : {"--open", "--multihomed"}) {
    if (app.count(name) == 0) continue;
    if (app.count("--jobs") > 0) return name + " is for a switch without --jobs: keys admit workers wherever they are";
    if (embedded) return name + " is not for --embedded, whose workers are on this machine";
  }
  for (const std::string name : {"--listen", "--control", "--http"}) {
    if (!embedded || app.count(name) == 0 || (name == "--http" && line.http == "off")) continue;
    return name + " is not for --embedded, which takes free ports of this machine's loopback";
  }
  return "";
}

DaemonOptions options_of(const CommandLine& line) {
  DaemonOptions options;
  const bool embedded = line.embedded > 0;
  const Address loopback{0x7F000001, 0};
  options.listen = embedded ? loopback : address_of(line.listen, options.listen);
  options.control = embedded ? loopback : address_of(line.control, options.control);
  options.with_http = line.http != "off";
  if (options.with_http) options.http = embedded ? loopback : address_of(line.http, options.http);
  if (!line.jobs.empty()) options.keys = weft::control::JobKeys::load(line.jobs);
  options.open = line.open;
  options.idle = std::chrono::seconds(line.idle);
  options.multihomed = line.multihomed;
  options.limits.jobs = line.sessions;
  options.limits.slots = line.slots;
  options.limits.slots_per_job = line.session_slots;
  options.limits.bytes = static_cast<std::size_t>(line.memory) << 20;
  options.limits.ports = line.ports;
  return options;
}

void announce(const Daemon& daemon, const CommandLine& line) {
  spdlog::info("listening data={} control={} http={}", daemon.data_address().describe(),
               daemon.control_address().describe(),
               daemon.http_address().port != 0 ? daemon.http_address().describe() : "off");
  if (!line.jobs.empty()) {
    spdlog::info("workers are admitted by the keys in {}", line.jobs);
  } else if (line.open) {
    spdlog::warn("workers of any machine are admitted without a key (--open)");
  } else {
    spdlog::info("workers of this machine only are admitted: there is neither --jobs nor --open");
  }
}

// SIGINT and SIGTERM are waited for, not handled: blocked in every thread, taken by this one.
sigset_t blocked_signals() {
  std::signal(SIGPIPE, SIG_IGN);  // whoever read the log may go
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

void serve(Daemon& daemon, const sigset_t& signals) {
  const timespec second{1, 0};
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &second);
    if (signal > 0) {
      spdlog::info("{}: stopping; {}", signal == SIGINT ? "SIGINT" : "SIGTERM", daemon.summary());
      return;
    }
    daemon.look_after();
  }
}

// The usual soft limit, 1024, is below what the connections that are let in may need.
void make_room(const DaemonOptions& options) {
  const auto needed = weft::control::rpc::descriptors_of(options);
  const auto allowed = weft::control::allow_descriptors(needed);
  if (allowed >= needed) return;
  spdlog::warn("{} descriptors are allowed, {} are needed when all connections are in use; raise the hard limit",
               allowed, needed);
}

int run(const CommandLine& line) {
  const sigset_t signals = blocked_signals();
  const DaemonOptions options = options_of(line);
  make_room(options);
  Daemon daemon(options);
  announce(daemon, line);
  if (line.embedded > 0) {
    return weft::apps::run_workers({line.embedded, line.command, daemon.control_address(), line.jobs}, signals);
  }
  serve(daemon, signals);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  CLI::App app{"weft-switch: in-network aggregation in software. Workers: dist.init_process_group(\"sml\")."};
  declare(app, line);
  app.set_version_flag("--version", "weft-switch " WEFT_VERSION);
  if (const auto status = weft::parse(app, argc, argv)) return *status;
  if (const std::string reason = objection(app, line); !reason.empty()) {
    std::cerr << "weft-switch: " << reason << "\n";
    return kWrongInput;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("weft-switch"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e weft-switch %l: %v");
  spdlog::set_level(spdlog::level::from_str(line.log_level));
  try {
    return run(line);
  } catch (const CLI::Error& error) {
    std::cerr << "weft-switch: " << error.what() << "\n";
    return kWrongInput;
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
    return 1;
  }
}
