// weft-switch: software switch that sums the packets of data-parallel workers.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <ctime>
#include <iostream>

#include "apps/command_line.h"
#include "apps/weft-switch/embedded.h"
#include "weft/control/descriptor_limit.h"
#include "weft/control/rpc/daemon.h"

namespace {

using weft::kWrongInput;
using weft::aggregation::Address;
using weft::control::rpc::Daemon;
using weft::control::rpc::DaemonOptions;

struct CommandLine {
  std::string listen = "48864";
  std::string control = "50099";
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

// Parses "50099", "10.0.0.1:50099" or "10.0.0.1"; `usual` provides the missing part.
Address address_of(const std::string& text, Address usual) {
  if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) {
    const long port = text.size() > 5 ? 65536 : std::stol(text);
    if (port <= 65535) return {usual.ipv4, static_cast<std::uint16_t>(port)};
  }
  const auto parsed = Address::parse(text);
  if (!parsed) throw CLI::ValidationError("'" + text + "' is not a port, an IPv4 address or address:port");
  return text.find(':') == std::string::npos ? Address{parsed->ipv4, usual.port} : *parsed;
}

void declare(CLI::App& app, CommandLine& line) {
  const std::string where = "; default address: all interfaces with --jobs or --open, else 127.0.0.1";
  app.add_option("--listen", line.listen, "UDP address for workers' packets: address:port, address or port" + where)
      ->capture_default_str();
  app.add_option("--control", line.control, "gRPC address of the control plane: address:port, address or port" + where)
      ->capture_default_str();
  app.add_option("--http", line.http, "HTTP address of the status page and /metrics: address:port, or 'off'")
      ->capture_default_str();
  app.add_option("--jobs", line.jobs, "YAML file of job keys; without it, only workers on this machine are admitted");
  app.add_flag("--open", line.open, "without --jobs: admit workers on any machine");
  app.add_flag("--multihomed", line.multihomed,
               "without --jobs: workers may use different addresses for packets and for the control plane");
  app.add_option("--idle", line.idle, "seconds without packets after which a session ends")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--sessions", line.sessions, "maximum number of sessions; each process group of a job is one")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--slots", line.slots, "maximum number of slots of all sessions")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--session-slots", line.session_slots, "maximum number of slots per session")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  app.add_option("--memory", line.memory, "maximum memory for the slots of all sessions, in MiB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option(
         "--ports", line.ports,
         "number of consecutive UDP ports, starting at --listen; jobs in extended mode are distributed over them, so "
         "that a flood of one job affects only its port")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--log-level", line.log_level, "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  app.add_option("--embedded", line.embedded,
                 "start the switch on the loopback interface and run the command after -- as this many workers")
      ->check(CLI::Range(1, 1024));
  app.add_option("command", line.command, "program and arguments for --embedded, after --");
}

// Returns an error if options contradict each other or would be ignored; otherwise an empty text.
std::string objection(const CLI::App& app, const CommandLine& line) {
  const bool embedded = line.embedded > 0;
  if (embedded && line.command.empty()) {
    return "--embedded needs a command: weft-switch --embedded 2 -- python train.py";
  }
  if (!embedded && !line.command.empty()) {
    return "'" + line.command.front() +
           "' is not an option; to run a command: weft-switch --embedded 2 -- python train.py";
  }
  if (app.count("--jobs") > 0 && line.jobs.empty()) return "--jobs needs a file; omit it to run without keys";
  for (const std::string name : {"--open", "--multihomed"}) {
    if (app.count(name) == 0) continue;
    if (app.count("--jobs") > 0) return name + " cannot be combined with --jobs: keys admit workers from any address";
    if (embedded) return name + " cannot be combined with --embedded, whose workers run on this machine";
  }
  for (const std::string name : {"--listen", "--control", "--http"}) {
    if (!embedded || app.count(name) == 0 || (name == "--http" && line.http == "off")) continue;
    return name + " cannot be combined with --embedded, which uses free loopback ports";
  }
  return "";
}

DaemonOptions options_of(const CommandLine& line) {
  DaemonOptions options;
  const bool embedded = line.embedded > 0;
  const Address loopback{0x7F000001, 0};
  // Without keys, only workers on this machine are admitted, so others need not reach the switch.
  if (!line.jobs.empty() || line.open) options.listen.ipv4 = options.control.ipv4 = 0;
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
    spdlog::info("admitting workers with the keys in {}", line.jobs);
  } else if (line.open) {
    spdlog::warn("admitting workers on any machine without a key (--open)");
  } else {
    spdlog::info("admitting only workers on this machine: neither --jobs nor --open is given");
  }
}

// Blocks SIGINT, SIGTERM and SIGHUP in all threads; the main thread waits for them with sigtimedwait().
sigset_t blocked_signals() {
  std::signal(SIGPIPE, SIG_IGN);  // the reader of the log may exit
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  struct sigaction usual{};
  sigaction(SIGHUP, nullptr, &usual);
  if (usual.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);  // nohup ignores it
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// An invalid file must not end the sums of running jobs.
void reload_keys(Daemon& daemon, const std::string& file) {
  if (file.empty()) return spdlog::warn("SIGHUP: ignored; without --jobs there are no keys to reload");
  try {
    const auto keys = weft::control::JobKeys::load(file);
    daemon.set_keys(keys);
    spdlog::info("SIGHUP: reloaded the keys of {} job(s) from {}", keys.size(), file);
  } catch (const weft::control::KeysError& error) {
    spdlog::error("SIGHUP: keeping the old keys: {}", error.what());
  }
}

void serve(Daemon& daemon, const sigset_t& signals, const std::string& keys) {
  const timespec second{1, 0};
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &second);
    if (signal == SIGHUP) {
      reload_keys(daemon, keys);
    } else if (signal > 0) {
      spdlog::info("{}: stopping; {}", signal == SIGINT ? "SIGINT" : "SIGTERM", daemon.summary());
      return;
    }
    daemon.reclaim_idle();
  }
}

// The default soft limit of 1024 descriptors is too low for the maximum number of connections.
void make_room(const DaemonOptions& options) {
  const auto needed = weft::control::rpc::descriptors_of(options);
  const auto allowed = weft::control::raise_descriptor_limit(needed);
  if (allowed >= needed) return;
  spdlog::warn("the limit of {} file descriptors is below the {} needed for all connections; raise the hard limit",
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
  serve(daemon, signals, line.jobs);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  CLI::App app{"Software switch that sums the gradients of workers that call dist.init_process_group(\"sml\")."};
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
