//! Examples in the help of each command.

pub(super) const RUN: &str = "\
Examples:
  csa-daemon run
  csa-daemon --config shop.toml run";
pub(super) const CHECK: &str = "\
Examples:
  csa-daemon check
  csa-daemon --channel shop check --connect";
pub(super) const COPY: &str = "\
Examples:
  csa-daemon --channel shop copy --plan
  csa-daemon --channel shop copy --table shop.item";
pub(super) const VERIFY: &str = "\
Examples:
  csa-daemon verify
  csa-daemon --channel shop verify --max-lag 10s";
pub(super) const RESTORE: &str = "\
Examples:
  csa-daemon --channel shop restore --to 127.0.0.1:3308 --until 2026-11-26T08:15:00Z
  csa-daemon --channel shop restore --to 127.0.0.1:3308 --binlogs /backup/binlogs --plan";
pub(super) const ARCHIVE: &str = "\
Examples:
  csa-daemon --channel shop archive ls
  csa-daemon --channel shop archive verify";
pub(super) const MOVE: &str = "\
Examples:
  csa-daemon --channel up move --prepare
  csa-daemon --channel up move --plan
  csa-daemon --channel up move --cut-over
  csa-daemon --channel up move --back";
pub(super) const ADOPT: &str = "\
Example:
  csa-daemon --channel shop adopt --from old_shop";
pub(super) const CONTROLLER: &str = "\
Example:
  csa-daemon controller --help";
// prose: allow long: lines of commands.
pub(super) const STATUS: &str = "\
Examples:
  csa-daemon status                 all channels in a table
  csa-daemon status shop            one channel in detail
  csa-daemon status --watch         the worst channels first, on a terminal
  csa-daemon status --max-lag 30s   for monitors: exit code 1 if a channel does not run, or lags by more";
pub(super) const PAGE: &str = "\
Examples:
  csa-daemon page
  csa-daemon --channel shop page --without-token";
pub(super) const PAUSE: &str = "\
Examples:
  csa-daemon --channel shop pause
  csa-daemon pause --all";
pub(super) const RESUME: &str = "\
Examples:
  csa-daemon --channel shop resume
  csa-daemon --channel 'shard-*' resume";
pub(super) const STOP: &str = "\
Examples:
  csa-daemon --channel shop stop --timeout 30
  csa-daemon stop --all --receiving";
pub(super) const RESTART: &str = "\
Examples:
  csa-daemon --channel shop restart
  csa-daemon restart --all";
pub(super) const SET: &str = "\
Examples:
  csa-daemon --channel shop set worker_count 16
  csa-daemon set --all throttle 2000";
pub(super) const UNTIL: &str = "\
Examples:
  csa-daemon --channel shop until --before-time 2026-03-01T18:00:00Z
  csa-daemon --channel shop until --clear";
pub(super) const SKIP: &str = "\
Example:
  csa-daemon --channel shop skip 3e11fa47-71ca-11e1-9e33-c80aa9429562:23";
// prose: allow long: lines of commands.
pub(super) const WAIT: &str = "\
Examples:
  csa-daemon --channel shop wait 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23
  csa-daemon --channel shop wait 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23 --timeout 10s";
pub(super) const TRACE: &str = "\
Example:
  csa-daemon --channel shop trace --seconds 10 --output shop.json";
pub(super) const RELAY: &str = "\
Examples:
  csa-daemon --channel shop relay ls
  csa-daemon --channel shop relay dump --limit 10";
pub(super) const RELAY_LS: &str = "\
Example:
  csa-daemon --channel shop relay ls";
pub(super) const RELAY_DUMP: &str = "\
Examples:
  csa-daemon --channel shop relay dump --limit 10
  csa-daemon --channel shop relay dump --gtid-set 3e11fa47-71ca-11e1-9e33-c80aa9429562:23 --rows";
pub(super) const RELOAD: &str = "\
Examples:
  csa-daemon reload --dry-run
  csa-daemon reload --restart";
pub(super) const FLEET: &str = "\
Examples:
  csa-daemon fleet
  csa-daemon fleet --json";
pub(super) const DRAIN: &str = "\
Examples:
  csa-daemon drain --timeout 120
  csa-daemon drain --undo";
